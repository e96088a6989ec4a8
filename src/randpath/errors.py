"""The error of bad data: by itself, so that the commands can name it without importing numpy."""


class DataError(ValueError):
    """Bad or missing data: what is wrong, where it lies and what to do next; the CLI's exit code 65."""

    def __init__(self, what: str, *, where: str = "", next: str = ""):
        super().__init__(what + (f"; next: {next}" if next else ""))
        self.what, self.where, self.next = what, where, next
