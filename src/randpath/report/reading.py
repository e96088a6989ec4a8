"""A run or a model directory, read for a page. It reads only, so that it may look at a run that is going on."""

import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from randpath import metrics
from randpath.data.dataset import stored
from randpath.errors import Damaged, DataError, UsageError
from randpath.network.path import Path
from randpath.report import sound
from randpath.report.record import num_tasks
from randpath.storage import checkpoint

Line = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """What lies in a run directory, as far as the run has come."""

    directory: pathlib.Path
    document: dict[str, Any]  # experiment.json
    tasks: list[Line]  # metrics.jsonl
    epochs: list[Line]
    times: list[Line]

    @property
    def experiment(self) -> dict[str, Any]:
        e: dict[str, Any] = self.document["experiment"]
        return e

    @property
    def num_tasks(self) -> int:
        return num_tasks(self.experiment)

    @property
    def finished(self) -> bool:
        return len(self.tasks) >= self.num_tasks

    @property
    def accuracy(self) -> list[float]:
        return [line["accuracy"] for line in self.tasks]

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.tasks[-1]["classes"]] if self.tasks else []

    def predictions(self, k: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Labels and answers on all test images of tasks 1..k; none if the file is lost."""
        try:
            read = checkpoint.read_tensors(self.directory / "predictions" / f"{k}.safetensors")
            labels, predicted = read["label"].numpy(), read["predicted"].numpy()
        except (FileNotFoundError, Damaged, KeyError):
            return None
        C = len(self.tasks[k - 1]["classes"])
        if labels.shape != predicted.shape or not len(labels) or min(labels.min(), predicted.min()) < 0:
            return None
        return (labels, predicted) if max(labels.max(), predicted.max()) < C else None

    def visits(self) -> float | None:
        return _sum([line.get("visits") for line in self.times])

    def cpu_seconds(self) -> float | None:
        return _sum([line.get("cpu_seconds") for line in self.times])


def _sum(values: Sequence[float | None]) -> float | None:
    """None if one is unknown: a task was interrupted, and what was spent before that is not counted."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def going_on(directory: pathlib.Path) -> str:
    """What a run that is at work says of itself; empty when it has not been heard for a minute."""
    try:
        told = checkpoint.read_document(directory / "progress.json")
        return str(told["text"]) if abs(time.time() - told["time"]) < 60 else ""
    except (OSError, Damaged, LookupError, TypeError):
        return ""


def is_run(directory: pathlib.Path) -> bool:
    return (directory / "experiment.json").is_file()


def read_run(directory: pathlib.Path) -> RunFiles:
    """A run, finished or not; refuses what is none."""
    if not is_run(directory):
        raise UsageError(
            f"{directory} is neither a run nor a model: it has no experiment.json and no current.json",
            where=str(directory),
            next="randpath report RUN   (RUN: a directory that bench made, MODEL: one that learn made)",
        )
    file = directory / "experiment.json"
    document = checkpoint.read_document(file)
    sound.check(document, sound.DOCUMENT, str(file))
    sound.check(document["experiment"], sound.EXPERIMENT, str(file))
    read = {name: _lines(directory / f"{name}.jsonl", tests) for name, tests in sound.LINES.items()}
    sound.check_tasks(read["metrics"], str(directory / "metrics.jsonl"))
    known = len(read["metrics"])
    for name in ("epochs", "times"):  # written after metrics.jsonl: a reader may come between
        read[name] = [line for line in read[name] if 1 <= line["k"] <= known]
    return RunFiles(directory, document, read["metrics"], read["epochs"], read["times"])


def _lines(file: pathlib.Path, tests: tuple[dict[str, sound.Test], dict[str, sound.Test]]) -> list[Line]:
    try:
        lines = checkpoint.read_lines(file)
    except FileNotFoundError:  # killed before its first task was committed
        return []
    for i, line in enumerate(lines, start=1):
        sound.check(line, tests, f"{file}, line {i}")
    return lines


@dataclass(frozen=True)
class Frame:
    """The path map as it stood after a task."""

    k: int
    first: list[list[int]]  # the task that first trained a module, 0 for none
    texts: list[list[str]]  # the tasks that trained it, such as 1-3
    present: list[list[int]]


def frames(paths: Sequence[Sequence[Sequence[int]]], switched: Sequence[bool | None]) -> list[Frame]:
    """What each task trained: P_tr = P ^ (P & P_fixed), where P_fixed is P_ts after the last switch.

    >>> one, two, three = frames([[[1, 0]], [[1, 0]], [[0, 1]]], [False, True, False])
    >>> one.texts, two.texts, three.texts, three.first
    ([['1', '']], [['1-2', '']], [['1-2', '3']], [[1, 3]])
    """
    P_fixed = P_ts = Path.empty(len(paths[0]), len(paths[0][0])) if paths else Path(())
    trained: dict[tuple[int, int], list[int]] = {}
    found = []
    for k, lists in enumerate(paths, start=1):
        P = Path.of(lists)
        for place in P ^ (P & P_fixed):
            trained.setdefault(place, []).append(k)
        P_ts = P_ts | P
        if switched[k - 1]:
            P_fixed = P_ts
        L, M = len(lists), len(lists[0])
        tasks = [[trained.get((l, m), []) for m in range(M)] for l in range(L)]  # noqa: E741
        first = [[own[0] if own else 0 for own in row] for row in tasks]
        texts = [["-".join(map(str, dict.fromkeys((own[0], own[-1])))) if own else "" for own in row] for row in tasks]
        found.append(Frame(k, first, texts, P.to_lists()))
    return found


def frames_of(lines: Sequence[Line]) -> list[Frame]:
    """The path maps of tasks; none for a method without paths."""
    if not lines or any(line.get("path") is None for line in lines):
        return []
    return frames([line["path"] for line in lines], [line.get("switched") for line in lines])


def class_accuracies(run: RunFiles) -> dict[int, tuple[float, float]]:
    """For each class its best accuracy after an earlier task (the present one for the newest) and its present one.

    The class that lost most comes first.
    """
    best: dict[int, float] = {}
    now: dict[int, float] = {}
    for k in range(1, len(run.tasks) + 1):
        read = run.predictions(k)
        if read is None:
            continue
        labels, predicted = read
        best |= {c: max(a, best.get(c, 0.0)) for c, a in now.items()}
        now = {c: metrics.accuracy(labels[labels == c], predicted[labels == c]) for c in np.unique(labels).tolist()}
    return {c: (best.get(c, a), a) for c, a in sorted(now.items(), key=lambda item: item[1] - best.get(*item))}


def exemplars(tensors: Mapping[str, Any], most: int) -> dict[int, list[np.ndarray]]:
    """The first few pictures of each class in a memory, `most` in all; none where items are no pictures."""
    if "items" not in tensors and "blob" not in tensors:
        return {}
    data = stored({name: tensor.numpy() for name, tensor in tensors.items()})
    if len(data.shape) != 3 or not len(data):
        return {}
    classes = np.unique(data.labels).tolist()
    each = max(1, min(8, most // len(classes)))
    chosen = {c: np.flatnonzero(data.labels == c)[:each] for c in classes}
    return {c: [*next(iter(data.batches([index])))[0].numpy()] for c, index in chosen.items()}


def run_exemplars(run: RunFiles, most: int = 400) -> dict[int, list[np.ndarray]]:
    """Of the newest checkpoint that can be read."""
    folder = run.directory / "checkpoints"
    for name in reversed(checkpoint.names(folder)):
        file = folder / name / "memory_train.safetensors"
        try:
            return exemplars(checkpoint.read_tensors(file), most) if file.exists() else {}
        except (Damaged, DataError, OSError, KeyError):
            continue
    return {}
