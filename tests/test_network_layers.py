"""Freezing, growth, and the plain ResNet that M = 1 must be."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.errors import UsageError
from randpath.learning.method import Work
from randpath.learning.train import Training, _optimizer, train_mode
from randpath.methods import METHODS
from randpath.network.backbones import BACKBONES, Backbone, whole
from randpath.network.fold import fold
from randpath.network.heads import Head
from randpath.network.layers import PathNetwork
from randpath.network.path import Path, candidates
from tests.checks import setting, tasks

ATTENTIONS = ["peak", "mean", "conv", "channel", "none"]
SHAPES = {
    "mlp": (8, 8, 1),
    "compact": (32, 32, 3),
    "resnet18_cifar": (16, 16, 3),
    "resnet18_imagenet": (64, 64, 3),
    "resnet32": (16, 16, 3),
}


def build(name: str, M: int = 3, attention: str = "peak", seed: int = 0) -> PathNetwork:
    net = Backbone(name, SHAPES[name], M, attention, width=8).build(seed)  # type: ignore[arg-type]
    net.grow_head(4)
    return net


def images(name: str, n: int = 4) -> Tensor:
    h, w, c = SHAPES[name]
    return torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(0))


def shake_batch_norm(net: nn.Module) -> None:
    """Statistics and scales unlike those of a fresh network, negative scales among them."""
    g = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=g)
            module.running_var.uniform_(0.5, 1.5, generator=g)
            module.weight.data.normal_(0.5, 0.5, generator=g)
            module.bias.data.normal_(0, 0.1, generator=g)


def step(net: PathNetwork, params: dict[str, nn.Parameter], path: Path, x: Tensor) -> None:
    optimizer = torch.optim.SGD(params.values(), lr=0.1)
    F.cross_entropy(net(x, path), torch.arange(len(x)) % net.num_classes).backward()
    optimizer.step()


@pytest.mark.parametrize("name", BACKBONES)
def test_only_the_trained_path_moves(name):
    net = build(name)
    P_fixed = Path.of([[1, 0, 0]] * net.L)
    P = Path.of([[1, 0, 0], *[[0, 1, 0]] * (net.L - 1)])  # shares its first module with P_fixed
    params = net.train_only(P ^ (P & P_fixed))
    train_mode(net, params, len(images(name)))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    step(net, params, P_fixed | P, images(name))
    frozen = {(l, m) for l, m in Path.full(net.L, 3)} - set(P ^ (P & P_fixed))  # noqa: E741
    for key, tensor in net.state_dict().items():
        if any(key.startswith(f"layers.{l}.parallel.{m}.") for l, m in frozen):  # noqa: E741
            assert torch.equal(tensor, before[key]), f"{key} is frozen, batch-norm buffers included"
    for l, m in frozen:  # noqa: E741
        assert all(p.grad is None for p in net.layers[l].parallel[m].parameters())
    moved = [key for key, tensor in net.state_dict().items() if not torch.equal(tensor, before[key])]
    assert any(f"layers.{net.L - 1}.parallel.1." in key for key in moved)
    assert "head.weight" in moved


def test_in_train_mode_what_is_not_trained_stands_still():
    net = build("compact")
    train_mode(net, net.train_only(Path.empty(net.L, 3)), 8)
    normed = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert not any(m.training for layer in net.layers for part in layer.parallel for m in part.modules() if m in normed)
    assert net.layers[1].skip[1].training  # the learnable skips go on learning
    train_mode(net, {"head.weight": net.head.weight}, 8)
    assert not any(m.training for m in normed), "also the skips, where only the head is trained"
    train_mode(net, net.train_only(Path.full(net.L, 3)), 1)
    assert not any(m.training for m in net.modules()), "one image has no batch statistics"


def test_a_path_inside_the_fixed_one_trains_skips_and_head_alone():
    net = build("compact")
    P_fixed = Path.full(net.L, 3)
    P = candidates(8, P_fixed, np.random.default_rng(0))
    assert len(P) == 1
    params = net.train_only(P[0] ^ (P[0] & P_fixed))
    assert params
    assert all("skip" in name or name.startswith("head") for name in params)


@pytest.mark.parametrize("name", BACKBONES)
def test_growing_the_head_leaves_old_rows_alone(name):
    net = build(name)
    weight, bias = net.head.weight.clone(), net.head.bias.clone()
    net.grow_head(7)
    assert torch.equal(net.head.weight[:4], weight)
    assert torch.equal(net.head.bias[:4], bias)
    assert net.num_classes == 7
    with pytest.raises(ValueError, match="cannot shrink"):
        net.grow_head(3)


def test_modules_depend_on_their_own_key_alone():
    few, many = build("compact", M=2), build("compact", M=5)
    for l in range(few.L):  # noqa: E741
        for m in range(2):
            for a, b in zip(few.layers[l].parallel[m].parameters(), many.layers[l].parallel[m].parameters()):
                assert torch.equal(a, b)
    assert not torch.equal(many.layers[0].parallel[0][0].weight, many.layers[0].parallel[1][0].weight)


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build("mlp", attention="conv")
    assert torch.equal(torch.rand(3), expected)


class PlainResNet(nn.Module):
    """A ResNet for small pictures written with torch alone, to hold M = 1 against."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.down = None if i == o else nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.down is None else self.down(x)))

    def __init__(self, w: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, w, 3, padding=1, bias=False), nn.BatchNorm2d(w), nn.ReLU())
        widths = [w, w, w, 2 * w, 2 * w, 4 * w, 4 * w, 8 * w, 8 * w]
        self.blocks = nn.ModuleList(self.Block(i, o) for i, o in zip(widths, widths[1:]))
        self.fc = nn.Linear(8 * w, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for number, block in enumerate(self.blocks, start=2):
            x = block(x)
            if number in (5, 7):
                x = F.max_pool2d(x, 2)
        return self.fc(x.clamp(min=1e-6).pow(3).mean(dim=(2, 3)).pow(1 / 3))


@pytest.mark.parametrize("training", [False, True])
def test_one_module_without_attention_is_a_plain_resnet(training):
    net = build("resnet18_cifar", M=1, attention="none")
    shake_batch_norm(net)
    plain = PlainResNet(8, 4)
    ours = dict(net.state_dict())
    renamed = {}
    for key in plain.state_dict():
        if key.startswith("stem."):
            name = key.replace("stem.", "layers.0.parallel.0.")
        elif key.startswith("fc."):
            name = key.replace("fc.", "head.")
        else:
            _, block, part, *rest = key.split(".")
            layer = f"layers.{int(block) + 1}"
            place = {"conv1": "parallel.0.0", "bn1": "parallel.0.1", "conv2": "parallel.0.3", "bn2": "parallel.0.4"}
            name = ".".join([layer, "skip" if part == "down" else place[part], *rest])
        renamed[key] = ours.pop(name)
    assert not ours, "every weight of ours has its place in a plain ResNet"
    plain.load_state_dict(renamed)
    plain.to(memory_format=torch.channels_last)
    net.train_only(Path.full(net.L, 1))
    net.train(training)
    plain.train(training)
    x = images("resnet18_cifar")
    assert torch.equal(net(x), plain(x))


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_folding_changes_nothing(name, attention):
    net = build(name, attention=attention)
    shake_batch_norm(net)
    net.eval()
    path = Path.random(net.L, 3, np.random.default_rng(0)) | Path.random(net.L, 3, np.random.default_rng(1))
    folded = fold(net, path)
    with torch.no_grad():
        x = images(name, 16)
        assert torch.allclose(net(x, path).softmax(1), folded(x).softmax(1), atol=1e-5)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert not any(p.requires_grad for p in folded.parameters())


def test_weights_of_a_path_are_all_that_it_needs():
    net = build("compact")
    shake_batch_norm(net)
    path = Path.random(net.L, 3, np.random.default_rng(2))
    other = build("compact", seed=9)
    other.load_weights(net.weights(path))
    net.eval()
    other.eval()
    x = images("compact")
    assert torch.equal(net(x, path), other(x, path))
    assert len(net.weights(path)) < len(net.state_dict())


def test_candidates_differ_in_the_network_they_make():
    P_fixed = Path.of([[1, 1, 0], [1, 0, 0]])
    paths = candidates(6, P_fixed, np.random.default_rng(0))
    assert len(paths) == 6  # 2 unions in layer 1 (used or unused) x 3 in layer 2
    assert len({P_fixed | P for P in paths}) == 6
    assert len(candidates(100, P_fixed, np.random.default_rng(0))) == 6


@pytest.mark.parametrize(("P_fixed", "networks"), [(Path.empty(1, 2), 2), (Path.full(1, 2), 1)])
def test_nothing_is_drawn_after_the_last_network_that_can_be_made(P_fixed, networks):
    """Of two unused modules either makes one; of two used ones both make the same."""
    draw, again = np.random.default_rng(0), np.random.default_rng(0)
    paths = candidates(8, P_fixed, draw)
    assert len(paths) == networks
    while Path.random(1, 2, again) != paths[-1]:
        pass
    assert draw.bit_generator.state == again.bit_generator.state


def test_a_wrong_backbone_is_named():
    with pytest.raises(ValueError, match="there is no backbone 'resnet'; there are"):
        Backbone("resnet", (32, 32, 3)).build(0)
    with pytest.raises(ValueError, match="takes images"):
        Backbone("compact", (100,)).build(0)


def test_a_network_of_ones_own_is_a_backbone(monkeypatch):
    """It learns, its features reach the classifier as they are, and its batch-norm is in what answers."""

    def build() -> nn.Module:
        conv = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Tanh(), nn.AdaptiveAvgPool2d(2))
        return nn.Sequential(conv, nn.Flatten())

    monkeypatch.setitem(BACKBONES, "mine", whole(build, 24))
    s = setting()
    own = replace(s, backbone=Backbone("mine", (8, 8, 1), M=1, attention="none"))
    method = METHODS["rehearsal"](own)
    for one in tasks(method):
        method.learn(one, Work())
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    method.net.eval()
    module = method.net.layers[0].parallel[0].net
    assert module[0][1].num_batches_tracked > 0
    with torch.no_grad():
        torch.testing.assert_close(method.inference().features(x), module(x))
        torch.testing.assert_close(method.inference()(x), method.net(x))
    assert METHODS["rps"](own, N=2).learn(tasks(method)[0], Work()).saturation is not None
    with pytest.raises(UsageError, match="modules=1"):
        METHODS["rps"](replace(s, backbone=replace(own.backbone, M=2)))


def test_a_cosine_head_grows_and_compares_directions():
    head = Head("cosine", 2, 0)
    head.grow(2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    q = head(torch.tensor([[3.0, 4.0]]))  # cosines 0.6 and 0.8, scale 10
    torch.testing.assert_close(q, torch.tensor([[6.0, 8.0]]))
    head.grow(3)
    torch.testing.assert_close(head(torch.tensor([[3.0, 4.0]]))[:, :2], q)
    params = dict(head.named_parameters())
    grouped = [p for group in _optimizer(head, list(params.values()), Training()).param_groups for p in group["params"]]
    assert {id(p) for p in grouped} == {id(p) for p in params.values()}, "the scale learns too"


@pytest.mark.parametrize(("name", "side"), [("resnet18_cifar", (20, 12)), ("resnet32", (9, 13)), ("compact", (16, 24))])
def test_attention_over_positions_fits_pictures_that_are_not_square(name, side):
    net = Backbone(name, (*side, 3), M=2, attention="conv", width=4).build(0)
    net.grow_head(2)
    assert net(torch.zeros(2, 3, *side), Path.full(net.L, 2)).shape == (2, 2)
