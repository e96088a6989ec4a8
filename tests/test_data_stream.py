"""Streams: every class in exactly one task, no test image in training, validation apart, all of it reproducible."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randpath.data import named
from randpath.data.dataset import Arrays, Source
from randpath.data.stream import TaskStream, hold_out
from randpath.errors import DataError


def source(train: list[int], test: list[int]) -> Source:
    """Classes with so many images; an image's pixel tells which one it is: 0.. for training, then the test images."""
    parts, start = [], 0
    for counts in (train, test):
        labels = np.repeat(np.arange(len(counts)), counts)
        labels = np.random.RandomState(0).permutation(labels)
        number = np.arange(start, start + len(labels), dtype=np.uint16)
        items = np.stack([number >> 8, number & 255], axis=1).astype(np.uint8).reshape(-1, 1, 2, 1)
        parts.append(Arrays(items, labels))
        start += len(labels)
    return Source("toy", *parts, tuple(f"c{i}" for i in range(len(train))), (0.5,), (0.5,), False, "")


def numbers(part: object) -> list[int]:
    items = part.items.reshape(-1, 2).astype(int)  # type: ignore[attr-defined]
    return (items[:, 0] * 256 + items[:, 1]).tolist()  # type: ignore[no-any-return]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Source, list[int], object, int]:
    classes = draw(st.integers(1, 12))
    counts = st.lists(st.integers(1, 30), min_size=classes, max_size=classes)
    cuts = sorted(draw(st.sets(st.integers(1, classes - 1), max_size=classes - 1))) if classes > 1 else []
    sizes = np.diff([0, *cuts, classes]).tolist()
    order = draw(
        st.one_of(
            st.just("natural"), st.integers(0, 3000), st.permutations([f"c{i}" for i in range(classes)]).map(list)
        )
    )
    return source(draw(counts), draw(counts)), sizes, order, draw(st.integers(0, 5))


