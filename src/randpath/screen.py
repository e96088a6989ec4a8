"""What a run shows: a progress bar on stderr (plain lines where it is no terminal) and the final table."""

import time
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.table import Table


class Progress:
    """A bar for the task at hand, a line for each finished one."""

    def __init__(self, num_tasks: int):
        self.num_tasks = num_tasks
        self.console = Console(stderr=True)
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.row: bars.TaskID | None = None
        self.shown = 0.0

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, k: int, done: float) -> None:
        """A share of task k is done; drawn at most ten times a second."""
        now = time.monotonic()
        if now - self.shown < 0.1 and 0 < done < 1:
            return
        self.shown = now
        if self.row is None:
            self.row = self.bar.add_task("", total=1.0)
        self.bar.update(self.row, completed=done, description=f"task {k} of {self.num_tasks}")

    def finished(self, line: dict[str, Any]) -> None:
        self.say(
            f"task {line['k']} of {self.num_tasks}: accuracy on {len(line['classes'])} classes {line['accuracy']:.2%}, "
            f"{line['seconds']:.1f} s"
        )
        for note in line["notes"]:
            self.say(f"  note: {note}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def results_table(lines: list[dict[str, Any]]) -> Table:
    """Task, classes, A_k, forgetting, mu_sat, switched?, trained/total parameters, seconds."""
    table = Table(box=None, header_style="bold")
    for name in ("task", "classes", "accuracy", "forgetting", "mu_sat", "switched", "trained / total", "seconds"):
        table.add_column(name, justify="left" if name in ("classes", "switched") else "right")
    seen = 0
    for line in lines:
        new, seen = line["classes"][seen:], len(line["classes"])
        table.add_row(
            str(line["k"]),
            ", ".join(new) if len(", ".join(new)) <= 12 else f"{len(new)} new",
            f"{line['accuracy']:.2%}",
            _or_dash(line["forgetting"], "{:.2%}"),
            _or_dash(line["saturation"], "{:+.2f}"),
            {True: "yes", False: "no", None: "-"}[line["switched"]],
            f"{_short(line['parameters_trained'])} / {_short(line['parameters'])}",
            f"{line['seconds']:.1f}",
        )
    return table


def _short(n: int) -> str:
    """A count in at most five characters, so that the table fits in 80 columns.

    >>> _short(950), _short(53602), _short(72_260_000)
    ('950', '53.6k', '72.3M')
    """
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
