"""The Dataset protocol: arrays, files and both joined hand out the same pictures; exemplars outlive their folder."""

import pickle
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from randpath.data.dataset import Arrays, Dataset, Files, Joined, file_changes, stored
from randpath.data.decode import PictureError
from randpath.errors import DataError
from tests.pictures import encoded, pixels, put

N = 20
PIXELS = np.stack([pixels(i) for i in range(N)])
LABELS = np.arange(N) % 3


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files([put(tmp_path / f"{i}.png", i) for i in range(N)], LABELS, (8, 8, 3))


def everything(data: Dataset, size: int = 7) -> np.ndarray:
    order = np.arange(len(data))
    batches = list(data.batches([order[i : i + size] for i in range(0, len(data), size)]))
    assert np.concatenate([y.numpy() for _, y in batches]).tolist() == data.labels.tolist()
    return np.concatenate([x.numpy() for x, _ in batches])


def test_files_hand_out_what_arrays_hand_out(files: Files) -> None:
    arrays = Arrays(PIXELS, LABELS)
    assert len(files) == len(arrays)
    assert files.shape == arrays.shape == (8, 8, 3)
    for _ in range(2):  # the second epoch comes from the decoded pixels
        np.testing.assert_array_equal(everything(files), everything(arrays))
    some = np.array([5, 0, 5, 19])
    np.testing.assert_array_equal(everything(files.take(some)), PIXELS[some])
    assert files.take(some, np.arange(4)).labels.tolist() == [0, 1, 2, 3]
    assert files.take(some).take(np.array([3])).labels.tolist() == [LABELS[19]]


def test_exemplars_outlive_the_folder(files: Files, tmp_path: Path) -> None:
    chosen = files.take(np.array([3, 1, 7]))
    kept = chosen.self_contained()
    shutil.rmtree(tmp_path)
    np.testing.assert_array_equal(everything(kept), PIXELS[[3, 1, 7]])
    again = stored(load(save(kept.tensors())))
    np.testing.assert_array_equal(everything(again), PIXELS[[3, 1, 7]])
    assert again.labels.tolist() == chosen.labels.tolist()
    assert again.shape == (8, 8, 3)
    assert {k: v.tobytes() for k, v in again.tensors().items()} == {k: v.tobytes() for k, v in kept.tensors().items()}


def test_a_small_file_is_kept_byte_for_byte_and_a_large_one_as_its_pixels(tmp_path: Path) -> None:
    small, large = put(tmp_path / "a.png", 0, 8, 8), put(tmp_path / "b.png", 1, 300, 400)
    data = Files([small, large], np.array([0, 1]), (8, 8, 3))
    before, kept = everything(data), data.self_contained()
    first, second = kept.item(0), kept.item(1)
    assert first == small.read_bytes()
    assert isinstance(second, bytes)
    assert len(second) < 400 < large.stat().st_size
    np.testing.assert_array_equal(everything(kept), before)


def test_joined_parts_of_both_kinds(files: Files) -> None:
    joined = Joined([Arrays(PIXELS[:4], LABELS[:4]), files.take(np.arange(4, 10)), files.take(np.array([], np.int64))])
    mixed = np.array([9, 0, 5, 3, 4])
    x, y = next(joined.batches([mixed]))
    np.testing.assert_array_equal(x.numpy(), PIXELS[mixed])
    assert y.tolist() == LABELS[mixed].tolist()
    for data in (joined.self_contained(), stored(joined.tensors()), joined.take(np.arange(10))):
        np.testing.assert_array_equal(everything(data), PIXELS[:10])
    taken = joined.take(mixed, np.arange(5))  # parts that alternate
    np.testing.assert_array_equal(everything(taken), PIXELS[mixed])
    assert taken.labels.tolist() == [0, 1, 2, 3, 4]
    arrays = Joined([Arrays(PIXELS[:4], LABELS[:4]), Arrays(PIXELS[4:6], LABELS[4:6])])
    assert isinstance(stored(load(save(arrays.tensors()))), Arrays)
    with pytest.raises(ValueError, match="different shapes"):
        Joined([Arrays(PIXELS, LABELS), Arrays(PIXELS[:, :4], LABELS)])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, N - 1), max_size=9), max_size=12))
