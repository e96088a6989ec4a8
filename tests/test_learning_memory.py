"""The memory's shares: equal, within the budget, never across the two parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randpath.bench.experiment import Experiment
from randpath.bench.load import load_run
from randpath.bench.run import run
from randpath.data.dataset import Arrays
from randpath.data.stream import hold_out
from randpath.errors import UsageError
from randpath.learning.memory import Memory, PerClass, herding, quotas
from randpath.learning.method import Work
from randpath.methods.rps import RPS
from randpath.settings import parse_size
from tests.checks import setting, tasks


def numbered(sizes: dict[int, int]) -> Arrays:
    """Images that tell their class and their number in the class."""
    labels = np.repeat(list(sizes), list(sizes.values()))
    items = np.zeros((len(labels), 1, 3, 1), np.uint8)
    items[:, 0, 0, 0] = labels
    items[:, 0, 1, 0] = np.concatenate([np.arange(n) for n in sizes.values()])
    return Arrays(items, labels)


def halves(data: Arrays) -> tuple[Arrays, Arrays]:
    train, val = hold_out(data.labels, 0)
    return data.take(train), data.take(val)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(0, 200))
def test_quotas_are_equal_as_far_as_the_classes_go(available, budget):
    shares = quotas(available, budget)
    assert sum(shares) == min(budget, sum(available))
    assert all(0 <= share <= n for share, n in zip(shares, available))
    unfilled = [share for share, n in zip(shares, available) if share < n]
    if unfilled:
        assert max(shares) - min(unfilled) <= 1


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["0", "1", "C-1", "C", "C+1", "10", "40"]),
)
def test_any_stream_keeps_the_budget(tasks, which):
    num_classes = sum(map(len, tasks))
    budget = {"0": 0, "1": 1, "C-1": num_classes - 1, "C": num_classes, "C+1": num_classes + 1, "10": 10, "40": 40}[
        which
    ]
    memory, again = Memory(budget), Memory(budget)
    first = 0
    before: dict[str, set[tuple[int, int]]] = {"train": set(), "val": set()}
    for k, sizes in enumerate(tasks, start=1):
        train, val = halves(numbered({first + i: n for i, n in enumerate(sizes)}))
        first += len(sizes)
        if 0 < budget < first:
            with pytest.raises(ValueError, match=f"at least {first}"):
                memory.require_room(first)
            return
        memory.update(train, val, (0, k))
        again.update(train, val, (0, k))
        assert len(memory) <= budget
        now = {name: contents(part) for name, part in (("train", memory.train), ("val", memory.val))}
        assert not now["train"] & now["val"]
        for name in now:  # an old image was there before, in the same part: yesterday's data is gone
            old = {image for image in now[name] if image[0] < first - len(sizes)}
            assert old <= before[name]
        before = now
        if budget >= first:
            assert {c for c, _ in now["train"] | now["val"]} == set(range(first))
    for name, tensors in memory.tensors().items():
        assert all(np.array_equal(tensors[key], again.tensors()[name][key]) for key in tensors)


def contents(part: dict) -> set[tuple[int, int]]:
    return {(int(x[0, 0, 0]), int(x[0, 1, 0])) for data in part.values() for x in data.tensors()["items"]}


def test_a_tenth_is_kept_for_validation():
    memory = Memory(100)
    memory.update(*halves(numbered({0: 200, 1: 200})), (0, 1))
    assert {c: len(d) for c, d in memory.val.items()} == {0: 5, 1: 5}
    assert {c: len(d) for c, d in memory.train.items()} == {0: 45, 1: 45}


def test_herding_keeps_the_images_whose_mean_is_nearest():
    memory = Memory(2)
    data = numbered({0: 4})
    features = np.array([[0.0], [1.0], [4.0], [2.0]])
    memory.update(data, data.take(np.array([], np.int64)), (0, 1), lambda d: features)
    assert contents(memory.train) == {(0, 3), (0, 1)}


def test_herding_is_icarls_rule_on_random_features():
    features = np.random.default_rng(0).random((60, 8), np.float32)
    mean, chosen = features.mean(axis=0), []
    for n in range(1, 61):
        left = [i for i in range(60) if i not in chosen]
        away = [np.linalg.norm(mean - (features[chosen].sum(axis=0) + features[i]) / n) for i in left]
        chosen.append(left[int(np.argmin(away))])
    assert herding(features).tolist() == chosen


def test_storage_round_trip():
    memory = Memory(20)
    memory.update(*halves(numbered({0: 30, 1: 7})), (3, 1))
    other = Memory(20)
    other.load(memory.tensors())
    assert contents(other.train) == contents(memory.train)
    assert contents(other.val) == contents(memory.val)


def test_a_negative_budget_is_refused():
    with pytest.raises(ValueError, match="0 or more"):
        Memory(-1)


def test_so_many_of_each_class_whatever_the_others_have():
    memory = Memory(PerClass(20))
    for k, sizes in enumerate(({0: 100, 1: 8}, {2: 100}, {3: 1})):
        memory.update(*halves(numbered(sizes)), (0, k))
    counts = {c: (len(memory.train[c]), len(memory.val.get(c, ()))) for c in memory.train}
    assert counts[0] == counts[2] == (18, 2)  # a tenth of them for validation, as with a budget in all
    assert sum(counts[1]) == 8  # nobody takes over what a small class leaves
    assert counts[3] == (1, 0)
    train, val = halves(numbered({0: 100}))
    first = Memory(PerClass(20))
    first.update(train, val, (0, 0))
    assert first.train[0].tensors()["items"].tolist() == memory.train[0].tensors()["items"].tolist()  # never shrinks


def test_one_of_each_class_is_for_training_and_none_leaves_room_for_none():
    memory = Memory(PerClass(1))
    memory.require_room(10**6)
    memory.update(*halves(numbered({0: 30, 1: 30})), (0, 0))
    assert [len(part) for part in memory.train.values()] == [1, 1]
    assert not memory.val
    with pytest.raises(UsageError, match="0 or more"):
        Memory(PerClass(-1))


def test_a_memory_per_class_is_set_by_words_and_goes_through_a_run(tmp_path):
    e = Experiment("digits", 5, backbone="mlp", width=16, method="rehearsal", validation=False)
    e = e.with_settings(["memory=3 per class", "training.epochs=1"])
    assert e.budget == PerClass(3)
    assert Experiment.from_json(e.to_json()) == e
    assert e.changed("memory", "0 per class").budget == 0
    for wrong in ("3 per  class", "-3 per class", "per class"):
        with pytest.raises(UsageError, match="20 per class"):
            e.changed("memory", wrong)
    run(e, tmp_path)
    labels = load_run(tmp_path).method.state_dict().tensors["memory_train"]["labels"]
    assert np.bincount(labels.numpy()).tolist() == [3] * 10


def test_gamma_of_the_paper_counts_the_exemplars_of_all_classes_seen():
    method = RPS(setting(PerClass(5)), N=1, threshold=-1e9)
    lines = [method.learn(one, Work()) for one in tasks(method)]
    assert [line.epochs[0]["phi"] for line in lines] == [None, 40 / 20, 2 * 40 / 30]


def test_gamma_is_1_without_a_memory():
    method = RPS(setting(0), N=1, switch_every=1)
    assert [method.learn(one, Work()).epochs[0]["phi"] for one in tasks(method)] == [None, 1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "size"), [("7B", 7), ("2 kB", 2_000), ("3KB", 3_000), ("0.5MB", 500_000), ("4 GB", 4_000_000_000)]
)
def test_every_unit_of_a_size(text, size):
    assert parse_size(text) == size
