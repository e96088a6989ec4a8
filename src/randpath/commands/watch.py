"""What a run says of itself as it goes on: task, candidate, epoch, accuracy, saturation, speed, time left. No torch."""

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment

PROGRESS = "progress.json"  # for `report --live`; nothing depends on it, so it is not written through to the disk


class Watch:
    """Turns the share of a task that is done into words, and keeps them in progress.json."""

    def __init__(self, experiment: "Experiment", directory: Path, num_tasks: int):
        self.experiment, self.directory, self.num_tasks = experiment, directory, num_tasks
        self.lines: list[dict[str, Any]] = []  # of the tasks that are committed
        self.began = self.written = time.monotonic()
        self.before = 0.0  # units of work that an earlier process did
        self.at_work = False

    def committed(self, line: dict[str, Any]) -> None:
        """A task is done; those that come before the first step were done by an earlier process."""
        if not self.at_work:
            self.before += self._units(len(self.lines) + 1)
        self.lines.append(line)

    def text(self, done: float) -> str:
        """Where the run stands, the most important first.

        >>> from randpath import Experiment
        >>> watch = Watch(Experiment("digits", 5, options={"N": 4}), Path("nowhere"), 5)
        >>> watch.text(0.375)
        'task 1 of 5, candidate 2 of 4, epoch 26 of 50'
        """
        k = len(self.lines) + 1
        parts = [f"task {k} of {self.num_tasks}", *self._candidate(k, done)]
        if self.lines:
            last = self.lines[-1]
            parts.append(f"A_{k - 1} {last['accuracy']:.1%}")
            if last.get("saturation") is not None:
                parts.append(f"mu_sat {last['saturation']:+.2f}")
        if (left := self._seconds_left(k, done)) is not None:
            parts.append(f"about {_duration(left)} left")
        if (rate := self._rate()) is not None:
            parts.append(f"{rate:,.0f} images/s")
        return ", ".join(parts)

    def step(self, done: float) -> None:
        """Leave the words where a live report finds them, at most every two seconds."""
        now = time.monotonic()
        if not self.at_work:
            self.at_work, self.began = True, now
        if now - self.written >= 2 and self.directory.is_dir():
            self.written = now
            self._replace({"text": self.text(done), "time": time.time()})

    def end(self) -> None:
        with contextlib.suppress(OSError):
            (self.directory / PROGRESS).unlink(missing_ok=True)

    def _replace(self, document: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is no run's fault that it cannot tell of itself
            file = self.directory / f".{PROGRESS}"
            file.write_text(json.dumps(document))
            file.replace(self.directory / PROGRESS)

    def _searched(self, k: int) -> int:
        """How many candidates task k trains: N at first and after a switch. Other searches do not say."""
        e = self.experiment
        if e.method != "rps" or e.options.get("search", "random") != "random":
            return 0
        if not e.validation or e.join == "lanes":  # nothing to choose by, or nothing to choose from
            return 1
        first_or_switched = k == 1 or (k - 1 <= len(self.lines) and bool(self.lines[k - 2].get("switched")))
        return int(e.options.get("N", 8)) if first_or_switched else 1

    def _candidate(self, k: int, done: float) -> list[str]:
        n, epochs = self._searched(k), self.experiment.training.of_task(k).epochs
        if not n:
            return []
        if self.experiment.members > 1:
            return [f"{self.experiment.members} networks"]
        if n > 1 and self.experiment.processes > 1:
            return [f"{n} candidates"]  # side by side: each at an epoch of its own
        at = min(done, 0.999999) * n
        candidate = [f"candidate {int(at) + 1} of {n}"] if n > 1 else []
        return [*candidate, f"epoch {int((at - int(at)) * epochs) + 1} of {epochs}"]

    def _units(self, k: int) -> float:
        """The work of a task, for what is left: candidates times epochs; a frozen path only answers, a third of it."""
        epochs = self.experiment.training.of_task(k).epochs
        return max(1, self._searched(k)) * epochs * (1 + self._switches_before(k) / 3)

    def _switches_before(self, k: int) -> int:
        """Tasks to come do as the last one did; before any had the choice, lanes are opened and other paths are not."""
        e = self.experiment
        seen, first = [bool(line.get("switched")) for line in self.lines], int(e.options.get("first_switch", 1))
        expected = seen[-1] if len(seen) >= first else e.join == "lanes"
        to_come = range(max(len(seen) + 1, first), k)
        return sum(seen[: k - 1]) + expected * len(to_come)

    def _seconds_left(self, k: int, done: float) -> float | None:
        units = [self._units(j) for j in range(1, self.num_tasks + 1)]
        so_far = sum(units[: k - 1]) + done * units[k - 1] - self.before
        elapsed = time.monotonic() - self.began
        if so_far <= 0 or elapsed < 5:
            return None
        return elapsed / so_far * (sum(units) - self.before - so_far)

    def _rate(self) -> float | None:
        """Training images per second in the last task that is done."""
        last = self.lines[-1] if self.lines else {}
        visits, seconds = last.get("visits"), last.get("seconds")
        return visits / seconds if visits and seconds else None


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(400), _duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
