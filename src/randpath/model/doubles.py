"""No picture twice: what came before is known by its fingerprint, also when the memory has dropped it long ago."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from randpath.data.dataset import Dataset, Index, Joined
from randpath.data.lossy import any_lossy, compressed
from randpath.errors import Damaged, DataError
from randpath.learning.memory import Memory, Size
from randpath.model.stored import Label
from randpath.names import shown

LENGTH = 16  # bytes of a SHA-256: enough that no two pictures share them


@dataclass(frozen=True)
class Fingerprints:
    """Of all pictures that a model was trained on or has held out, with the class that each had last."""

    train: dict[bytes, int]
    val: dict[bytes, int]

    def __or__(self, other: "Fingerprints") -> "Fingerprints":
        return Fingerprints(self.train | other.train, self.val | other.val)

    def relabelled(self, labels: Sequence[int]) -> "Fingerprints":
        """After classes were merged (their new labels are equal) or forgotten (-1).

        >>> Fingerprints({b"a": 0, b"b": 1}, {b"c": 2}).relabelled([-1, 0, 0])
        Fingerprints(train={b'b': 0}, val={b'c': 0})
        """
        return Fingerprints(
            *({d: labels[c] for d, c in part.items() if labels[c] >= 0} for part in (self.train, self.val))
        )

    def tensors(self) -> dict[str, Tensor]:
        """For storage; `fingerprints_from` reads them."""
        found = {}
        for name, part in (("train", self.train), ("val", self.val)):
            rows = np.frombuffer(b"".join(part), np.uint8).reshape(-1, LENGTH)
            found[name] = torch.from_numpy(rows.copy())
            found[f"{name}_labels"] = torch.tensor(list(part.values()), dtype=torch.int32)
        return found


def fingerprints_from(tensors: Mapping[str, Tensor], num_classes: int) -> Fingerprints:
    """What `Fingerprints.tensors` has stored, if it could have."""
    parts = []
    for name in ("train", "val"):
        rows, labels = (torch.as_tensor(tensors[key]) for key in (name, f"{name}_labels"))
        if rows.dtype != torch.uint8 or labels.dtype != torch.int32 or labels.ndim != 1:
            raise Damaged("the fingerprints of its pictures are none")
        if rows.shape != (len(labels), LENGTH):
            raise Damaged("the fingerprints of its pictures are none")
        if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < num_classes):
            raise Damaged("the fingerprints of its pictures are of classes that it does not have")
        parts.append({bytes(row): c for row, c in zip(rows.numpy(), labels.tolist())})
    return Fingerprints(*parts)


@dataclass(frozen=True)
class Parts:
    """The pictures of a call, each in the part to which it belongs."""

    train: Dataset
    val: Dataset
    fresh: Index  # which of `train` the model has never been trained on under their label
    fingerprints: Fingerprints  # of these, and of all before them


def without_doubles(memory: Memory, known: Fingerprints, train: Dataset, val: Dataset) -> Parts:
    """No picture twice, and none both trained on and validated on: where it came first, there it stays.

    Exemplars that come again are dropped from the memory: they get back in after the task. Where the memory holds lossy
    files, a picture is also known by what it looks like in such a file.
    """
    lossy = any(map(any_lossy, memory.exemplars()))
    exact = [*_digests(train), *_digests(val)]
    looks = [*_digests(_as_kept(train)), *_digests(_as_kept(val))] if lossy else exact
    kept = [{c: _digests(own) for c, own in part.items()} for part in (memory.train, memory.val)]
    seen = known | Fingerprints(*({d: c for c, own in part.items() for d in own} for part in kept))
    trained = np.array([not seen.train.keys().isdisjoint(own) for own in zip(exact, looks)], bool)
    held_out = np.array([not seen.val.keys().isdisjoint(own) for own in zip(exact, looks)], bool)
    drawn = np.arange(len(exact)) >= len(train)
    of_drawn = {d for d, yes in zip(exact, drawn) if yes}
    to_val = ~trained & (held_out | drawn)
    to_train = trained | ~(to_val | np.array([d in of_drawn for d in exact], bool))
    memory.train, memory.val = (
        _others(part, digests, {d for pair, yes in zip(zip(exact, looks), chosen) if yes for d in pair})
        for part, digests, chosen in ((memory.train, kept[0], to_train), (memory.val, kept[1], to_val))
    )
    labels = np.concatenate([train.labels, val.labels]).tolist()
    chosen_train, chosen_val = np.flatnonzero(to_train), np.flatnonzero(to_val)
    own = Fingerprints(*({exact[i]: labels[i] for i in part.tolist()} for part in (chosen_train, chosen_val)))
    return Parts(
        _taken(train, val, chosen_train),
        _taken(train, val, chosen_val),
        np.flatnonzero([seen.train.get(exact[i]) != labels[i] for i in chosen_train.tolist()]),
        (known if lossy else seen) | own,
    )


def refuse_nothing_to_train_on(train: Dataset, names: Sequence[Label], num_old: int) -> None:
    """A picture that is held out stays so: where all that came is, there is nothing to learn."""
    lacking = sorted({*range(num_old, len(names))} - {*train.labels.tolist()})
    if lacking or not len(train):
        of = f" of {shown(str(names[lacking[0]]))}" if lacking else ""
        raise DataError(f"every picture{of} is held out already, to test the model: none is left to train on")


def _digests(data: Dataset) -> list[bytes]:
    """The fingerprint of every item, in order."""
    chunks = np.array_split(np.arange(len(data)), max(1, len(data) // 512))
    return [hashlib.sha256(item.numpy().tobytes()).digest()[:LENGTH] for x, _ in data.batches(chunks) for item in x]


def _as_kept(data: Dataset) -> Dataset:
    """Pictures as a memory that is counted in bytes keeps them."""
    return compressed(data, Size.quality, sys.maxsize)


def _taken(train: Dataset, val: Dataset, chosen: Index) -> Dataset:
    """Some of both parts, by their place in the one and then the other."""
    parts = [train.take(chosen[chosen < len(train)]), val.take(chosen[chosen >= len(train)] - len(train))]
    there = [part for part in parts if len(part)]
    return Joined(there) if len(there) > 1 else (there or parts)[0]


def _others(
    part: Mapping[int, Dataset], digests: Mapping[int, Sequence[bytes]], again: set[bytes]
) -> dict[int, Dataset]:
    """A part of the memory without the pictures that come again."""
    left = {c: np.flatnonzero([d not in again for d in digests[c]]) for c in part}
    return {c: part[c].take(own) for c, own in left.items() if len(own)}