def test_any_index_lists(lists: list[list[int]]) -> None:
    data = Files([encoded(p) for p in PIXELS], LABELS, (8, 8, 3))
    joined = Joined([data.take(np.arange(5)), Arrays(PIXELS[5:], LABELS[5:])])
    indices = [np.array(i, np.int64) for i in lists]
    for one in (data, joined):
        got = list(one.batches(indices))
        assert len(got) == len(indices)
        for (x, y), i in zip(got, indices):
            np.testing.assert_array_equal(x.numpy(), PIXELS[i])
            assert y.tolist() == LABELS[i].tolist()


def test_batches_are_decoded_ahead_and_only_a_few(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    decoded = Files._decoded

    def slow(self: Files, item: Path | bytes) -> np.ndarray:
        seen.append(threading.get_ident())
        return decoded(self, item)

    monkeypatch.setattr(Files, "_decoded", slow)
    stream = files.batches(np.array([i]) for i in range(N))
    next(stream)
    deadline = time.monotonic() + 5
    while len(seen) < Files.ahead and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Files.ahead <= len(seen) <= Files.ahead + 1  # the one handed out, and those that wait
    assert threading.get_ident() not in seen
    stream.close()  # type: ignore[attr-defined]
    assert sum(thread.name.startswith("decode") for thread in threading.enumerate()) <= 4


def test_a_thousand_classes_share_a_few_threads() -> None:
    data = Joined([Files([encoded(pixels(c))], np.array([c]), (8, 8, 3)) for c in range(1000)])
    x, y = next(data.batches([np.arange(0, 1000, 7)]))
    np.testing.assert_array_equal(x[5].numpy(), pixels(35))
    assert y[5] == 35
    assert sum(thread.name.startswith("decode") for thread in threading.enumerate()) <= 4


def test_a_file_that_goes_bad_is_named(files: Files, tmp_path: Path) -> None:
    (tmp_path / "3.png").write_bytes(b"gone")
    (tmp_path / "4.png").unlink()
    for bad in (3, 4):
        with pytest.raises(PictureError, match=rf"{bad}\.png"):
            everything(files.take(np.array([0, bad])))


def test_another_process_gets_the_files_and_no_pixels(files: Files) -> None:
    everything(files)
    part = pickle.loads(pickle.dumps(files.take(np.array([2, 5]))))
    assert len(pickle.dumps(files.take(np.array([2])))) < 1500
    np.testing.assert_array_equal(everything(part), PIXELS[[2, 5]])


def test_decoded_pixels_stay_within_the_process_s_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    from randpath.data.dataset import _Pixels

    monkeypatch.setattr(_Pixels, "left", 5 * 8 * 8 * 3)
    first = Files([encoded(p) for p in PIXELS], LABELS, (8, 8, 3))
    second = Files([encoded(p) for p in PIXELS], LABELS, (8, 8, 3))
    assert len(first._pixels.items) == 5
    assert len(second._pixels.items) == 0
    for data in (first, second):
        for _ in range(2):
            np.testing.assert_array_equal(everything(data), PIXELS)
    del first, data
    assert _Pixels.left == 5 * 8 * 8 * 3


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": np.array([-1, 10])},
        {"lengths": np.array([10**6])},
        {"shape": np.array([8, 8])},
        {"shape": np.array([0, 8, 3])},
        {"blob": np.zeros(3, np.uint8)},
    ],
)
def test_damaged_storage_is_refused(files: Files, change: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match="damaged"):
        stored({**files.tensors(), **change})


@pytest.mark.parametrize(
    ("items", "labels", "why"),
    [
        (PIXELS, LABELS[:3], "20 items but 3 labels"),
        (PIXELS.astype(np.float64), LABELS, "got float64"),
        (PIXELS, LABELS.astype(float), "whole numbers, got float64"),
        (PIXELS, LABELS.astype(str), "whole numbers"),
        (np.full((2, 3), np.nan, np.float32), np.array([0, 1]), "item 0 holds a value that is not finite"),
    ],
)
def test_wrong_arrays_are_refused(items: np.ndarray, labels: np.ndarray, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Arrays(items, labels)


def test_changes_are_named() -> None:
    before = {"a/1.png": "x", "a/2.png": "y", "b/3.png": "z"}
    assert file_changes(before, dict(reversed(before.items()))) == []
    assert file_changes(before, {**before, "b/4.png": "w"}) == ["added: b/4.png"]
    assert file_changes(before, {k: v for k, v in before.items() if v != "y"}) == ["removed: a/2.png"]
    assert file_changes(before, {**before, "b/3.png": "q"}) == ["edited: b/3.png"]
