"""Every error that a user can cause: one family, free of torch. Anything else that is raised is a bug of ours."""

import pathlib
import shlex
from typing import Any, ClassVar


def as_typed(*words: object) -> str:
    """A command of ours as it is typed, for the messages that name one.

    >>> as_typed("rollback", "my birds")
    "randpath rollback 'my birds'"

    >>> as_typed("rollback", pathlib.Path("-birds"))
    'randpath rollback ./-birds'
    """
    paths = [f"./{word}" if isinstance(word, pathlib.Path) and str(word).startswith("-") else word for word in words]
    return shlex.join(["randpath", *map(str, paths)])


class RandpathError(Exception):
    """What went wrong, where, what was kept and what to do next; the commands leave with its exit code (sysexits.h)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", kept: str = "", next: str = ""):
        super().__init__(what)
        self.what, self.where, self.kept, self.next = what, where, kept, next

    def __str__(self) -> str:
        return self.what + (f"; next: {self.next}" if self.next else "")

    def __reduce__(self) -> tuple[Any, ...]:  # it crosses processes with all that was added to it on the way
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[RandpathError], args: tuple[Any, ...], attributes: dict[str, Any]) -> RandpathError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class UsageError(RandpathError, ValueError):
    """Something was asked for that cannot be done. Also a ValueError, as scikit-learn's conventions demand."""

    exit_code = 64


class Changed(UsageError):
    """A run cannot go on exactly: its settings, data or environment are not those it began with."""


class DataError(RandpathError, ValueError):
    """Bad or missing data."""

    exit_code = 65


class Damaged(RandpathError):
    """A file is not what was written: cut short, changed, missing, foreign or hostile."""

    exit_code = 65


class DeviceMissing(RandpathError):
    """The device that was asked for is not in this machine."""

    exit_code = 69


class MissingExtra(RandpathError):
    """An optional library is not installed; says how to install it."""

    exit_code = 69


class NotFinite(RandpathError):
    """A number that must be finite is not."""

    exit_code = 70


class Diverged(NotFinite):
    """A loss, gradient or batch-norm statistic that is not finite; caught before it reaches the weights."""

    def __init__(self, what: str, step: int, lr: float, gradient: float, losses: list[float]):
        super().__init__(
            f"{what} is not finite at step {step} (learning rate {lr:g}, gradient norm {gradient:g}"
            f", last losses {', '.join(f'{x:.4g}' for x in losses)})"
        )
        self.step, self.lr, self.gradient, self.losses = step, lr, gradient, losses


class WorkerLost(RandpathError):
    """One call lost its worker process again and again."""

    exit_code = 70


class OutOfMemory(RandpathError):
    """The machine, or a limit of its user, has no more memory."""

    exit_code = 71


class Locked(RandpathError):
    """Another process is working in this directory."""

    exit_code = 73


class DiskTrouble(RandpathError):
    """The disk did not take, or did not give, what it should; what was saved before is intact."""

    exit_code = 74


class DownloadError(RandpathError):
    """A file that could not be downloaded, and where to put it by hand."""

    exit_code = 74


class Stopped(Exception):
    """Not an error: somebody asked to stop, and the unfinished work is saved where there is a place for it."""
