"""Twenty steps of training against a plain implementation, setting by setting: losses and weights to far below 1e-5.

Plain: one image after the other is cropped, the network is written out with contiguous tensors, the teacher is not
folded, the losses and the optimizer are their formulas. What is quicker in the package must not be anything else. Both
run in float64: in float32 a maximum or a ReLU that tips over by rounding moves a loss by 1e-4 within twenty steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.engines.serial import quiet
from randpath.keyed import rng
from randpath.learning.compression import compressed, single
from randpath.learning.method import Setting
from randpath.learning.objective import log_counts
from randpath.learning.selection import Job, train_candidate
from randpath.learning.train import Training, batch_indices
from randpath.learning.whitening import fit_stem
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.layers import PathNetwork
from randpath.network.path import Path

STEPS = 20
NEAR = 1e-9
KEY = (0, "exact")
TRAINING = Training(
    epochs=5, batch=16, optimizer="sgd", lr=0.02, weight_decay=5e-4, schedule="one_cycle", smoothing=0.1
)
AUGMENT = Augment((0.5, 0.4, 0.3), (0.25, 0.2, 0.3), padding=2, mirror=True, degrees=0.0)
ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu}
Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def in_float64(monkeypatch) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(Tensor, "float", Tensor.double)  # how pictures become numbers
    yield
    torch.set_default_dtype(before)


def pictures(n: int = 64) -> Arrays:
    draw = np.random.default_rng(0)
    corners = torch.from_numpy(draw.random((n, 3, 4, 4)))
    x = F.interpolate(corners, size=16, mode="bilinear")
    return Arrays((x * 255).byte().permute(0, 2, 3, 1).numpy(), np.arange(n) % 6)


@dataclass
class PlainNetwork:
    """`compact`, written out; `learning` are the names of what is trained, the rest stands still."""

    spec: Backbone
    weights: Weights
    path: Path
    learning: frozenset[str] = frozenset()

    def bn(self, name: str, x: Tensor) -> Tensor:
        w = self.weights
        learns = f"{name}.weight" in self.learning
        return F.batch_norm(
            x, w[f"{name}.running_mean"], w[f"{name}.running_var"], w[f"{name}.weight"], w[f"{name}.bias"], learns
        )

    def __call__(self, x: Tensor) -> Tensor:
        w, act = self.weights, ACTIVATIONS[self.spec.activation]
        if self.spec.stem == "whiten":
            x = act(F.conv2d(x, w["stem.filters"], padding=1))
        last = len(self.path.rows) - 1
        for layer, row in enumerate(self.path.rows):
            outputs = {m: self.module(f"layers.{layer}.parallel.{m}", x) for m, on in enumerate(row) if on}
            skip: Tensor | float = 0.0
            if f"layers.{layer}.skip.1.weight" in w:
                skip = F.conv2d(F.max_pool2d(x, 2), w[f"layers.{layer}.skip.1.weight"])
                skip = self.bn(f"layers.{layer}.skip.2", skip)
            if layer == last and self.spec.attention == "scale":
                outputs = {m: w[f"layers.{layer}.attention.scales"][m] * T for m, T in outputs.items()}
            if layer == last and self.spec.join == "concat":
                x = act(torch.cat([T + skip for T in outputs.values()], dim=1))
            else:
                x = act(sum(outputs.values()) + skip)
        return x.flatten(2).max(dim=2).values @ w["head.weight"].T + w["head.bias"]

    def module(self, name: str, x: Tensor) -> Tensor:
        w = self.weights
        x = self.bn(f"{name}.1", F.conv2d(x, w[f"{name}.0.weight"], padding=1))
        if f"{name}.4.weight" not in w:  # the stem that learns
            return x
        x = ACTIVATIONS[self.spec.activation](F.max_pool2d(x, 2))
        return self.bn(f"{name}.5", F.conv2d(x, w[f"{name}.4.weight"], padding=1))


def plainly(net: PathNetwork, path: Path, spec: Backbone, learning: frozenset[str] = frozenset()) -> PlainNetwork:
    weights = {name: t.detach().clone().contiguous() for name, t in net.weights(path).items()}
    for name in learning:
        weights[name].requires_grad_()
    return PlainNetwork(spec, weights, path, learning)


def cropped(x: np.ndarray, draw: np.random.Generator) -> Tensor:
    """Image by image: padded with black, cut out, mirrored, normalised."""
    p, b = AUGMENT.padding, len(x)
    shift = draw.integers(-p, p + 1, (2, b))
    flip = draw.random(b) < 0.5
    found = []
    for image, down, right, mirrored in zip(x, *shift, flip):
        padded = np.pad(image, ((p, p), (p, p), (0, 0)))
        cut = padded[p + down : p + down + image.shape[0], p + right : p + right + image.shape[1]]
        cut = cut[:, ::-1] if mirrored else cut
        found.append((cut / 255 - np.array(AUGMENT.mean)) / np.array(AUGMENT.std))
    return torch.from_numpy(np.stack(found).transpose(0, 3, 1, 2)).float()


def train_plainly(student: PlainNetwork, data: Arrays, loss, training: Training, key) -> list[float]:
    """SGD with Nesterov's momentum by its formulas; the mean loss of each epoch."""
    velocity: Weights = {}
    losses, step = [], 0
    for epoch in range(training.epochs):
        of_epoch = []
        batches = batch_indices(len(data), training.batch, *key, "batches", epoch)
        for i, chosen in enumerate(batches):
            x = cropped(data.items[chosen], rng(*key, "augment", epoch, i))
            if training.small_side and epoch < round(training.small_share * training.epochs):
                x = F.interpolate(x, size=training.small_side, mode="bilinear", antialias=True)
            total = loss(student(x), x, torch.from_numpy(data.labels[chosen]))
            names = sorted(student.learning)
            gradients = torch.autograd.grad(total, [student.weights[name] for name in names])
            lr = training.lr_at(step, len(batches))
            with torch.no_grad():
                for name, g in zip(names, gradients):
                    p = student.weights[name]
                    g = g + training.weight_decay * p if p.ndim > 1 else g
                    v = g if name not in velocity else training.momentum * velocity[name] + g
                    velocity[name] = v
                    p -= lr * (g + training.momentum * v)
            of_epoch.append(total.item())
            step += 1
        losses.append(sum(of_epoch) / len(of_epoch))
    assert step == STEPS
    return losses


