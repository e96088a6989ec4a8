"""The Dataset protocol: labelled items that hand out uint8 batches, whether they lie in memory or in files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

Index = np.ndarray[tuple[int], np.dtype[np.int64]]
Batch = tuple[Tensor, Tensor]  # x: uint8 (b, h, w, c) or float32 (b, d); y: int64 (b,)


class DataError(ValueError):
    """Bad or missing data: what is wrong, where it lies and what to do next; the CLI's exit code 65."""

    def __init__(self, what: str, *, where: str = "", next: str = ""):
        super().__init__(what + (f"; next: {next}" if next else ""))
        self.what, self.where, self.next = what, where, next


class Dataset(Protocol):
    """Labelled pictures (or feature vectors). `train.fit` makes the index lists, the data decides how to fetch them."""

    @property
    def labels(self) -> Index: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item: (h, w, c), or (d,) for feature vectors."""

    def __len__(self) -> int: ...

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]: ...

    def take(self, indices: Index, labels: Index | None = None) -> "Dataset":
        """The items at `indices`, under new labels if these are given."""

    def kept(self) -> "Dataset":
        """The same items, owing nothing to the place they came from: what a memory stores."""

    def tensors(self) -> dict[str, np.ndarray]:
        """What a model directory stores of `kept()`; `stored` is the way back."""


class Arrays:
    """Items that fit in memory: one uint8 array, channels last, or one float32 array of feature vectors."""

    def __init__(self, items: np.ndarray, labels: np.ndarray):
        if len(items) != len(labels):
            raise ValueError(f"{len(items)} items but {len(labels)} labels")
        if items.dtype == np.uint8 and items.ndim == 3:
            items = items[..., None]
        if not (items.dtype == np.uint8 and items.ndim == 4) and not (items.dtype == np.float32 and items.ndim == 2):
            raise ValueError(
                "items must be uint8 images (n, h, w) or (n, h, w, c), or float32 vectors (n, d); "
                f"got {items.dtype} of shape {items.shape}"
            )
        if items.dtype == np.float32 and not np.isfinite(items).all():
            bad = int(np.flatnonzero(~np.isfinite(items).all(axis=1))[0])
            raise ValueError(f"item {bad} holds a value that is not finite")
        if not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"labels must be whole numbers, got {labels.dtype}")
        self.items = items
        self._labels: Index = labels.astype(np.int64)

    @property
    def labels(self) -> Index:
        return self._labels

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.items.shape[1:])

    def __len__(self) -> int:
        return len(self.items)

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:
        for i in indices:
            yield torch.from_numpy(self.items[i]), torch.from_numpy(self._labels[i])

    def take(self, indices: Index, labels: Index | None = None) -> "Arrays":
        return Arrays(self.items[indices], self._labels[indices] if labels is None else labels)

    def kept(self) -> "Arrays":
        return self

    def tensors(self) -> dict[str, np.ndarray]:
        return {"items": self.items, "labels": self._labels}


class Joined:
    """Several datasets of one shape as one, in order: the memory and the new task's images."""

    def __init__(self, parts: list[Dataset]):
        self.parts = [part for part in parts if len(part)] or parts[:1]
        if len({part.shape for part in self.parts}) != 1:
            raise ValueError(f"items of different shapes: {sorted({part.shape for part in self.parts})}")
        self.starts = np.cumsum([0] + [len(part) for part in self.parts])
        self._labels: Index = np.concatenate([part.labels for part in self.parts])

    @property
    def labels(self) -> Index:
        return self._labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    def __len__(self) -> int:
        return int(self.starts[-1])

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:
        lists = [np.asarray(i) for i in indices]
        # Each part is asked for its own share of every batch, so that file-backed parts prefetch.
        places = [np.searchsorted(self.starts, i, side="right") - 1 for i in lists]
        shares = [
            part.batches([i[place == p] - self.starts[p] for i, place in zip(lists, places)])
            for p, part in enumerate(self.parts)
        ]
        for i, place in zip(lists, places):
            order = np.concatenate([np.flatnonzero(place == p) for p in range(len(self.parts))])
            x = torch.cat([next(share)[0] for share in shares])
            yield x[torch.from_numpy(np.argsort(order))], torch.from_numpy(self._labels[i])

    def take(self, indices: Index, labels: Index | None = None) -> "Joined":
        chosen = self._labels[indices] if labels is None else labels
        place = np.searchsorted(self.starts, indices, side="right") - 1
        if np.any(np.diff(place) < 0):
            raise ValueError("take from joined data needs indices in the order of its parts")
        return Joined(
            [part.take(indices[place == p] - self.starts[p], chosen[place == p]) for p, part in enumerate(self.parts)]
        )

    def kept(self) -> Dataset:
        return Joined([part.kept() for part in self.parts])

    def tensors(self) -> dict[str, np.ndarray]:
        parts = [part.tensors() for part in self.parts]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def stored(tensors: dict[str, np.ndarray]) -> Dataset:
    """The dataset that `tensors()` described."""
    return Arrays(tensors["items"], tensors["labels"])


@dataclass(frozen=True)
class Source:
    """What a file of `randpath.data` returns: a published dataset, ready to be cut into tasks."""

    name: str
    train: Dataset
    test: Dataset
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, in 0..1
    std: tuple[float, ...]
    mirror: bool  # whether a mirrored picture is still a picture of its class (not so for digits)
    fingerprint: str  # SHA-256 over the training and test contents
