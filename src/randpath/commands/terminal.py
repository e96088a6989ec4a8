"""What all commands share: how they are stopped, how they show progress, and what was typed wrongly. No torch."""

import os
import signal
import threading
import time
from types import FrameType

from rich import progress as bars
from rich.console import Console


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
            bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(), console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.row = self.bar.add_task(what, total=1.0)
        self.shown = time.monotonic()

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, done: float, what: str | None = None) -> None:
        """A share is done, of `what` if that is another thing now; drawn at most ten times a second."""
        self.what = what or self.what
        now = time.monotonic()
        if now - self.shown < (0.1 if self.console.is_terminal else 30):
            return
        self.shown = now
        self.bar.update(self.row, completed=done, description=self.what)
        if not self.console.is_terminal:
            self.say(f"{self.what}: {done:.0%}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
