"""The Dataset protocol: labelled items that hand out uint8 batches, whether they lie in memory or in files."""

import functools
import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from randpath.data.decode import decode, read
from randpath.errors import DataError as DataError

Index = np.ndarray[tuple[int], np.dtype[np.int64]]
Batch = tuple[Tensor, Tensor]  # x: uint8 (b, h, w, c) or float32 (b, d); y: int64 (b,)


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

    def self_contained(self) -> "Dataset":
        """A self-contained copy: file-backed items become bytes, so the source folder may be deleted."""

    def tensors(self) -> dict[str, np.ndarray]:
        """What a model directory stores of `self_contained()`; `stored` is the way back."""


def _whole(labels: np.ndarray) -> Index:
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"labels must be whole numbers, got {labels.dtype}")
    return labels.astype(np.int64)


class Arrays:
    """Items that fit in memory: one uint8 array, channels last, or one array of feature vectors, float32 or float16."""

    def __init__(self, items: np.ndarray, labels: np.ndarray):
        if len(items) != len(labels):
            raise DataError(f"{len(items)} items but {len(labels)} labels")
        if items.dtype == np.uint8 and items.ndim == 3:
            items = items[..., None]
        vectors = items.ndim == 2 and items.dtype in (np.float32, np.float16)
        if not vectors and not (items.dtype == np.uint8 and items.ndim == 4):
            raise DataError(
                "items must be uint8 images (n, h, w) or (n, h, w, c), or float32 vectors (n, d); "
                f"got {items.dtype} of shape {items.shape}"
            )
        if vectors and not np.isfinite(items).all():
            bad = int(np.flatnonzero(~np.isfinite(items).all(axis=1))[0])
            raise DataError(f"item {bad} holds a value that is not finite")
        self.items = items
        self._labels = _whole(labels)

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
            x = self.items[i]
            x = x.astype(np.float32) if x.dtype == np.float16 else x
            yield torch.from_numpy(x), torch.from_numpy(self._labels[i])

    def take(self, indices: Index, labels: Index | None = None) -> "Arrays":
        return Arrays(self.items[indices], self._labels[indices] if labels is None else labels)

    def self_contained(self) -> "Arrays":
        return self

    def tensors(self) -> dict[str, np.ndarray]:
        return {"items": self.items, "labels": self._labels}


