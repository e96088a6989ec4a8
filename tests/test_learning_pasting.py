"""Patches of other pictures in a task's, all classes equally often (`options.paste`)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.errors import UsageError
from randpath.learning import selection
from randpath.learning.method import Work
from randpath.learning.objective import log_counts
from randpath.learning.pasting import Pasting, _within
from randpath.learning.train import predict
from randpath.learning.views import Views
from randpath.methods.rps import RPS
from randpath.network.fold import Folded, fold
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    check_same_seed_gives_the_same_bits,
    digest,
    pictures,
    setting,
    tasks,
)

STILL = Augment((0.0,), (1 / 255,), padding=0, degrees=0.0)  # pixels as they are, as float
GREYS = np.array([50, 100, 200], np.uint8)  # of a class's pictures


def greys(*counts: int, side: int = 8) -> Arrays:
    """So many pictures of each class, each of its class's grey."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return Arrays(np.broadcast_to(GREYS[labels][:, None, None, None], (len(labels), side, side, 1)).copy(), labels)


def batch(data: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = next(iter(data.batches([np.arange(len(data))])))
    return STILL.plain(x), y


def make(**options: Any) -> RPS:
    s = setting(30, "compact")
    s = replace(s, backbone=replace(s.backbone, attention="none"))
    return RPS(s, **{"N": 1, "threshold": 99.0, "balanced": True, "paste": 0.5, **options})


def lanes(views: int = 2) -> RPS:
    s = setting(30, "compact")
    s = replace(s, backbone=replace(s.backbone, attention="none", join="lanes"))
    return RPS(s, N=1, switch_every=1, start="copy", balanced=True, paste=0.5, views=views)


@pytest.mark.parametrize("side", [8, 12])  # 12: pictures that `training.small_side` has changed
def test_the_target_is_the_share_of_pixels(side):
    data = greys(5, 3, 2)
    x, y = batch(data)
    x = F.interpolate(x, size=side)
    before = x.clone()
    changed = 0
    for step in range(20):
        mixed, t, patch = Pasting(data, 3, 1.0, STILL, (0,))(x, y, step)
        share = torch.stack([(mixed - float(grey)).abs().lt(0.5).float().mean(dim=(1, 2, 3)) for grey in GREYS], dim=1)
        torch.testing.assert_close(t, share)
        pasted = (mixed != before).any(dim=1)  # (b, h, w)
        for one in pasted[pasted.any(dim=(1, 2))]:
            assert one.sum() == one.any(dim=1).sum() * one.any(dim=0).sum()  # a rectangle
            assert one.any(dim=1).sum() == one.any(dim=0).sum()  # of the picture's proportions
        other = pasted.any(dim=(1, 2))  # a patch of the same grey cannot be told from none
        torch.testing.assert_close(patch[other, 0], pasted[other].float().mean(dim=(1, 2)))
        changed += int(pasted.any(dim=(1, 2)).sum())
    assert changed > 20 * len(x) / 2
    assert torch.equal(x, before)


def test_targets_are_as_frequent_as_the_balanced_softmax_is_told():
    """Of pictures with patches of a size, and of those without: a network can tell them apart."""
    data = greys(90, 6, 4)
    x, y = batch(data)
    pasting, counts = Pasting(data, 3, 0.5, STILL, (1,)), log_counts(data.labels, 3)
    visits = [pasting(x, y, step)[1:] for step in range(1200)]
    plain = [(t, share) for t, share in visits if t.ndim == 1]
    assert 480 < len(plain) < 720
    assert all(torch.equal(t, y) and not share.any() for t, share in plain)
    none = pasting.log_counts(counts, torch.zeros(2, 1))
    torch.testing.assert_close(none.exp(), torch.tensor([[90.0, 6.0, 4.0]] * 2))

    t, share = (torch.cat(parts) for parts in zip(*(visit for visit in visits if visit[0].ndim == 2)))
    for low, high in ((0.05, 0.3), (0.4, 0.6), (0.8, 1.0)):
        rows = (share[:, 0] > low) & (share[:, 0] <= high)
        mean, size = t[rows].mean(dim=0) * 100, share[rows].mean().item()
        by_hand = torch.tensor([(1 - size) * n + size * 100 / 3 for n in (90, 6, 4)])
        torch.testing.assert_close(mean, by_hand, rtol=0.06, atol=0)
        told = pasting.log_counts(counts, torch.tensor([[size]])).exp()
        torch.testing.assert_close(told[0], by_hand)


def numbered(h: int, w: int) -> Arrays:
    """Two classes of four pictures; a pixel's channels are the number of its picture, its row and its column."""
    at = np.meshgrid(np.arange(8), np.arange(h), np.arange(w), indexing="ij")
    return Arrays(np.stack(at, axis=-1).astype(np.uint8), np.repeat([0, 1], 4))


def test_a_patch_keeps_its_place_and_may_be_of_any_picture_at_any_corner():
    data = numbered(8, 12)
    still = Augment((0.0,) * 3, (1 / 255,) * 3, padding=0, degrees=0.0)
    x, y = next(iter(data.batches([np.zeros(16, int)])))  # the first picture only
    x = still.plain(x)
    pasting, sources, corners, sides = Pasting(data, 2, 1.0, still, (0,)), set(), set(), set()
    for step in range(60):
        mixed, _, _ = pasting(x, y, step)
        assert torch.equal(mixed[:, 1:], x[:, 1:])  # every row and column where it was
        sources |= set(mixed[:, 0].unique().int().tolist())
        for one in mixed[:, 0].bool():  # the first picture has no colour there, all others have
            rows, columns = (torch.where(one.any(dim=d))[0] for d in (1, 0))
            corners.add((int(rows[0]) if len(rows) else 0, int(columns[0]) if len(columns) else 0))
            sides.add((len(rows), len(columns)))
    assert sources == set(range(8))
    assert len({top for top, _ in corners}) > 3 and len({left for _, left in corners}) > 3
    assert any(left != top for top, left in corners)
    assert any(rows < columns for rows, columns in sides) and all(rows <= columns for rows, columns in sides)
    other = Pasting(data, 2, 1.0, still, (1,))
    assert any(not torch.equal(pasting(x, y, step)[0], other(x, y, step)[0]) for step in range(5))


def test_each_picture_of_a_batch_has_a_place_of_its_own_and_every_place_is_as_likely():
    still = Augment((0.0,) * 3, (1 / 255,) * 3, padding=0, degrees=0.0)
    pasting = Pasting(numbered(8, 8), 2, 1.0, still, (0,))
    patches = pasting.patches((40_000,), np.random.default_rng(0))
    patches = replace(patches, side=np.full(40_000, 0.75))
    for axis in (0, 1):
        first = _within(patches.side, patches.place[:, axis], 8).argmax(axis=1)
        assert np.abs(np.bincount(first) / 40_000 - 1 / 3).max() < 0.01
    assert abs(np.corrcoef(patches.place.T)[0, 1]) < 0.02
    assert len(np.unique(patches.chosen)) == 8
    x, y = next(iter(numbered(8, 8).batches([np.zeros(16, int)])))
    mixed, t, _ = pasting(still.plain(x), y, 0)
    assert len({one.bool().numpy().tobytes() for one in mixed[:, 0]}) > 8
    assert len(t.unique(dim=0)) > 4


def test_what_is_pasted_is_augmented_and_shrunk_smoothly():
    data = numbered(8, 8)
    moved = Augment((0.0,) * 3, (1 / 255,) * 3, padding=2, degrees=0.0)
    x, y = next(iter(data.batches([np.arange(8)])))
    pasting = Pasting(data, 2, 1.0, moved, (0,))
    assert any(not torch.equal(pasting(moved.plain(x), y, step)[0][:, 1:], moved.plain(x)[:, 1:]) for step in range(9))
    still = Augment((0.0,) * 3, (1 / 255,) * 3, padding=0, degrees=0.0)
    small = F.interpolate(still.plain(x), size=6, mode="bilinear", antialias=True)
    for step in range(9):
        mixed, _, _ = Pasting(data, 2, 1.0, still, (0,))(small, y, step)
        torch.testing.assert_close(mixed[:, 1:], small[:, 1:])


def test_mixed_precision_does_not_move_a_patch():
    data = greys(2, 2, side=32)
    data.items[:, :, ::2] = 0  # stripes
    x, y = next(iter(data.batches([np.arange(4)])))
    turned = replace(STILL, degrees=30.0)
    pasting = Pasting(data, 2, 1.0, turned, (0,))
    for step in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            mixed, _, _ = pasting(turned.plain(x), y, step)
        assert torch.equal(mixed, pasting(turned.plain(x), y, step)[0])


def test_shares_may_be_mixed_again():
    data = greys(4, 4)
    x, y = batch(data)
    shares = F.one_hot(y, 2).float()
    pasting = Pasting(data, 2, 1.0, STILL, (0,))
    torch.testing.assert_close(pasting(x, shares, 3)[1], pasting(x, y, 3)[1])


def test_candidates_have_patches_of_their_own(monkeypatch):
    keys = []
    monkeypatch.setattr(selection, "Pasting", lambda *a: (keys.append(a[-1]), Pasting(*a))[1])
    method = make(N=2, threshold=-1e9)
    for one in tasks(method)[:2]:
        method.learn(one, Work())
    assert len(keys) == len(set(keys)) == 4  # of two tasks


def test_a_class_without_images_is_never_pasted_and_counts_as_one():
    data = greys(4, 4)
    pasting = Pasting(data, 3, 1.0, STILL, (0,))
    told = pasting.log_counts(log_counts(data.labels, 3), torch.tensor([[0.0], [0.5], [1.0]])).exp()
    torch.testing.assert_close(told, torch.tensor([[4.0, 4.0, 1.0]] * 3))
    assert pasting(*batch(data), 0)[1][:, 2].tolist() == [0.0] * 8


def test_the_first_task_has_patches_too(monkeypatch):
    """There is no old class yet: the patches are those of the task's own classes, in half of the steps."""
    asked: list[torch.Tensor] = []
    cross_entropy = selection.cross_entropy

    def spy(q, y, counts, smoothing):
        asked.append(y)
        return cross_entropy(q, y, counts, smoothing)

    monkeypatch.setattr(selection, "cross_entropy", spy)
    method, without = make(), make(paste=0.0)
    first = tasks(method)[0]
    method.learn(first, Work())
    shares = [y for y in asked if y.ndim == 2]
    assert 0 < len(shares) < len(asked)
    assert all(y.shape[1] == first.num_classes for y in shares)
    assert any((y.max(dim=1).values < 1).any() for y in shares)
    without.learn(first, Work())
    assert digest(method) != digest(without)


def _told_as_it_is(y: torch.Tensor, given: torch.Tensor, counts: np.ndarray) -> bool:
    """Whether each picture's counts are those of its own patch; one of the picture's own class hides its size."""
    n, top = torch.from_numpy(counts).float(), y.max(dim=1).values
    share = (given.exp() - n) / (n.mean() - n)  # (b, C): the same for every class
    off = torch.minimum((share[:, 0] - top).abs(), (share[:, 0] - (1 - top)).abs())[top < 1]
    return bool((share - share[:, :1]).abs().max() < 1e-3 and (off < 1e-3).all())


def test_the_loss_hears_of_it(monkeypatch):
    """L_ce gets the shares and their counts; the teacher sees what the student sees."""
    asked: list[tuple[torch.Tensor, torch.Tensor]] = []
    seen: dict[str, list[torch.Tensor]] = {"student": [], "teacher": []}
    cross_entropy, features, folded = selection.cross_entropy, type(make().net).features, Folded.forward

    def spy(q, y, counts, smoothing):
        asked.append((y, counts))
        return cross_entropy(q, y, counts, smoothing)

    def student(net, x, P, begin=0):
        seen["student"].append(x.detach().clone())
        return features(net, x, P, begin)

    def teacher(net, x):
        seen["teacher"].append(x.detach().clone())
        return folded(net, x)

    method = make(paste=1.0)
    first, second, _ = tasks(method)
    method.learn(first, Work())
    monkeypatch.setattr(selection, "cross_entropy", spy)
    monkeypatch.setattr(type(method.net), "features", student)
    monkeypatch.setattr(Folded, "forward", teacher)
    counts = np.bincount(np.concatenate([*(d.labels for d in method.memory.train.values()), second.train.labels]))
    method.learn(second, Work())
    steps = len(asked)
    assert steps and all(y.shape[1] == 4 for y, _ in asked)
    assert all(_told_as_it_is(y, given, counts) for y, given in asked)
    assert len(seen["teacher"]) == steps
    assert all(any(torch.equal(x, other) for other in seen["student"]) for x in seen["teacher"])
    assert any((y.max(dim=1).values < 1).any() for y, _ in asked)


def test_same_seed_same_bits_and_resume_is_exact(tmp_path):
    check_same_seed_gives_the_same_bits(make)
    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(make, tmp_path / "steps")


def test_what_it_cannot_serve_is_refused():
    s = setting(30)
    lanes, vectors = (replace(s.backbone, **more) for more in ({"join": "lanes", "attention": "none"}, {"shape": (8,)}))
    with pytest.raises(UsageError, match="no whole number of views"):
        RPS(replace(s, backbone=lanes), views=3, paste=0.5)
    with pytest.raises(UsageError, match="not for feature vectors"):
        RPS(replace(s, backbone=vectors), paste=0.5)
    with pytest.raises(UsageError, match=r"options\.paste"):
        make(paste=1.5)


def test_frozen_lanes_see_the_patches_that_the_lane_sees():
    """Where nothing is augmented, the features of a visit are those of the very pictures that the lane is shown."""
    method = lanes(views=4)
    first, *_ = tasks(method)
    method.learn(first, Work())
    frozen, data = fold(method.net, method.P_ts), pictures(range(4), each=6)
    pasting = Pasting(data, 4, 0.5, STILL, (0,))
    views = Views(frozen, data, 4, method.setting.training, STILL, (0,), pasting=pasting)
    x, y = next(iter(views.data.batches([np.arange(len(data))])))
    x, labels = STILL.plain(x), torch.from_numpy(data.labels)
    patched, shares = 0, torch.zeros(4)
    for step in range(20):
        mixed, t, _, f = views.visit(x, y, step)
        torch.testing.assert_close(f, frozen.features(mixed), rtol=1e-4, atol=1e-4)
        changed = (mixed != x).flatten(1).any(dim=1)
        assert torch.equal(t[~changed].argmax(dim=1), labels[~changed])
        patched += int((t.max(dim=1).values < 1).sum())
        shares += t.sum(dim=0)
    assert 0.25 < patched / (20 * len(x)) < 0.5  # half of the views; a patch may be of the same class, or of no pixel
    torch.testing.assert_close(shares.sum(), torch.tensor(20.0 * len(x)))
    again, *_ = views.visit(x, y, 3)
    assert torch.equal(again, views.visit(x, y, 3)[0])


def test_which_views_have_patches():
    method = lanes(views=4)
    first, *_ = tasks(method)
    method.learn(first, Work())
    frozen, data = fold(method.net, method.P_ts), pictures(range(3), each=200)  # more than are computed at a time

    def views(key: int, share: float = 0.25) -> Views:
        pasting = Pasting(data, 3, share, STILL, (0,))
        return Views(frozen, data, 4, method.setting.training, STILL, (key,), pasting=pasting)

    plain, (one, two) = predict(frozen.features, data, STILL), (views(0), views(1))
    for v in range(4):
        same = (one.features[v] - plain).abs().amax(dim=1) < 1e-4
        assert bool(same.all()) == (v > 0)
        if v == 0:  # of all images, those of the last chunk too
            assert int((~same[:300]).sum()) > 0 and int((~same[512:]).sum()) > 0
    assert not torch.equal(one.features[0], two.features[0])
    half = views(0, 0.5)
    assert not torch.equal(half.features[0], half.features[1])
    x, y = next(iter(half.data.batches([np.arange(len(data))])))
    mixed, _, _, f = half.visit(STILL.plain(x), y, 0)
    torch.testing.assert_close(f, frozen.features(mixed), rtol=1e-4, atol=1e-4)


def test_a_lane_with_views_learns_from_patches(monkeypatch):
    """L_ce gets shares of classes, and the balanced softmax their counts."""
    asked: list[tuple[torch.Tensor, torch.Tensor]] = []
    cross_entropy = selection.cross_entropy

    def spy(q, y, counts, smoothing):
        asked.append((y, counts))
        return cross_entropy(q, y, counts, smoothing)

    method = lanes()
    first, second, _ = tasks(method)
    method.learn(first, Work())
    monkeypatch.setattr(selection, "cross_entropy", spy)
    counts = np.bincount(np.concatenate([*(d.labels for d in method.memory.train.values()), second.train.labels]))
    method.learn(second, Work())
    patched = torch.cat([y.max(dim=1).values < 1 for y, _ in asked]).float().mean()
    assert 0.2 < patched < 0.6
    assert all(_told_as_it_is(y, given, counts) for y, given in asked)


def test_a_visit_pastes_into_shrunk_pictures_too():
    data = pictures(range(3), each=4)
    method = lanes(views=2)
    first, *_ = tasks(method)
    method.learn(first, Work())
    frozen = fold(method.net, method.P_ts)
    pasting = Pasting(data, 3, 1.0, STILL, (0,))
    views = Views(frozen, data, 2, method.setting.training, STILL, (0,), pasting=pasting)
    x, y = next(iter(views.data.batches([np.arange(len(data))])))
    small, t, *_ = views.visit(F.interpolate(STILL.plain(x), size=6), y, 0)
    full, t_full, *_ = views.visit(STILL.plain(x), y, 0)
    assert small.shape[2:] == (6, 6) and full.shape[2:] == (8, 8)
    assert (t - t_full).abs().max() < 0.25  # the same patches, to a pixel


def test_lanes_with_views_and_patches_are_the_same_bits_and_go_on_exactly(tmp_path):
    check_same_seed_gives_the_same_bits(lanes)
    check_goes_on_bit_exactly_after_a_round_trip(lanes, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(lanes, tmp_path / "steps")
