"""What a new path begins from, how it joins, which layers it opens: the settings of a switch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from randpath.learning.method import Work
from randpath.methods.rps import RPS
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.layers import PathNetwork
from randpath.network.path import Path, last_layers
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    setting,
    tasks,
)

SHAPES = {"mlp": (8, 8, 3), "compact": (16, 16, 3), "resnet18_cifar": (16, 16, 3)}


def build(name: str = "compact", join: str = "concat", attention: str = "none") -> PathNetwork:
    return Backbone(name, SHAPES[name], 3, attention, 8, join=join).build(0)  # type: ignore[arg-type]


def images(name: str = "compact", n: int = 6) -> Tensor:
    h, w, c = SHAPES[name]
    return torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(0))


def first_path(net: PathNetwork, m: int = 1) -> Path:
    return Path.of([[int(i == m) for i in range(3)]] * net.L)


def opened(name: str, join: str, start: str, attention: str = "none") -> tuple[PathNetwork, Path, Path]:
    """A network that has learned on path 1, batch-norm included, and has just opened path 0 or 2 beside it."""
    net = build(name, join, attention)
    P = first_path(net)
    net.open(P, Path.empty(net.L, 3), Path.empty(net.L, 3), start)  # type: ignore[arg-type]
    net.grow_head(4)
    net.train_only(P)
    net.train()
    net(images(name), P)
    P_ts = P | Path.of([[1, 0, 0]] * (net.L - 1) + [[0, 0, 1]])
    net.open(P_ts, P, P, start)  # type: ignore[arg-type]
    net.eval()
    return net, P, P_ts


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("join", "start"), [("sum", "copy"), ("sum", "zero"), ("concat", "copy"), ("concat", "zero")])
def test_a_switch_changes_no_answer_before_the_first_step(name, join, start):
    net, P, P_ts = opened(name, join, start)
    before = build(name, join)
    weights = dict(net.weights(P))
    weights["head.weight"] = weights["head.weight"][:, : net.num_features]  # module 1 stands before module 2
    before.load_weights(weights)
    before.eval()
    with torch.no_grad():
        x = images(name)
        assert torch.allclose(net(x, P_ts), before(x, P), atol=1e-6)


@pytest.mark.parametrize("start", ["fresh", "zero", "copy"])
def test_a_switch_leaves_what_was_on_as_it_is(start):
    net = build("mlp", "sum")
    P = first_path(net)
    net.grow_head(4)
    before = {name: tensor.clone() for name, tensor in net.weights(P).items()}
    net.open(P | Path.of([[1, 0, 0]] * net.L), P, P, start)
    after = net.weights(P)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_fresh_module_is_the_one_that_was_drawn():
    net, P, P_ts = opened("compact", "sum", "fresh")
    drawn = build(join="sum")
    for l, m in P_ts ^ (P & P_ts):  # noqa: E741
        for a, b in zip(net.layers[l].parallel[m].parameters(), drawn.layers[l].parallel[m].parameters()):
            assert torch.equal(a, b)


def test_a_copy_has_the_weights_and_statistics_of_the_module_trained_last():
    net, *_ = opened("compact", "concat", "copy")
    last = net.layers[-1].parallel
    for name, tensor in last[1].state_dict().items():
        assert torch.equal(tensor, last[2].state_dict()[name]), name
    below = net.layers[-2].parallel  # which sums: its copy adds nothing at first
    assert torch.equal(below[1][0].weight, below[0][0].weight)
    assert not below[0][-1].weight.any()


def test_concatenation_by_hand():
    """Two modules of one linear map each, no skip in layer 1, the identity in layer 2: q is written out."""
    net = Backbone("mlp", (2,), 2, "none", 2, join="concat").build(0)
    P_ts = Path.of([[1, 0], [1, 1]])
    net.open(P_ts, Path.empty(2, 2), Path.empty(2, 2), "fresh")
    net.grow_head(3)
    assert net.head.weight.shape == (3, 4)
    x = torch.tensor([[0.3, -1.2]])
    (A,), (B, C) = ([net.layers[0].parallel[0][1]], net.layers[1].parallel)
    h = torch.relu(A(x))
    expected = net.head(torch.cat([torch.relu(B(h) + h), torch.relu(C(h) + h)], dim=1))
    assert torch.equal(net(x, P_ts), expected)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("attention", ["none", "peak", "mean"])
def test_folding_changes_nothing(name, attention):
    net, _, P_ts = opened(name, "concat", "copy", attention)
    with torch.no_grad():
        net.head.weight.normal_(generator=torch.Generator().manual_seed(2))
        x = images(name, 16)
        folded = fold(net, P_ts)
        assert torch.allclose(net(x, P_ts), folded(x), rtol=1e-4, atol=1e-4)


def test_new_columns_do_not_move_the_old_ones():
    net = build()
    empty = Path.empty(net.L, 3)
    P = first_path(net)
    net.open(P, empty, empty, "fresh")
    net.grow_head(4)
    old = net.head.weight.clone()
    P_ts = P | first_path(net, 0)
    net.open(P_ts, P, P, "fresh")
    n = net.num_features
    assert not net.head.weight[:, :n].any()  # module 0, new
    assert torch.equal(net.head.weight[:, n:], old)  # module 1
    assert net.head.num_features == 2 * n


def test_the_last_layers_open_unused_modules_alone():
    last = Path.of([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    P_fixed = last | Path.of([[1, 0, 0], [1, 0, 0], [1, 0, 0]])
    paths = last_layers(8, 2, last, P_fixed, np.random.default_rng(0))
    assert [P.to_lists() for P in paths] == [[[1, 0, 0], [0, 0, 1], [0, 1, 0]]]  # one is left in each
    everywhere = last_layers(8, 3, last, P_fixed, np.random.default_rng(0))
    assert sorted(P.rows[0].index(True) for P in everywhere) == [1, 2]
    assert last_layers(8, 3, last, Path.full(3, 3), np.random.default_rng(0)) == [last]  # nothing is left


@pytest.mark.parametrize("backbone", ["mlp", "compact"])
def test_frozen_modules_are_byte_identical_ever_after(backbone):
    method = make(backbone, N=2)
    frozen: dict[str, Tensor] = {}
    for one in tasks(method):
        learned = method.learn(one, Work())
        assert learned.saturation is not None
        after = method.net.state_dict()
        for name, tensor in frozen.items():
            assert torch.equal(after[name], tensor), name
        wanted = tuple(f"layers.{l}.parallel.{m}." for l, m in method.P_ts)  # noqa: E741
        frozen |= {name: tensor.clone() for name, tensor in after.items() if name.startswith(wanted)}
    assert [sum(row) for row in method.P_ts.rows] == [1] * (method.net.L - 1) + [3]
    assert method.net.head.num_features == 3 * method.net.num_features
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(method.inference()(x), method.inference()(x), atol=1e-4)


def make(backbone: str = "mlp", N: int = 1, budget: int = 30) -> RPS:
    s = setting(budget, backbone)
    s = replace(s, backbone=replace(s.backbone, join="concat", attention="none"))
    return RPS(s, N=N, switch_every=1, start="copy", open_layers=1)


@pytest.mark.parametrize("backbone", ["mlp", "compact"])
def test_resume_is_exact(backbone, tmp_path):
    check_goes_on_bit_exactly_after_a_round_trip(lambda: make(backbone), tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(lambda: make(backbone), tmp_path / "steps")


def test_wrong_options_are_refused_by_name():
    with pytest.raises(ValueError, match="start must be"):
        RPS(setting(), start="new")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="open_layers must be"):
        RPS(setting(), open_layers=0)
