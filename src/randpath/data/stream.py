"""Task and TaskStream: the class order, the groups, the validation split, and who may see which data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from randpath.data.dataset import Dataset, Index, Source
from randpath.errors import DataError, UsageError
from randpath.keyed import rng

ClassOrder = int | Literal["natural"] | Sequence[str]
Groups = int | Sequence[int] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Task:
    """What a method may see of task k: no test data, on purpose."""

    k: int  # from 1, as in the paper
    num_classes: int  # seen so far, with those of this task
    new: range  # the labels of this task's own classes
    train: Dataset
    val: Dataset


def hold_out(labels: np.ndarray, *key: int | str) -> tuple[Index, Index]:
    """Training and validation indices: of a class with n images, none if n < 5, else max(1, round(n / 10)).

    A class's choice depends on the key, its label and its own images alone: not on what else arrives with it.

    >>> train, val = hold_out(np.repeat([0, 1], [4, 20]), 0)
    >>> len(train), len(val), bool((val >= 4).all())
    (22, 2, True)
    """
    held: list[Index] = [np.empty(0, np.int64)]
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    for label, own in zip(present, np.split(order, first[1:])):
        if len(own) >= 5:
            chosen = rng(*key, "validation", int(label)).permutation(len(own))[: max(1, round(len(own) / 10))]
            held.append(own[chosen])
    val = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), val), val


class TaskStream:
    """A published dataset as a sequence of tasks; every class belongs to exactly one of them.

    `tasks` is a number of equal groups, a list of sizes ([50, 10, 10, ...]) or a list of lists of class names;
    `class_order` is "natural", a seed s for `numpy.random.RandomState(s).permutation(C)` (iCaRL: 1993) or all names.
    """

    def __init__(
        self,
        source: Source,
        tasks: Groups,
        class_order: ClassOrder = "natural",
        *,
        seed: int,
        cumulative: bool = False,
        validation: bool = True,  # false: every image is for training, for methods that choose nothing
    ):
        names = source.class_names
        if not isinstance(tasks, int) and any(not isinstance(group, int | np.integer) for group in tasks):
            if class_order != "natural":
                raise UsageError("tasks that name their classes leave no choice of a class order: give 'natural'")
            class_order = [name for group in tasks for name in group]  # type: ignore[union-attr]
            tasks = [len(group) for group in tasks]  # type: ignore[arg-type]
        self.source = source
        self.seed = seed
        self.cumulative, self.validation = cumulative, validation
        self.class_order: tuple[int, ...] = _order(class_order, names)
        self.class_names: tuple[str, ...] = tuple(names[c] for c in self.class_order)
        self._stops = np.cumsum([0, *_sizes(tasks, len(names))])
        self._train = _by_position(source.train.labels, self.class_order, names, "training")
        self._test = _by_position(source.test.labels, self.class_order, names, "test")
        for position, own in enumerate(self._train):
            if not len(own):
                raise DataError(f"class {self.class_names[position]!r} has no training image", where=source.name)
        for k in range(1, self.num_tasks + 1):
            if not any(len(self._test[c]) for c in self._classes(k)):
                named = ", ".join(self.class_names[c] for c in self._classes(k)[:5])
                raise DataError(f"task {k} ({named}) has no test image", where=source.name)

    @property
    def num_tasks(self) -> int:
        return len(self._stops) - 1

    def task(self, k: int) -> Task:
        """Task k, from 1; in a cumulative stream with the data of all tasks up to k."""
        classes = range(self._classes(k).stop) if self.cumulative else self._classes(k)
        everything = _take(self.source.train, self._train, classes)
        train, val = hold_out(everything.labels, self.seed)
        if not self.validation:
            train, val = np.arange(len(everything.labels)), val[:0]
        return Task(k, classes.stop, self._classes(k), everything.take(train), everything.take(val))

    def test(self, k: int) -> Dataset:
        """The test images of task k's own classes: for `experiment.run` alone."""
        return _take(self.source.test, self._test, self._classes(k))

    def _classes(self, k: int) -> range:
        if not 1 <= k <= self.num_tasks:
            raise UsageError(f"there is no task {k}: they count from 1 to {self.num_tasks}")
        return range(int(self._stops[k - 1]), int(self._stops[k]))


def _order(class_order: ClassOrder, names: Sequence[str]) -> tuple[int, ...]:
    if isinstance(class_order, int | np.integer):
        return tuple(int(c) for c in np.random.RandomState(int(class_order)).permutation(len(names)))
    if class_order == "natural":
        return tuple(range(len(names)))
    if isinstance(class_order, str):
        raise UsageError(f"class_order is 'natural', a whole number or a list of names, not {class_order!r}")
    number = {name: c for c, name in enumerate(names)}
    unknown = [name for name in class_order if name not in number]
    twice = sorted({name for name in class_order if list(class_order).count(name) > 1})
    absent = [name for name in names if name not in set(class_order)]
    for fault, which in (("unknown", unknown), ("named twice", twice), ("left out", absent)):
        if which:
            raise UsageError(f"class order: {fault}: {', '.join(map(str, which[:10]))}")
    return tuple(number[name] for name in class_order)


def _sizes(tasks: Groups, num_classes: int) -> list[int]:
    if isinstance(tasks, int):
        if tasks < 1 or num_classes % tasks:
            raise UsageError(
                f"{num_classes} classes do not make {tasks} equal groups; give another number, or a list of sizes"
            )
        return [num_classes // tasks] * tasks
    sizes = [int(size) for size in tasks]  # type: ignore[arg-type]
    if not sizes or min(sizes) < 1:
        raise UsageError(f"every task needs at least one class: {sizes}")
    if sum(sizes) != num_classes:
        raise UsageError(f"the tasks have {sum(sizes)} classes, the data {num_classes}")
    return sizes


def _by_position(labels: Index, order: Sequence[int], names: Sequence[str], split: str) -> list[Index]:
    """The indices of each class's images, listed in the learned order."""
    wrong = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        first = int(wrong[0])
        raise DataError(f"label {int(labels[first])} of {split} image {first} is not in 0..{len(names) - 1}")
    by_label = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=len(names)))[:-1])
    return [by_label[c] for c in order]


def _take(data: Dataset, by_position: Sequence[Index], classes: range) -> Dataset:
    """The images of `classes`, in the data's own order, labelled by position."""
    indices = np.concatenate([by_position[c] for c in classes])
    labels = np.repeat(np.array(classes, np.int64), [len(by_position[c]) for c in classes])
    back = np.argsort(indices)
    return data.take(indices[back], labels[back])
