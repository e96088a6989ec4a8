"""A picture that comes again is known, also when the memory has dropped it, and stays where it came first."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from randpath import PathClassifier
from randpath.data.dataset import Arrays, Files
from randpath.data.decode import read
from randpath.errors import Damaged, UsageError
from randpath.learning.memory import Memory, Size
from randpath.model import editing
from randpath.model.doubles import LENGTH, Fingerprints, fingerprints_from, without_doubles
from randpath.model.model import Model

NOTHING = Fingerprints({}, {})


def images(*numbers: int, label: int = 0) -> Arrays:
    """Small pictures, each of its number; equal numbers are equal pictures."""
    x = np.array([[[[n % 256, n // 256, 7]]] for n in numbers], np.uint8).reshape(-1, 1, 1, 3)
    return Arrays(x, np.full(len(numbers), label))


def numbers(data: Arrays) -> list[int]:
    found = [x.numpy() for x, _ in data.batches([np.arange(len(data))])] if len(data) else []
    return [int(item.ravel()[0]) + 256 * int(item.ravel()[1]) for x in found for item in x]


def digest(item: np.ndarray) -> bytes:
    return hashlib.sha256(item.tobytes()).digest()[:LENGTH]


def fingerprint(n: int) -> bytes:
    return digest(images(n).items)


def noise(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8)


def images_8(count: int) -> Arrays:
    return Arrays(noise(count, 0), np.zeros(count, int))


def quick(**more: object) -> PathClassifier:
    return PathClassifier(**{"epochs": 1, "threads": 1, "width": 8, "modules": 2, **more})


def kept(model: PathClassifier, part: str) -> set[bytes]:
    found = getattr(model._model.method.memory, part).values()
    return {x.numpy().tobytes() for data in found for batch, _ in data.batches([np.arange(len(data))]) for x in batch}


def test_the_part_in_which_a_picture_came_first_is_the_one_it_stays_in():
    known = Fingerprints({fingerprint(1): 0, fingerprint(2): 0}, {fingerprint(3): 0})
    found = without_doubles(Memory(10), known, images(1, 3, 4), images(2, 5))
    assert (sorted(numbers(found.train)), sorted(numbers(found.val))) == ([1, 2, 4], [3, 5])
    assert numbers(found.train.take(found.fresh)) == [4]
    assert {*found.fingerprints.train} == {fingerprint(n) for n in (1, 2, 4)}
    assert {*found.fingerprints.val} == {fingerprint(n) for n in (3, 5)}


def test_of_two_copies_in_one_call_the_held_out_one_stays():
    found = without_doubles(Memory(10), NOTHING, images(1, 2), images(2))
    assert (numbers(found.train), numbers(found.val), found.fresh.tolist()) == ([1], [2], [0])


def test_exemplars_that_come_again_leave_the_memory_and_the_others_stay():
    memory = Memory(20)
    memory.update(images(1, 2, 3), images(4, 5), ("key",))
    found = without_doubles(memory, NOTHING, images(2, 5, 6), images())
    assert sorted(numbers(memory.train[0])) == [1, 3] and numbers(memory.val[0]) == [4]
    assert (numbers(found.train), numbers(found.val), found.fresh.tolist()) == ([2, 6], [5], [1])


def test_under_another_label_a_picture_is_new_there_and_stays_where_it_was():
    known = Fingerprints({fingerprint(1): 0}, {fingerprint(2): 0})
    found = without_doubles(Memory(10), known, images(1, 2, 3, label=1), images(label=1))
    assert (numbers(found.train), numbers(found.val), found.fresh.tolist()) == ([1, 3], [2], [0, 1])
    assert {*found.fingerprints.train.values()} == {*found.fingerprints.val.values()} == {1}


def test_a_memory_of_lossy_files_is_known_by_its_looks_which_are_not_kept():
    X = noise(40, 9)
    memory = Memory(Size(10**6))
    memory.update(Arrays(X[:30], np.zeros(30, int)), Arrays(X[30:], np.zeros(10, int)), ("key",))
    found = without_doubles(memory, NOTHING, Arrays(X[25:], np.ones(15, int)), Arrays(X[:0], np.zeros(0, int)))
    assert (len(found.train), len(found.val)) == (5, 10)  # as they were sorted before
    assert (len(memory.train[0]), memory.val) == (25, {})
    assert {**found.fingerprints.train, **found.fingerprints.val} == dict.fromkeys(map(digest, X[25:]), 1)


def test_a_model_remembers_what_its_memory_has_dropped(tmp_path: Path):
    """Twenty of 60 pictures are left; the 60 come again, in another order, after a save and a load."""
    X, y = noise(60, 0), np.arange(60) % 2
    model = quick(budget=20).fit(X, y)
    first = model._model.fingerprints
    assert len(first.train) + len(first.val) == 60 and len(first.val) >= 4
    model.save(tmp_path / "m")
    again = PathClassifier.load(tmp_path / "m")
    assert again._model.fingerprints == first
    order = np.random.default_rng(3).permutation(60)
    again.partial_fit(X[order], y[order])
    assert again._model.fingerprints == first
    digests = {digest(np.frombuffer(item, np.uint8)) for item in kept(again, "val")}
    assert digests and digests <= first.val.keys()
    assert {digest(np.frombuffer(item, np.uint8)) for item in kept(again, "train")} <= first.train.keys()


def test_a_model_of_the_first_release_knows_its_exemplars_at_least(tmp_path: Path):
    X = noise(40, 1)
    model = quick(budget=20).fit(X, np.arange(40) % 2)
    model._model.fingerprints = NOTHING  # as it is after a load of a directory without them
    held, order = kept(model, "val"), np.random.default_rng(1).permutation(40)
    model.partial_fit(X[order], order % 2)
    assert held and not kept(model, "train") & held
    assert not {*model._model.fingerprints.train} & {digest(np.frombuffer(x, np.uint8)) for x in held}


def test_a_full_share_takes_in_what_is_new_and_keeps_what_is_old():
    memory = Memory(20)
    memory.update(images(*range(100)), images(*range(100, 110)), ("key", 1))
    memory.update(images(*range(1000, 2000)), images(*range(2000, 2100)), ("key", 2))
    for part, bound in ((memory.train, 1000), (memory.val, 2000)):
        new = sum(n >= bound for n in numbers(part[0]))
        assert new == len(part[0]) - new > 0


def test_of_a_class_that_comes_again_no_more_files_are_read_than_are_kept(tmp_path: Path, monkeypatch):
    for n in range(60):
        Image.fromarray(noise(1, n)[0]).save(tmp_path / f"{n}.png")
    files = Files(sorted(tmp_path.glob("*.png")), np.zeros(60, int), (8, 8, 3))
    memory = Memory(10)
    memory.update(files.take(np.arange(30)), images_8(0), ("key", 1))
    asked: set[Path] = set()
    monkeypatch.setattr("randpath.data.dataset.read", lambda path: asked.add(path) or read(path))
    memory.update(files.take(np.arange(30, 60)), images_8(0), ("key", 2))
    assert (len(memory), len(asked)) == (10, 5)


def test_forgotten_classes_leave_no_fingerprint_and_merged_ones_have_one_label():
    model = quick().fit(noise(60, 2), ["a", "b", "c"] * 20)._model
    counts = [[*part.values()].count(c) for part in (model.fingerprints.train, model.fingerprints.val) for c in (1, 2)]
    left = editing.forget(model, 0).fingerprints
    assert [[*part.values()].count(c) for part in (left.train, left.val) for c in (0, 1)] == counts
    assert {*left.train.values(), *left.val.values()} == {0, 1}
    merged = editing.merge(model, 0, 2).fingerprints
    assert {*merged.train} == {*model.fingerprints.train} and {*merged.train.values()} == {0, 1}


def test_of_merged_classes_exemplars_of_both_are_left_when_shares_shrink():
    X = noise(80, 4)
    X[:40, 0, 0, 0], X[40:, 0, 0, 0] = 0, 255  # the mark of where a picture came from
    model = quick(budget=30).fit(X, ["a"] * 40 + ["b"] * 40)
    model._model = editing.merge(model._model, 0, 1)
    model.partial_fit(noise(40, 5), ["c"] * 40)
    train = model._model.method.memory.train[0]
    marks = [int(x[0, 0, 0]) for batch, _ in train.batches([np.arange(len(train))]) for x in batch]
    assert abs(marks.count(0) - marks.count(255)) <= 1 < len(marks)


def test_a_class_without_pictures_inside_is_not_merged():
    model = quick().fit(noise(40, 6), ["a", "b"] * 20)._model
    del model.method.memory.train[1]
    for pair in ((0, 1), (1, 0)):
        with pytest.raises(UsageError, match="keeps no pictures of b inside"):
            editing.merge(model, *pair)


def test_confidence_stays_as_it_was_settled_where_nothing_is_held_out_to_do_it_by():
    model = quick().fit(noise(60, 7), ["a", "b", "c"] * 20)._model
    model.temperature, model.threshold, model.doubt = 1.7, 0.31, 0.03
    model.method.memory.val = {}
    left = editing.forget(model, 2)
    assert (left.temperature, left.threshold, left.doubt) == (1.7, 0.31, 0.03)
    assert left.novelty is not None and left.novelty.limit == model.novelty.limit < np.inf


WRONG = {
    "short rows": {"train": torch.zeros(2, LENGTH - 1, dtype=torch.uint8)},
    "other numbers": {"train": torch.zeros(2, LENGTH)},
    "a label too few": {"train": torch.zeros(3, LENGTH, dtype=torch.uint8)},
    "labels in a column": {"train_labels": torch.zeros(2, 1, dtype=torch.int32)},
    "a class too many": {"val_labels": torch.tensor([2], dtype=torch.int32)},
    "a class below none": {"val_labels": torch.tensor([-1], dtype=torch.int32)},
    "broken labels": {"val_labels": torch.tensor([0.5])},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_fingerprints_that_could_not_have_been_stored_are_refused(wrong: dict[str, torch.Tensor]):
    own = Fingerprints({fingerprint(1): 0, fingerprint(2): 1}, {fingerprint(3): 1})
    assert fingerprints_from(own.tensors(), 2) == own
    with pytest.raises(Damaged, match="the fingerprints of its pictures are"):
        fingerprints_from(own.tensors() | wrong, 2)


def test_a_model_of_vectors_has_none(tmp_path: Path):
    draw = np.random.default_rng(8)
    model = quick().fit(draw.normal(size=(40, 5)), np.arange(40) % 2)
    model.save(tmp_path / "m")
    assert Model.state(model._model)[0].tensors["fingerprints"]["train"].shape == (0, LENGTH)
    assert PathClassifier.load(tmp_path / "m")._model.fingerprints == NOTHING
