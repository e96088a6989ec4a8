"""A memory counted in bytes: more pictures, as lossy files, and never more bytes than it may have."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from randpath.bench.experiment import Experiment
from randpath.bench.run import run
from randpath.data import named
from randpath.data.dataset import Arrays, Files, Joined
from randpath.data.lossy import any_lossy, compressed, item_sizes
from randpath.errors import UsageError
from randpath.learning.memory import Memory, Size
from randpath.learning.method import Work
from randpath.learning.train import Training
from randpath.methods.rps import RPS
from randpath.storage import checkpoint
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    setting,
    tasks,
)


def smooth(n: int, classes: int = 2, seed: int = 0) -> Arrays:
    """Pictures as files like them: soft, in colour."""
    rng = np.random.default_rng(seed)
    corners = torch.from_numpy(rng.random((n, 3, 4, 4)))
    x = torch.nn.functional.interpolate(corners, size=32, mode="bilinear")
    return Arrays((x * 255).byte().permute(0, 2, 3, 1).numpy(), np.arange(n) % classes)


def nothing() -> Arrays:
    return smooth(2).take(np.array([], np.int64))


def stored_bytes(memory: Memory) -> int:
    return sum(sum(item_sizes(part)) for part in memory.exemplars())


def test_it_holds_several_times_as_many_and_never_more_bytes():
    budget = 40 * 32 * 32 * 3  # forty raw pictures
    memory = Memory(Size(budget))
    for k in range(3):
        data = smooth(400, seed=k)
        data = Arrays(data.items, data.labels + 2 * k)
        memory.update(data, data.take(np.arange(40)), (0, k))
        assert stored_bytes(memory) <= budget
        assert sum(len(part) for part in memory.train.values()) > 3 * 40
        counts = [len(part) for part in memory.train.values()]
        assert max(counts) - min(counts) <= 1  # equal shares, in pictures
        assert sum(sum(item_sizes(part)) for part in memory.val.values()) <= budget // 10
    total = sum(len(t["blob"]) for t in memory.tensors().values())
    assert total == stored_bytes(memory)


def test_a_shrinking_share_keeps_the_first_chosen_and_their_bytes():
    memory = Memory(Size(60_000))
    memory.update(smooth(300), nothing(), (0, 1))
    first = [memory.train[0].item(i) for i in range(len(memory.train[0]))]
    other = smooth(300, seed=1)
    memory.update(Arrays(other.items, other.labels + 2), nothing(), (0, 2))
    after = [memory.train[0].item(i) for i in range(len(memory.train[0]))]
    assert 0 < len(after) < len(first)
    assert after == first[: len(after)]  # never encoded a second time


def test_what_is_trained_on_is_what_the_file_decodes_to():
    data = smooth(8)
    kept = compressed(data, 90, 10**6)
    assert isinstance(kept, Files)
    (x, y) = next(iter(kept.batches([np.arange(8)])))
    assert x.shape == (8, 32, 32, 3)
    assert y.tolist() == data.labels.tolist()
    error = np.abs(x.numpy().astype(int) - data.items)
    assert 0 < error.mean() < 6
    worse = compressed(data, 20, 10**6)
    assert sum(item_sizes(worse)) < sum(item_sizes(kept)) < data.items.nbytes / 4


def test_new_pictures_are_as_lossy_as_the_exemplars():
    """Or a network tells old classes by the traces of compression: on CIFAR-100 that cost them twenty points."""
    data, more = smooth(40), smooth(6, seed=1)
    memory = Memory(Size(10**6))
    memory.update(data, nothing(), (0, 1))
    both = memory.beside(more)
    x, _ = next(iter(both.batches([np.arange(40, 46)])))
    lossy, _ = next(iter(compressed(more, 90, 10**6).batches([np.arange(6)])))
    assert len(both) == 46
    assert torch.equal(x, lossy) and not np.array_equal(x.numpy(), more.items)
    assert Memory(2000).alike(more) is more
    assert Memory(Size(0)).alike(more) is more


def test_a_budget_that_was_a_number_or_becomes_one_shows_no_raw_pictures_beside_lossy_ones():
    first, second, third = (
        Arrays(d.items, d.labels + 2 * k) for k, d in enumerate(smooth(20, seed=k) for k in (0, 1, 2))
    )
    memory = Memory(30)
    memory.update(first, nothing(), (0, 1))
    assert memory.alike(second) is second
    memory.budget = Size(10**6)
    assert lossy_items(memory.beside(second)) == 40  # also those that are raw in the memory
    memory.update(second, nothing(), (0, 2))
    assert all(lossy_items(part) == len(part) for part in memory.exemplars())
    memory.budget = 30
    before = [memory.train[0].item(i) for i in range(5)]
    assert lossy_items(memory.beside(third)) == len(memory) + 20
    memory.update(third, nothing(), (0, 3))
    assert lossy_items(memory.train[5]) == 0  # from now on they are kept as they are
    assert [memory.beside(third).item(i) for i in range(5)] == before  # never encoded a second time
    assert lossy_items(memory.beside(third)) == len(memory) + 20


def test_a_users_own_webp_files_are_none_of_ours():
    """Larger ones, which are decoded to the size of the data: a memory of raw pictures leaves them alone."""
    large = smooth(4)
    files = compressed(Arrays(large.items.repeat(2, axis=1).repeat(2, axis=2), large.labels), 90)
    own = Files([files.item(i) for i in range(4)], large.labels, (32, 32, 3))
    memory = Memory(10)
    memory.update(own, nothing(), (0, 1))
    assert memory.alike(large) is large
    assert [compressed(own, 90).item(i) != own.item(i) for i in range(4)] == [True] * 4


def lossy_items(data) -> int:
    parts = data.parts if isinstance(data, Joined) else [data]
    return sum(any_lossy(part.take(np.array([i]))) for part in parts for i in range(len(part)))


def test_grey_pictures_and_vectors():
    grey = Arrays(smooth(6).items[..., :1], np.arange(6))
    (x, _) = next(iter(compressed(grey, 90, 10**6).batches([np.arange(6)])))
    assert x.shape == (6, 32, 32, 1)
    assert np.abs(x.numpy().astype(int) - grey.items).mean() < 6
    vectors = Arrays(np.ones((50, 10), np.float32), np.zeros(50, np.int64))
    memory = Memory(Size(1000))
    memory.update(vectors, vectors.take(np.array([], np.int64)), (0,))
    assert len(memory) == 25  # 40 bytes each


def test_a_size_that_cannot_hold_one_picture_of_each_class_is_refused():
    with pytest.raises(UsageError, match="100 bytes cannot hold one picture of each of 2 classes"):
        Memory(Size(100)).require_room(2)
    memory = Memory(Size(200))
    with pytest.raises(UsageError, match="200 bytes cannot hold one picture of each of 2 classes"):
        memory.update(smooth(20), nothing(), (0,))
    for wrong in ("6 megabytes", "-1MB", "MB", "2000"):
        with pytest.raises(ValueError, match='at least 0, "20 per class", or a size'):
            Experiment("digits", 5, memory=wrong)
    assert Experiment("digits", 5, memory="0MB").budget == 0
    assert Experiment("digits", 5).with_settings(["memory=6.1MB"]).budget == Size(6_100_000, 90)


def test_resume_is_exact(tmp_path):
    def make() -> RPS:
        return RPS(replace(setting(backbone="compact"), budget=Size(3000)), N=1)

    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(make, tmp_path / "steps")
    method = make()
    for one in tasks(method):
        method.learn(one, Work())
        assert stored_bytes(method.memory) <= 3000


def test_a_run_stays_within_its_bytes(tmp_path):
    experiment = Experiment(
        "digits", (5, 5), backbone="mlp", width=16, modules=1, memory="4kB", training=Training(epochs=1, batch=64)
    )
    run(experiment, tmp_path)
    _, saved = checkpoint.latest(tmp_path / "checkpoints")
    used = sum(len(saved.tensors[part]["blob"]) for part in ("memory_train", "memory_val"))
    assert used <= 4000
    assert sum(len(saved.tensors[part]["labels"]) for part in ("memory_train", "memory_val")) >= 10
    assert named.load("digits").train.shape == (8, 8, 1)


def test_a_size_of_just_the_smallest_files_is_room_enough():
    Memory(Size(3 * 64)).require_room(3)
    with pytest.raises(UsageError, match="each of 3 classes"):
        Memory(Size(3 * 64 - 1)).require_room(3)
