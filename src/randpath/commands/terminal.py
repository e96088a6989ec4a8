"""What a person sees and how they stop it: the bar, a line for each task, the final table, Ctrl-C. No torch."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.table import Table

BAR = 20  # characters


class Stop:
    """The first Ctrl-C or SIGTERM is noticed at the next step; a second one leaves at once."""

    signal = 0

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self.before = {s: signal.signal(s, self._heard) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in getattr(self, "before", {}).items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            os._exit(128 + number)
        self.signal = number


class Bar:
    """One bar on stderr; where that is no terminal, a line every half minute."""

    def __init__(self, what: str):
        self.what = what
        self.console = Console(stderr=True)
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}"), bars.BarColumn(BAR), bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(), console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.row = self.bar.add_task(what, total=1.0)
        self.shown = time.monotonic()

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, done: float, what: str | Callable[[], str] | None = None) -> None:
        """A share is done, of `what` if that is another thing now; drawn at most ten times a second."""
        now = time.monotonic()
        if isinstance(what, str):
            self.what = what
        if now - self.shown < (0.1 if self.console.is_terminal else 30):
            return
        self.shown = now
        if callable(what):  # words that cost something are asked for when they are shown
            self.what = what()
        room = self.console.width - BAR - 16  # beside the bar, the percentage and the time
        self.bar.update(self.row, completed=done, description=fitted(self.what, room))
        if not self.console.is_terminal:
            self.say(f"{self.what}: {done:.0%}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def fitted(text: str, room: int) -> str:
    """As many of the parts, the first ones, as there is room for.

    >>> fitted("task 2 of 5, epoch 3 of 8, about 4 min left", 30)
    'task 2 of 5, epoch 3 of 8'
    """
    while len(text) > room and ", " in text:
        text = text.rpartition(", ")[0]
    return text


def task_line(line: dict[str, Any], num_tasks: int) -> str:
    """A finished task, and what there is to note of it."""
    text = f"task {line['k']} of {num_tasks}: accuracy on {len(line['classes'])} classes {line['accuracy']:.2%}, "
    if line.get("saturation") is not None:
        text += f"mu_sat {line['saturation']:+.2f}{' (switch)' if line['switched'] else ''}, "
    text += "".join(f"{name} {value:.2%}, " for name, value in line.get("own", {}).items())
    if line.get("visits") and line["seconds"]:
        text += f"{line['visits'] / line['seconds']:,.0f} images/s, "
    return "\n  note: ".join([text + f"{line['seconds']:.1f} s", *line["notes"]])


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


def path_map(lines: list[dict[str, Any]]) -> str:
    """Layers down, modules across: the first task that used a module, . for none, * for the present path.

    >>> print(path_map([{"k": 1, "path": [[1, 0], [0, 1]]}, {"k": 2, "path": [[0, 1], [0, 1]]}]))
      layer 1  1  2*
      layer 2  .  1*
    """
    present, text = lines[-1]["path"], []
    for layer, row in enumerate(present):
        first = [next((line["k"] for line in lines if line["path"][layer][m]), ".") for m in range(len(row))]
        cells = (f"{k}{'*' if used else ' '}" for k, used in zip(first, row))
        text.append(f"  layer {layer + 1}  {' '.join(cells)}".rstrip())
    return "\n".join(text)


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