@settings(max_examples=100, deadline=None)
@given(streams())
def test_any_stream(case: tuple[Source, list[int], object, int]) -> None:
    whole, sizes, order, seed = case
    stream = TaskStream(whole, sizes, order, seed=seed)  # type: ignore[arg-type]
    again = TaskStream(whole, sizes, [whole.class_names[c] for c in stream.class_order], seed=seed)
    joint = TaskStream(whole, sizes, order, seed=seed, cumulative=True)  # type: ignore[arg-type]
    assert sorted(stream.class_order) == list(range(len(whole.class_names)))
    assert again.class_order == stream.class_order
    seen: list[int] = []
    trained: list[int] = []
    tested: list[int] = []
    for k in range(1, stream.num_tasks + 1):
        task, test = stream.task(k), stream.test(k)
        assert len(task.new) == sizes[k - 1]
        assert not set(task.new) & set(seen)
        seen += task.new
        assert set(task.train.labels) | set(task.val.labels) == set(task.new)
        assert set(task.train.labels) == set(task.new), "a class keeps training images"
        assert set(test.labels) <= set(task.new)
        for position in task.new:
            n = int((whole.train.labels == stream.class_order[position]).sum())
            assert (task.val.labels == position).sum() == (0 if n < 5 else max(1, round(n / 10)))
        for part in (task.train, task.val, test):  # a label is the position of the image's own class
            everything = np.concatenate([whole.train.labels, whole.test.labels])
            assert [stream.class_order[y] for y in part.labels] == everything[numbers(part)].tolist()
        assert numbers(task.train) == numbers(again.task(k).train)
        assert numbers(task.val) == numbers(again.task(k).val)
        trained += numbers(task.train) + numbers(task.val)
        tested += numbers(test)
        so_far = joint.task(k)
        assert (so_far.num_classes, so_far.new) == (task.num_classes, task.new)
        assert sorted(numbers(so_far.train) + numbers(so_far.val)) == sorted(trained)
        assert set(numbers(task.val)) <= set(numbers(so_far.val)), "validation images never become training images"
    assert seen == list(range(len(whole.class_names)))
    assert sorted(trained) == list(range(len(whole.train)))
    assert sorted(tested) == list(range(len(whole.train), len(whole.train) + len(whole.test)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(0, 9))
def test_a_class_s_validation_images_do_not_depend_on_the_others(labels: list[int], seed: int) -> None:
    y = np.array(labels)
    train, val = hold_out(y, seed)
    assert sorted([*train, *val]) == list(range(len(y)))
    for c in set(labels):
        own = np.flatnonzero(y == c)
        assert own[hold_out(y[own], seed)[1]].tolist() == [i for i in val if y[i] == c]


def test_without_validation_every_image_is_for_training() -> None:
    whole = source([10] * 4, [1] * 4)
    task = TaskStream(whole, 2, 1993, seed=0, validation=False).task(2)
    assert (len(task.train), len(task.val), set(task.train.labels.tolist())) == (20, 0, {2, 3})


def test_the_protocols_of_the_papers() -> None:
    hundred = source([5] * 100, [1] * 100)
    stream = TaskStream(hundred, 10, 1993, seed=0)
    assert stream.class_order[:10] == (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)  # iCaRL's
    assert stream.class_order == TaskStream(hundred, 10, 1993, seed=7).class_order, "the seed never changes the order"
    assert [len(TaskStream(hundred, t, "natural", seed=0).task(1).new) for t in (1, 2, 5, 20)] == [100, 50, 20, 5]
    b50 = TaskStream(hundred, [50] + [5] * 10, 1993, seed=0)
    assert b50.num_tasks == 11
    assert b50.task(2).new == range(50, 55)
    assert TaskStream(hundred, 100, "natural", seed=0).task(100).new == range(99, 100)


def test_groups_given_by_name() -> None:
    whole = source([6] * 4, [2] * 4)
    stream = TaskStream(whole, [["c2"], ["c0", "c3", "c1"]], "natural", seed=0)
    assert stream.class_names == ("c2", "c0", "c3", "c1")
    assert stream.task(2).new == range(1, 4)
    with pytest.raises(ValueError, match="no choice of a class order"):
        TaskStream(whole, [["c2"], ["c0", "c3", "c1"]], 1993, seed=0)


@pytest.mark.parametrize(
    ("tasks", "order", "why"),
    [
        (3, "natural", "do not make 3 equal groups"),
        (0, "natural", "equal groups"),
        ([2, 1], "natural", "the tasks have 3 classes, the data 4"),
        ([4, 0], "natural", "at least one class"),
        ([], "natural", "at least one class"),
        (2, "random", "not 'random'"),
        (2, ["c0", "c1", "c2"], "left out: c3"),
        (2, ["c0", "c1", "c2", "c2"], "named twice: c2"),
        (2, ["c0", "c1", "c2", "cat"], "unknown: cat"),
        ([["c0"], ["c1", "c0"], ["c2", "c3"]], "natural", "named twice: c0"),
    ],
)
def test_impossible_streams_are_refused(tasks: object, order: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TaskStream(source([6] * 4, [2] * 4), tasks, order, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "test", "why"),
    [
        ([0, 1, 4], [0, 1, 2], "label 4 of training image 2 is not in 0..2"),
        ([0, 1, -1], [0, 1, 2], "label -1 of training image 2"),
        ([0, 1, 2], [0, 1, 7], "label 7 of test image 2"),
        ([0, 0, 2], [0, 1, 2], "'c1' has no training image"),
        ([0, 1, 2], [0, 1, 1], r"task 3 \(c2\) has no test image"),
    ],
)
def test_wrong_labels_are_named_before_any_training(train: list[int], test: list[int], why: str) -> None:
    items = np.zeros((3, 1, 1, 1), np.uint8)
    parts = [Arrays(items, np.array(labels)) for labels in (train, test)]
    with pytest.raises(DataError, match=why):
        TaskStream(Source("toy", *parts, ("c0", "c1", "c2"), (0.5,), (0.5,), False, ""), 3, "natural", seed=0)


def test_a_task_has_no_way_to_the_test_images() -> None:
    task = TaskStream(named.load("digits"), 5, "natural", seed=0).task(1)
    assert set(vars(task)) == {"k", "num_classes", "new", "train", "val"}
    for k in (0, 6):
        with pytest.raises(ValueError, match="from 1 to 5"):
            TaskStream(named.load("digits"), 5, "natural", seed=0).test(k)