def cross_entropy(q: Tensor, y: Tensor, smoothing: float, counts: Tensor | None = None) -> Tensor:
    weighed = q.exp() if counts is None else counts.exp() * q.exp()
    log_p = weighed.log() - weighed.sum(dim=1, keepdim=True).log()
    shares = torch.ones_like(q) if counts is None else counts.exp().expand_as(q)
    common = (shares / shares.sum(dim=1, keepdim=True) * log_p).sum(dim=1)
    return -((1 - smoothing) * log_p[torch.arange(len(y)), y] + smoothing * common).mean()


def distillation(q: Tensor, q_teacher: Tensor, t: float) -> Tensor:
    p = (q_teacher / t).softmax(dim=1)
    log_student = (q[:, : p.shape[1]] / t).log_softmax(dim=1)
    return (p * (p.log() - log_student)).sum(dim=1).mean()


def agree(weights: Weights, plain: PlainNetwork) -> None:
    for name, tensor in weights.items():
        if not name.endswith("num_batches_tracked"):
            expected = plain.weights[name].detach()
            assert tensor.dtype == torch.float64
            assert torch.allclose(tensor, expected, rtol=NEAR, atol=NEAR), (name, (tensor - expected).abs().max())


SETTINGS = {
    "as the paper": ({}, {}),
    "first_lr": ({}, {"lr": 0.05}),
    "stem=whiten": ({"stem": "whiten"}, {}),
    "activation=gelu": ({"activation": "gelu"}, {}),
    "small_side": ({}, {"small_side": 12}),
    "join=concat": ({"join": "concat"}, {}),
    "attention=scale": ({"attention": "scale"}, {}),
    "all of them": (
        {"stem": "whiten", "activation": "gelu", "join": "concat", "attention": "scale"},
        {"small_side": 12},
    ),
}


