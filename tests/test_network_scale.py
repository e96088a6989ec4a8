"""attention=scale: one learned weight for each module of the last layer; it folds into the module."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from randpath.learning.method import Work
from randpath.methods.rps import RPS
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    setting,
    tasks,
)

SHAPES = {"mlp": (8, 8, 3), "compact": (16, 16, 3), "resnet18_cifar": (16, 16, 3), "resnet32": (16, 16, 3)}


def build(name: str, attention: str, join: str = "sum") -> tuple[PathNetwork, Path]:
    """With two modules of each layer on, a classifier, and batch-norm that has seen images."""
    net = Backbone(name, SHAPES[name], 3, attention, 8, join=join).build(0)  # type: ignore[arg-type]
    P = Path.of([[1, 0, 1]] * net.L)
    net.open(P, Path.empty(net.L, 3), Path.empty(net.L, 3), "fresh")
    net.grow_head(4)
    net.train()
    net(images(name, 8), P)
    net.eval()
    return net, P


def images(name: str, n: int = 6) -> torch.Tensor:
    h, w, c = SHAPES[name]
    return torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(0))


def learned_scales(net: PathNetwork) -> torch.Tensor:
    return net.layers[-1].attention.scales


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("join", ["sum", "concat"])
@torch.no_grad()
def test_it_begins_at_the_plain_sum_and_folds_away(name, join):
    net, P = build(name, "scale", join)
    plain, _ = build(name, "none", join)
    x = images(name)
    assert torch.allclose(net(x, P), plain(x, P), atol=1e-6)
    learned_scales(net).copy_(torch.tensor([0.5, 7.0, -2.0]))
    folded, without = fold(net, P), fold(plain, P)
    assert torch.allclose(net(x, P), folded(x), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(net(x, P), plain(x, P), atol=1e-2)
    assert folded.layers[-1].attention is None
    shapes = [{key: t.shape for key, t in module.state_dict().items()} for module in (folded, without)]
    assert shapes[0] == shapes[1]  # it costs nothing at inference


@torch.no_grad()
def test_by_hand():
    net = Backbone("mlp", (2,), 2, "scale", 2).build(0)
    net.grow_head(3)
    learned_scales(net).copy_(torch.tensor([0.5, -2.0]))
    A, B = net.layers[1].parallel
    x = torch.tensor([[0.3, -1.2]])
    h = torch.relu(net.layers[0].parallel[0][1](x) + net.layers[0].parallel[1][1](x))
    expected = net.head(torch.relu(0.5 * A(h) - 2 * B(h) + h))
    assert torch.allclose(net(x, Path.full(2, 2)), expected, atol=1e-6)


def test_a_module_that_adds_nothing_wakes_up():
    net, _ = build("compact", "scale")
    P = Path.of([[1, 0, 0]] * net.L)
    net.open(P | Path.of([[0, 1, 0]] * net.L), P, P, "copy")
    new = net.layers[-1].parallel[1]
    assert not new[-1].weight.any()
    net.train_only(Path.of([[0, 1, 0]] * net.L))
    net(images("compact"), P | Path.of([[0, 1, 0]] * net.L)).square().sum().backward()
    assert new[-1].weight.grad.any()


def make(backbone: str = "mlp", join: str = "sum", budget: int = 30) -> RPS:
    s = setting(budget, backbone)
    s = replace(s, backbone=replace(s.backbone, join=join, attention="scale"))
    return RPS(s, N=1, switch_every=1, start="copy", open_layers=1)


@pytest.mark.parametrize(("backbone", "join"), [("mlp", "sum"), ("compact", "concat")])
def test_frozen_modules_stand_still_and_their_weights_learn(backbone, join):
    method = make(backbone, join)
    scales = []
    for one in tasks(method):
        before = {name: t.clone() for name, t in method.net.state_dict().items()}
        learned = method.learn(one, Work())
        assert learned.saturation is not None
        scales.append(learned_scales(method.net).detach().clone())
        if one.k > 1:
            frozen = [f"layers.{l}.parallel.{m}." for l, m in method.P_fixed]  # noqa: E741
            for name, tensor in method.net.state_dict().items():
                assert not name.startswith(tuple(frozen)) or torch.equal(tensor, before[name]), name
    first = method.P_fixed.rows[-1].index(True)
    assert len({float(own[first]) for own in scales}) == 3  # one of a frozen module
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    method.net.eval()
    with torch.no_grad():
        assert torch.allclose(method.inference()(x), method.net(x, method.P_ts), rtol=1e-4, atol=1e-4)


def test_resume_is_exact(tmp_path):
    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(make, tmp_path / "steps")


def test_onnx_agrees():
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'randpath[onnx]'")
    pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
    from randpath.model.onnx import Answering, export

    method = make("compact", "concat")
    for one in tasks(method, (2, 1)):
        method.learn(one, Work())
    answering = Answering(method.inference(), method.setting.augment)
    proto = export(answering, torch.zeros(2, 8, 8, 1, dtype=torch.uint8), "images", "logits")
    x = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    q = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"images": x})[0]
    np.testing.assert_allclose(q, answering(torch.from_numpy(x)).numpy(), rtol=1e-3, atol=1e-4)
