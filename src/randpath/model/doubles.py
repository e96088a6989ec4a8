"""No picture twice: what came before is known by its SHA-256."""

import hashlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from randpath.data.dataset import Dataset
from randpath.data.lossy import any_lossy, compressed
from randpath.errors import DataError
from randpath.learning.memory import Memory, Size
from randpath.model.stored import Label
from randpath.names import shown


def without_doubles(memory: Memory, train: Dataset, val: Dataset) -> tuple[Dataset, Dataset]:
    """No picture twice, and none both trained on and validated on: where it came first, there it stays.

    Exemplars that come again to train on are dropped from the memory: they get back in after the task. Where the memory
    holds lossy files, a picture is also known by what it looks like in such a file.
    """
    lossy = any(map(any_lossy, memory.exemplars()))
    new_train, new_val = _digests(train), _digests(val)
    lossy_train, lossy_val = (_digests(_as_kept(part)) if lossy else [b""] * len(part) for part in (train, val))
    old_train = {c: _digests(part) for c, part in memory.train.items()}
    old_val = {c: _digests(part) for c, part in memory.val.items()}
    in_old_train, in_old_val = (set().union(*part.values()) for part in (old_train, old_val))
    both = set(new_train) & set(new_val)
    again_train, again_val = {*new_train, *lossy_train}, {*new_val, *lossy_val}
    memory.train = _chosen(memory.train, {c: [d not in again_train for d in ds] for c, ds in old_train.items()})
    memory.val = _chosen(memory.val, {c: [d not in again_val for d in ds] for c, ds in old_val.items()})
    train = train.take(
        np.flatnonzero([not {d, e} & in_old_val and d not in both for d, e in zip(new_train, lossy_train)])
    )
    return train, val.take(np.flatnonzero([not {d, e} & in_old_train for d, e in zip(new_val, lossy_val)]))


def refuse_nothing_to_train_on(train: Dataset, names: Sequence[Label], num_old: int) -> None:
    """A picture that is held out stays so: where all that came is, there is nothing to learn."""
    lacking = sorted({*range(num_old, len(names))} - {*train.labels.tolist()})
    if lacking or not len(train):
        of = f" of {shown(str(names[lacking[0]]))}" if lacking else ""
        raise DataError(f"every picture{of} is held out already, to test the model: none is left to train on")


def _digests(data: Dataset) -> list[bytes]:
    """The SHA-256 of every item, in order."""
    chunks = np.array_split(np.arange(len(data)), max(1, len(data) // 512))
    return [hashlib.sha256(item.numpy().tobytes()).digest() for x, _ in data.batches(chunks) for item in x]


def _as_kept(data: Dataset) -> Dataset:
    """Pictures as a memory that is counted in bytes keeps them."""
    return compressed(data, Size.quality, sys.maxsize)


def _chosen(part: Mapping[int, Dataset], keep: Mapping[int, Sequence[bool]]) -> dict[int, Dataset]:
    return {c: data.take(np.flatnonzero(keep[c])) for c, data in part.items() if any(keep[c])}
