"""The whitening stem and the activation: what they compute, and that all the rest works with them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from randpath.bench.experiment import Experiment
from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.learning.method import Work
from randpath.learning.whitening import fit_stem, patch_covariance
from randpath.methods import METHODS
from randpath.methods.rps import RPS
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.path import Path
from randpath.network.stem import EPSILON, Whitening
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    digest,
    setting,
    tasks,
)

PLAIN = Augment((0.0,), (1 / 255,))  # pixels as they are


def whitened(width: int = 8, **changes):
    backbone = Backbone("compact", (8, 8, 1), 3, "none", width, stem="whiten", activation="gelu")
    return replace(setting(), backbone=backbone, **changes)


def noise(n: int = 300, shape: tuple[int, ...] = (12, 12, 3)) -> Arrays:
    """Pictures whose neighbouring pixels are alike, and whose channels are."""
    rng = np.random.default_rng(0)
    fine = rng.normal(0, 25, (n, *shape)) + rng.normal(0, 30, (n, 1, 1, shape[2])) + rng.normal(0, 30, (n, 12, 12, 1))
    return Arrays(np.clip(128 + fine, 0, 255).astype(np.uint8), np.zeros(n, np.int64))


def test_the_covariance_by_hand():
    """Two pictures of one patch each, all zeros and all twos: each of the nine pixels has variance 1, and so has each
    pair. The only direction is (1, .., 1) / 3, with variance 9; the filter is that over sqrt(9 + epsilon)."""
    data = Arrays(np.stack([np.zeros((3, 3, 1), np.uint8), np.full((3, 3, 1), 2, np.uint8)]), np.zeros(2, np.int64))
    assert np.allclose(patch_covariance(data, PLAIN, 0), np.ones((9, 9)))
    stem = Whitening(1, nn.Identity())
    assert stem.outputs == 18  # nine pixels have nine directions, each with its negative
    stem.fit(patch_covariance(data, PLAIN, 0))
    assert torch.allclose(stem.filters[0], torch.full((1, 3, 3), 1 / 3 / (9 + EPSILON) ** 0.5))
    assert torch.equal(stem.filters[9:], -stem.filters[:9])
    assert Whitening(3, nn.Identity()).outputs == 24  # of 27 directions the first twelve


def test_what_leaves_the_stem_is_white():
    data, augment = noise(), Augment((0.5,) * 3, (0.2,) * 3)
    stem = Whitening(3, nn.Identity())
    stem.fit(patch_covariance(data, augment, 0))
    y = stem(augment.plain(torch.from_numpy(data.items)))[:, :12, 1:-1, 1:-1]
    covariance = np.cov(y.transpose(0, 1).flatten(1).double().numpy())
    off = covariance - np.diag(np.diag(covariance))
    assert np.abs(off).max() < 1e-5
    values = np.sort(np.linalg.eigvalsh(patch_covariance(data, augment, 0)))[::-1][:12]
    assert np.allclose(np.diag(covariance), values / (values + EPSILON), atol=1e-4)  # nearly 1
    assert (np.diag(covariance) > 0.95).all()
    again = Whitening(3, nn.Identity())
    again.fit(patch_covariance(data, augment, 0))
    assert torch.equal(again.filters, stem.filters)


@pytest.mark.parametrize("name", ["rps", "rehearsal", "joint", "finetune"])
def test_it_is_made_from_the_first_task_and_never_moves(name):
    method = METHODS[name](whitened())
    seen = []
    for one in tasks(method):
        method.learn(one, Work())
        net = method.net
        seen.append(net.stem.filters.clone())
        expected = Whitening(1, nn.GELU())
        first = one.train if one.k == 1 or name == "joint" else tasks(method)[0].train
        expected.fit(patch_covariance(first, method_augment(method), 0))
        assert torch.equal(seen[-1], expected.filters)
        assert "stem.filters" in method.state_dict().tensors["weights"]
    assert not any("stem" in parameter for parameter, _ in net.named_parameters())


def method_augment(method) -> Augment:
    return method.setting.augment


@pytest.mark.parametrize("name", ["rps", "rehearsal"])
def test_resume_is_exact(name, tmp_path):
    def make():
        return METHODS[name](whitened(), **({"N": 2, "switch_every": 1} if name == "rps" else {}))

    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(make, tmp_path / "steps")
    first, second = make(), make()
    for one in tasks(first)[:2]:
        first.learn(one, Work())
        second.learn(one, Work())
    assert digest(first) == digest(second)


@pytest.mark.parametrize("backbone", ["compact", "resnet18_cifar"])
@pytest.mark.parametrize("attention", ["peak", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_folding_changes_nothing(backbone, attention, activation):
    net = Backbone(backbone, (16, 16, 3), 3, attention, 8, "whiten", activation).build(0)
    fit_stem(net, noise(), Augment((0.5,) * 3, (0.2,) * 3))
    net.grow_head(4)
    net.train_only(Path.full(net.L, 3))
    x = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    net.train()
    net(x)  # moves the batch-norms
    net.eval()
    path = Path.random(net.L, 3, np.random.default_rng(0)) | Path.random(net.L, 3, np.random.default_rng(1))
    folded = fold(net, path)
    with torch.no_grad():
        assert torch.allclose(net(x, path), folded(x), atol=1e-4)
    assert any(isinstance(m, nn.GELU) for m in folded.modules()) == (activation == "gelu")


def test_it_is_no_part_of_the_path_and_not_counted_as_learned():
    net = Backbone("compact", (16, 16, 3), 2, "none", 8, "whiten").build(0)
    learned = Backbone("compact", (16, 16, 3), 2, "none", 8).build(0)
    assert net.L == learned.L - 1
    path = Path.of([[1, 0]] * net.L)
    assert len(net.parameters_of_path(path)) == 6 * net.L  # two convolutions and the scales and shifts behind them
    assert net.num_parameters(path) == sum(
        p.numel() for name, p in net.named_parameters() if ".parallel.1." not in name
    )


def test_mu_sat_is_measured_with_it():
    learned = RPS(whitened(), N=1).learn(tasks(RPS(whitened(), N=1))[0], Work())
    assert learned.saturation is not None
    assert np.isfinite(learned.saturation)


def test_a_network_that_has_learned_keeps_its_stem():
    net = Backbone("compact", (12, 12, 3), 1, "none", 8, "whiten").build(0)
    fit_stem(net, noise(), Augment((0.5,) * 3, (0.2,) * 3))
    net.grow_head(2)
    before = net.stem.filters.clone()
    fit_stem(net, Arrays(noise().items[:5] // 2, np.zeros(5, np.int64)), Augment((0.5,) * 3, (0.2,) * 3))
    assert torch.equal(net.stem.filters, before)


def test_wrong_settings_are_refused_by_name():
    with pytest.raises(ValueError, match="stem must be learned, whiten; got 'white'"):
        Experiment("digits", 5).with_settings(["stem=white"])
    with pytest.raises(ValueError, match="activation must be relu, gelu; got 'tanh'"):
        Experiment("digits", 5).with_settings(["activation=tanh"])
    with pytest.raises(ValueError, match="stem=whiten is for compact and resnet18_cifar, not for mlp"):
        Backbone("mlp", (8, 8, 1), stem="whiten").build(0)
    with pytest.raises(ValueError, match="at least 3 x 3, got 2 x 8"):
        patch_covariance(Arrays(np.zeros((4, 2, 8, 1), np.uint8), np.zeros(4, np.int64)), PLAIN, 0)


def test_a_sample_of_many_images_has_none_twice(monkeypatch):
    """Nineteen of twenty: the covariance is that of all but one of them."""
    data = noise(20)
    monkeypatch.setattr("randpath.learning.whitening.IMAGES", 19)
    got = patch_covariance(data, PLAIN, 0)
    without = [patch_covariance(data.take(np.delete(np.arange(20), i)), PLAIN, 0) for i in range(20)]
    assert sum(np.allclose(got, one) for one in without) == 1


def test_weak_directions_are_made_white_and_weakest_ones_are_not_blown_up():
    """Variance 0.05 leaves as 0.9 or more; a variance of 0 is scaled by no more than 15."""
    stem = Whitening(1, nn.Identity())
    stem.fit(np.diag([0.05] * 8 + [0.0]))
    size = stem.filters[:9].flatten(1).norm(dim=1)
    assert sorted((size.square() * 0.05 > 0.9).tolist()) == [True] * 9
    assert size.max() < 15
