"""The replay memory: raw images within a fixed budget, shared equally by all classes seen (section 4.1).

A budget in bytes, ours, holds several times as many pictures, as lossy files. One of so many exemplars per class, as
other papers have it, grows with the classes.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from randpath.data.dataset import Dataset, Index, Joined, stored
from randpath.data.lossy import any_lossy, compressed, item_sizes
from randpath.errors import UsageError
from randpath.keyed import rng


@dataclass(frozen=True)
class Size:
    """A budget in bytes: pictures are stored as WebP files of this quality, and only their bytes are counted."""

    bytes: int
    quality: int = 90


@dataclass(frozen=True)
class PerClass:
    """A budget that grows with the classes: so many exemplars of each."""

    count: int


Budget = int | Size | PerClass
SMALLEST = 64  # bytes: no picture file is shorter


def parse_per_class(text: str) -> int | None:
    """Exemplars of each class; none if it is no such number.

    >>> parse_per_class("20 per class"), parse_per_class("20 of class")
    (20, None)
    """
    found = re.fullmatch(r"(\d{1,9}) per class", text)
    return None if found is None else int(found[1])


def pictures(budget: Budget, shape: tuple[int, ...], num_classes: int) -> int:
    """How many raw pictures a budget holds, of so many classes.

    >>> [pictures(budget, (32, 32, 3), 10) for budget in (2000, Size(6_144_000), PerClass(20))]
    [2000, 2000, 200]
    """
    if isinstance(budget, Size):
        return budget.bytes // math.prod(shape)
    return budget.count * num_classes if isinstance(budget, PerClass) else budget


def quotas(available: Sequence[int], budget: int) -> list[int]:
    """Equal shares of `budget`; a class smaller than its share gives what it has, and the rest is shared out.

    >>> quotas([5, 1, 5], 9), quotas([9, 9], 5)
    ([4, 1, 4], [3, 2])
    """
    level = 0  # the highest one at which every class can have min(level, what it has)
    while level < max(available, default=0) and sum(min(n, level + 1) for n in available) <= budget:
        level += 1
    shares = [min(n, level) for n in available]
    left = budget - sum(shares)
    for c in [c for c, n in enumerate(available) if n > level][:left]:  # the first classes take the rest, one each
        shares[c] += 1
    return shares


def quotas_in_bytes(sizes: Sequence[Sequence[int]], budget: int) -> list[int]:
    """How many of its first pictures each class keeps: as equal in number as can be, within `budget` bytes.

    >>> quotas_in_bytes([[10, 10, 10], [5], [20, 30]], 70), quotas_in_bytes([[9], [9]], 10)
    ([2, 1, 1], [1, 0])
    """
    used = [np.cumsum([0, *own]) for own in sizes]
    level = 0
    while level < max(map(len, sizes), default=0):
        if sum(int(own[min(level + 1, len(own) - 1)]) for own in used) > budget:
            break
        level += 1
    shares = [min(len(own), level) for own in sizes]
    left = budget - sum(int(own[n]) for own, n in zip(used, shares))
    for c, own in enumerate(sizes):  # the first classes take the rest, one each
        if len(own) > level and own[level] <= left:
            left -= own[level]
            shares[c] += 1
    return shares


def herding(features: np.ndarray) -> Index:
    """The order in which images bring the mean of the chosen nearest to the mean of all (iCaRL's choice).

    >>> herding(np.array([[0.0], [1.0], [4.0], [2.0]])).tolist()
    [3, 1, 2, 0]
    """
    mean, total = features.mean(axis=0, dtype=np.float64), np.zeros(features.shape[1])
    cost = np.square(features).sum(axis=1)  # |f|^2; infinite for an image that is chosen
    order = np.empty(len(features), np.int64)
    for i in range(len(features)):
        # |mean - (total + f) / n|^2, n = i + 1, is smallest where |f|^2 - 2 f (n mean - total) is: one product a step.
        aim = ((i + 1) * mean - total).astype(features.dtype)
        order[i] = best = np.argmin(cost - 2 * (features @ aim))
        cost[best] = np.inf
        total += features[best]
    return order


class Memory:
    """A training and a validation part; an image never moves between them.

    The images of a class stay in the order in which they were chosen, so that a shrinking share drops the last ones.
    """

    def __init__(self, budget: Budget):
        if _number(budget) < 0:
            raise UsageError(f"the memory's budget must be 0 or more, got {budget}")
        self.budget = budget
        self.train: dict[int, Dataset] = {}  # class -> its images
        self.val: dict[int, Dataset] = {}

    def __len__(self) -> int:
        return sum(len(d) for d in (*self.train.values(), *self.val.values()))

    def require_room(self, num_classes: int) -> None:
        """Refuse, before any training, a budget that cannot hold one image a class; 0 means no replay."""
        if isinstance(self.budget, Size):
            if self.budget.bytes < SMALLEST * num_classes:
                self._refuse_size(num_classes)
        elif isinstance(self.budget, int) and 0 < self.budget < num_classes:
            raise UsageError(
                f"a memory of {self.budget} images cannot hold one of each of {num_classes} classes: "
                f"give a budget of at least {num_classes}, or 0 for no replay"
            )

    def _refuse_size(self, num_classes: int) -> None:
        raise UsageError(
            f"a memory of {self.budget.bytes if isinstance(self.budget, Size) else self.budget:,} bytes cannot hold "
            f"one picture of each of {num_classes} classes: give a larger one, or 0 for no replay"
        )

    def update(
        self,
        train: Dataset,
        val: Dataset,
        key: tuple[int | str, ...],
        features: Callable[[Dataset], np.ndarray] | None = None,
    ) -> None:
        """Take in the classes of a task and shrink the shares of the old ones; `features` asks for herding."""
        self.train, self.val = dict(self.train), dict(self.val)  # a copy of this memory keeps its own
        for part, data in ((self.train, train), (self.val, val)):
            for c in np.unique(data.labels).tolist():
                own = np.flatnonzero(data.labels == c)
                if features is not None and part is self.train:
                    order = herding(features(data.take(own)))
                else:
                    order = rng(*key, "memory", c).permutation(len(own))
                # Never more than the budget of one class, so that a large task is not copied whole.
                if isinstance(self.budget, Size):
                    new = compressed(data.take(own[order]), self.budget.quality, self.budget.bytes)
                else:
                    new = data.take(own[order][: _number(self.budget)])
                old = part.get(c)
                # In turn: a share that is full takes in something new, and keeps something old.
                part[c] = new if old is None else Joined([old, new], in_turn([len(old), len(new)]))
            if isinstance(self.budget, Size):  # raw exemplars of a budget that was a number
                part |= {c: compressed(own, self.budget.quality) for c, own in part.items()}
        classes = sorted({*self.train, *self.val})
        train_quota, val_quota = self._shares(classes)
        self.train = self._shrunk(self.train, classes, train_quota)
        self.val = self._shrunk(self.val, classes, val_quota)

    def _shares(self, classes: list[int]) -> tuple[list[int], list[int]]:
        """How many training and validation images each class keeps; a tenth of the budget is for validation."""
        if isinstance(self.budget, Size):
            sizes = {c: item_sizes(part) for c, part in self.val.items()}
            val_quota = quotas_in_bytes([sizes.get(c, []) for c in classes], self.budget.bytes // 10)
            used = sum(sum(sizes[c][:n]) for c, n in zip(classes, val_quota) if n)
            sizes = {c: item_sizes(part) for c, part in self.train.items()}
            train_quota = quotas_in_bytes([sizes.get(c, []) for c in classes], self.budget.bytes - used)
            if self.budget.bytes and not all(n for c, n in zip(classes, train_quota) if c in self.train):
                self._refuse_size(len(classes))
            return train_quota, val_quota
        if isinstance(self.budget, PerClass):
            for_val = max(0, min(round(self.budget.count / 10), self.budget.count - 1))
            val_quota = [min(len(self.val.get(c, ())), for_val) for c in classes]
            left = [self.budget.count - n for n in val_quota]
            return [min(len(self.train.get(c, ())), n) for c, n in zip(classes, left)], val_quota
        if self.budget:
            self.require_room(len(classes))
        # As long as every class keeps a training image.
        for_val = max(0, min(round(self.budget / 10), self.budget - len(classes)))
        val_quota = quotas([len(self.val.get(c, ())) for c in classes], for_val)
        train_quota = quotas([len(self.train.get(c, ())) for c in classes], self.budget - sum(val_quota))
        return train_quota, val_quota

    @staticmethod
    def _shrunk(part: dict[int, Dataset], classes: list[int], shares: list[int]) -> dict[int, Dataset]:
        return {c: part[c].take(np.arange(n)).self_contained() for c, n in zip(classes, shares) if n}

    def beside(self, images: Dataset) -> Dataset:
        """The exemplars to train on, and a task's images beside them."""
        return self.alike(Joined([*self.train.values(), images]))

    def alike(self, images: Dataset) -> Dataset:
        """Images as the memory shows them: all of them lossy, if exemplars are.

        Were those alone lossy, a network would tell old classes by the traces of compression, and take test pictures,
        which have none, for new ones. After a budget that was a size, a number finds lossy exemplars, too.
        """
        if isinstance(self.budget, Size) and self.budget.bytes:
            return compressed(images, self.budget.quality)
        return compressed(images, Size.quality) if any(map(any_lossy, self.train.values())) else images

    def exemplars(self) -> list[Dataset]:
        """All images, class by class: what mu_sat is measured on."""
        return [*self.train.values(), *self.val.values()]

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """For storage: the two parts, each class by class."""
        return {
            name: {key: torch.from_numpy(array) for key, array in Joined(list(part.values())).tensors().items()}
            for name, part in (("memory_train", self.train), ("memory_val", self.val))
            if part
        }

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.train, self.val = (
            _by_class(stored({key: t.numpy() for key, t in tensors[name].items()})) if name in tensors else {}
            for name in ("memory_train", "memory_val")
        )


def some_of_each(part: Mapping[int, Dataset], most: int) -> Dataset:
    """The first ones of each class, as many of each, `most` in all."""
    shares = quotas([len(data) for data in part.values()], most)
    return Joined([data.take(np.arange(share)) for data, share in zip(part.values(), shares)])


def in_turn(sizes: Sequence[int]) -> Index:
    """Of a row of so many after so many: the first of each, the second of each, and so on.

    >>> in_turn([4, 2]).tolist()
    [0, 4, 1, 5, 2, 3]
    """
    return np.argsort(np.concatenate([np.arange(n) for n in sizes]), kind="stable")


def _number(budget: Budget) -> int:
    if isinstance(budget, Size):
        return budget.bytes
    return budget.count if isinstance(budget, PerClass) else budget


def _by_class(data: Dataset) -> dict[int, Dataset]:
    return {c: data.take(np.flatnonzero(data.labels == c)) for c in np.unique(data.labels).tolist()}