class _Pixels:
    """Decoded pictures that several `Files` share, within one budget for the process: later epochs decode nothing."""

    left: ClassVar[int] = 2**30  # bytes

    def __init__(self, count: int, shape: tuple[int, ...]):
        each = int(np.prod(shape))
        self.bytes = min(count, _Pixels.left // each) * each
        _Pixels.left -= self.bytes
        self.items = np.empty((self.bytes // each, *shape), np.uint8)  # untouched pages cost nothing
        self.ready = np.zeros(count, bool)

    def __del__(self) -> None:
        _Pixels.left += self.bytes


class Files:
    """Pictures that do not fit in memory, as paths or as the bytes of the file; decoded when they are needed.

    Threads decode a few batches ahead: Pillow lets go of the interpreter while it works, and so does torch.
    """

    ahead: ClassVar[int] = 4  # batches

    def __init__(
        self,
        items: Sequence[Path | bytes],
        labels: np.ndarray,
        shape: tuple[int, int, int],
        digests: Sequence[str] | None = None,  # SHA-256 of the files when they were checked: no others are used
    ):
        if len(items) != len(labels):
            raise DataError(f"{len(items)} pictures but {len(labels)} labels")
        self._items, self._digests = items, digests
        self._labels = _whole(labels)
        self._shape = shape
        self._rows: Index = np.arange(len(items))
        self._pixels = _Pixels(len(items), shape)

    @property
    def labels(self) -> Index:
        return self._labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __len__(self) -> int:
        return len(self._rows)

    def item(self, index: int) -> Path | bytes:
        return self._items[int(self._rows[index])]

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:
        waiting: deque[tuple[Index, np.ndarray, list[Future[None]]]] = deque()
        lists = iter(indices)
        try:
            while True:
                while len(waiting) < self.ahead and (i := next(lists, None)) is not None:
                    waiting.append((i, *self._start(self._rows[i])))
                if not waiting:
                    return
                i, x, decoding = waiting.popleft()
                for part in decoding:
                    part.result()
                yield torch.from_numpy(x), torch.from_numpy(self._labels[i])
        finally:
            for _, _, decoding in waiting:
                for part in decoding:
                    part.cancel()

    def _start(self, rows: Index) -> tuple[np.ndarray, list[Future[None]]]:
        x = np.empty((len(rows), *self._shape), np.uint8)
        ready = self._pixels.ready[rows]
        x[ready] = self._pixels.items[rows[ready]]
        todo = np.flatnonzero(~ready)
        return x, [_decoders().submit(self._fill, x, rows, todo[i : i + 8]) for i in range(0, len(todo), 8)]

    def _fill(self, x: np.ndarray, rows: Index, places: Index) -> None:
        for place in places:
            row = rows[place]
            x[place] = self._decoded(row)
            if row < len(self._pixels.items):
                self._pixels.items[row] = x[place]
                self._pixels.ready[row] = True

    def _decoded(self, row: int) -> np.ndarray:
        item = self._items[row]
        return decode(self._data(row), self._shape, name="a stored picture" if isinstance(item, bytes) else str(item))

    def _data(self, row: int) -> bytes:
        """The bytes of a file; if they are not those that were checked, nothing may be made of them."""
        item = self._items[row]
        if isinstance(item, bytes):
            return item
        data = read(item)
        if self._digests is not None and hashlib.sha256(data).hexdigest() != self._digests[row]:
            raise DataError(f"{item} has changed since it was checked", where=str(item), next="type the same again")
        return data

    def take(self, indices: Index, labels: Index | None = None) -> "Files":
        part = Files.__new__(Files)
        part._items, part._digests, part._shape, part._pixels = self._items, self._digests, self._shape, self._pixels
        part._rows = self._rows[indices]
        part._labels = _whole(self._labels[indices] if labels is None else labels)
        return part

    def self_contained(self) -> "Files":
        """With the bytes of every file, or a lossless PNG of what it decodes to if that is shorter: the same pixels."""
        return Files([self._bytes(int(row)) for row in self._rows], self._labels, self._shape)

    def _bytes(self, row: int) -> bytes:
        data = self._data(row)
        if isinstance(self._items[row], bytes) or len(data) <= np.prod(self._shape) // 2:  # a PNG is hardly shorter
            return data
        return min(data, _png(self._decoded(row)), key=len)

    def remember(self, pixels: Iterable[np.ndarray | None]) -> None:
        """Take over what is decoded already, in the order of the items."""
        for row, decoded in zip(range(len(self._pixels.items)), pixels):
            if decoded is not None:
                self._pixels.items[row], self._pixels.ready[row] = decoded, True

    def tensors(self) -> dict[str, np.ndarray]:
        items = [item for item in map(self.self_contained().item, range(len(self))) if isinstance(item, bytes)]
        return {
            "blob": np.frombuffer(bytearray().join(items), np.uint8),  # of a bytearray: torch wants it writable
            "lengths": np.array([len(item) for item in items], np.int64),
            "labels": self._labels,
            "shape": np.array(self._shape, np.int64),
        }

    def __getstate__(self) -> dict[str, Any]:
        """For another process: this part's own files, none of the decoded pixels."""
        return {**self._own(), "shape": self._shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _own(self) -> dict[str, Any]:
        digests = None if self._digests is None else [self._digests[int(row)] for row in self._rows]
        return {"items": [self._items[int(row)] for row in self._rows], "labels": self._labels, "digests": digests}


@functools.cache
def _decoders() -> ThreadPoolExecutor:
    """One pool for the process: a memory has a `Files` for every class, and each would bring threads of its own."""
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="decode")


def _png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "png")
    return file.getvalue()


class Joined:
    """Several datasets of one shape as one: the memory and the new task's images. One after another, if not told."""

    def __init__(self, parts: list[Dataset], order: Index | None = None):
        self.parts = [part for part in parts if len(part)] or parts[:1]
        if len({part.shape for part in self.parts}) != 1:
            raise DataError(f"items of different shapes: {sorted({part.shape for part in self.parts})}")
        self.starts = np.cumsum([0] + [len(part) for part in self.parts])
        self.order = np.arange(self.starts[-1]) if order is None else order
        self._labels: Index = np.concatenate([part.labels for part in self.parts])[self.order]

    @property
    def labels(self) -> Index:
        return self._labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    def __len__(self) -> int:
        return len(self.order)

    def _places(self, indices: Index) -> tuple[Index, Index]:
        """Where items are: in which part, and at which place in it."""
        own = self.order[indices]
        part = np.searchsorted(self.starts, own, side="right") - 1
        return part, own - self.starts[part]

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:
        # Each part is asked for its own share of the batches that it has a share of: file-backed parts prefetch.
        plan: list[tuple[Index, Index, Index]] = []  # of a batch: its indices, sorted by part; the parts
        asked: dict[int, list[Index]] = {}
        for i in map(np.asarray, indices):
            place, within = self._places(i)
            order = np.argsort(place, kind="stable")
            parts, first = np.unique(place[order], return_index=True)
            plan.append((i, order, parts))
            for p, own in zip(parts.tolist(), np.split(within[order], first[1:])):
                asked.setdefault(p, []).append(own)
        shares = {p: self.parts[p].batches(own) for p, own in asked.items()}
        for i, order, parts in plan:
            if len(i):
                x = torch.cat([next(shares[p])[0] for p in parts.tolist()])
                yield x[torch.from_numpy(np.argsort(order))], torch.from_numpy(self._labels[i])
            else:
                yield from self.parts[0].batches([i])

    def take(self, indices: Index, labels: Index | None = None) -> "Joined":
        chosen = self._labels[indices] if labels is None else labels
        place, within = self._places(indices)
        return Joined(
            [part.take(within[place == p], chosen[place == p]) for p, part in enumerate(self.parts)],
            np.argsort(np.argsort(place, kind="stable")),
        )

    def self_contained(self) -> Dataset:
        """One dataset; if only some parts are arrays, these become PNG files too."""
        whole = self._one_after_another()
        return whole if np.array_equal(self.order, np.arange(len(whole))) else whole.take(self.order)

    def _one_after_another(self) -> Dataset:
        parts = [part.self_contained() for part in self.parts]
        labels = np.concatenate([part.labels for part in parts])
        if all(isinstance(part, Arrays) for part in parts):
            return Arrays(np.concatenate([part.tensors()["items"] for part in parts]), labels)
        items: list[Path | bytes] = []
        for part in parts:
            if isinstance(part, Arrays):
                items += [_png(pixels) for pixels in part.items]
            elif isinstance(part, Files):
                items += [part.item(i) for i in range(len(part))]
        h, w, c = self.shape
        return Files(items, labels, (h, w, c))

    def tensors(self) -> dict[str, np.ndarray]:
        return self.self_contained().tensors()


def stored(tensors: Mapping[str, np.ndarray]) -> Dataset:
    """The dataset that `tensors()` described."""
    if "items" in tensors:
        return Arrays(tensors["items"], tensors["labels"])
    lengths, blob = tensors["lengths"], tensors["blob"]
    ends = np.cumsum(lengths)
    shape = tuple(int(n) for n in tensors["shape"])
    if len(shape) != 3 or min(shape) < 1 or np.any(lengths < 0) or (int(ends[-1]) if len(ends) else 0) != len(blob):
        raise DataError("the stored pictures do not fit together: this part of the model is damaged")
    items = [blob[end - length : end].tobytes() for end, length in zip(ends, lengths)]
    return Files(items, tensors["labels"], shape)


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
    files: Mapping[str, str] = field(default_factory=dict)  # behind it: name -> SHA-256, to name what has changed
    skipped: tuple[str, ...] = ()  # what --skip-bad left out, one line each


def file_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What happened to the files of a Source between two moments, one line a file.

    >>> file_changes({"a.png": "1", "b.png": "2"}, {"b.png": "3", "c.png": "1"})
    ['renamed: a.png is now c.png', 'edited: b.png']
    """
    new = {digest: name for name, digest in after.items() if name not in before}
    lines = []
    for name, digest in before.items():
        if name in after:
            lines += [f"edited: {name}"] * (after[name] != digest)
        elif digest in new:
            lines.append(f"renamed: {name} is now {new.pop(digest)}")
        else:
            lines.append(f"removed: {name}")
    return lines + [f"added: {name}" for name in sorted(new.values())]