def begun(spec: Backbone, data: Arrays) -> tuple[PathNetwork, Path]:
    """A network that knows four classes, on its first path."""
    net = spec.build(0)
    fit_stem(net, data, AUGMENT)
    P = Path.of([[0, 1, 0]] * net.L)
    net.open(P, Path.empty(net.L, 3), Path.empty(net.L, 3), "fresh")
    net.grow_head(4)
    net.train()
    with torch.no_grad():
        net(AUGMENT.plain(torch.from_numpy(data.items[:32])), P)  # statistics that are not those of the beginning
    return net.eval(), P


@pytest.mark.parametrize("start", ["fresh", "copy"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_task_after_a_switch(name, start):
    of_network, of_training = SETTINGS[name]
    spec = replace(Backbone("compact", (16, 16, 3), 3, "none", 8), **of_network)
    training, data = replace(TRAINING, **of_training), pictures()
    setting = Setting(spec, training, AUGMENT)
    net, P_fixed = begun(spec, data)
    P = Path.of([[1, 0, 0]] * net.L)
    counts = log_counts(data.labels, 6)
    job = Job(
        setting=setting, training=training, weights=net.weights(P_fixed), P_fixed=P_fixed, P_before=P_fixed,
        P_last=P_fixed, start=start, num_classes=6, data=data, val=data.take(np.arange(0)),
        teacher=fold(net, P_fixed), phi=1.5, temperature=2.0, log_counts=counts, key=KEY, place=None,
    )  # fmt: skip
    trial = train_candidate(job, 1, (0, P), quiet)

    begins = spec.build(0)
    begins.load_weights(net.weights(P_fixed))
    begins.open(P_fixed | P, P_fixed, P_fixed, start)
    begins.grow_head(6)
    teacher = plainly(net, P_fixed, spec)
    student = plainly(begins, P_fixed | P, spec, frozenset(begins.train_only(P)) & set(begins.weights(P_fixed | P)))

    def loss(q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            q_teacher = teacher(x)
        return cross_entropy(q, y, training.smoothing, counts) + 1.5 * distillation(q, q_teacher, 2.0)

    expected = train_plainly(student, data, loss, training, (*KEY, "candidate", 0))
    found = [line["loss_ce"] + 1.5 * line["loss_dist"] for line in trial.epochs]
    assert found == pytest.approx(expected, rel=NEAR, abs=NEAR)
    assert found[-1] < found[0]
    agree(trial.weights, student)


@pytest.mark.parametrize("join", ["sum", "concat"])
def test_distilling_the_union_into_one_path(join):
    spec, data = Backbone("compact", (16, 16, 3), 3, "none", 8, join=join), pictures()
    net, P = begun(spec, data)
    P_ts = P | Path.of([[1, 0, 0]] * net.L)
    net.open(P_ts, P, P, "fresh")
    setting = Setting(spec, TRAINING, AUGMENT)
    found, epochs = compressed(net, P, P_ts, data, TRAINING, setting, 2.0, warm=True, key=KEY, place=None)
    begins = single(net, P, P_ts, setting, warm=True)
    teacher = plainly(net, P_ts, spec)
    student = plainly(begins, P, spec, frozenset(begins.train_only(P)) & set(begins.weights(P)))

    def loss(q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            q_teacher = teacher(x)
        return 4 * distillation(q, q_teacher, 2.0)

    expected = train_plainly(student, data, loss, TRAINING, KEY)
    assert [4 * line["loss_dist"] for line in epochs] == pytest.approx(expected, rel=NEAR, abs=NEAR)
    agree(found.weights(P), student)
