"""The networks: functions that return a PathNetwork. Module (l, m) is initialised from its own key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.errors import UsageError
from randpath.network.heads import HeadKind
from randpath.network.layers import Attention, Join, PathAttention, PathLayer, PathNetwork, Whole, WithSkip
from randpath.network.seeded import seeded
from randpath.network.stem import Whitening

Activation = Literal["relu", "gelu"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}
Stem = Literal["learned", "whiten"]


class GeM(nn.Module):
    """Generalised mean pooling: (mean over h, w of x^p)^(1/p), p = 3 (section 4.1)."""

    def __init__(self, p: float = 3.0):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, c)
        # The clamp keeps the gradient of the root finite where a channel is silent.
        return x.clamp(min=1e-6).pow(self.p).mean(dim=(2, 3)).pow(1 / self.p)


class GlobalMax(nn.Module):
    """The peak of each channel."""

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, c)
        return x.amax(dim=(2, 3))


class GlobalMean(nn.Module):
    """The mean of each channel."""

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, c)
        return x.mean(dim=(2, 3))


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


def residual(inputs: int, outputs: int, stride: int = 1, activation: Activation = "relu") -> nn.Module:
    """conv-bn-relu-conv-bn (section 3.1)."""
    act = ACTIVATIONS[activation]()
    return nn.Sequential(*conv_bn(inputs, outputs, 3, stride), act, *conv_bn(outputs, outputs, 3))


def shortcut(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """The skip: identity if the shape is kept, learnable otherwise."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(*conv_bn(inputs, outputs, 1, stride))


@dataclass(frozen=True)
class Backbone:
    """Which network to build: all that a candidate's process needs to build it again, bit for bit."""

    name: str
    shape: tuple[int, ...]  # of one input: (h, w, c) or (d,)
    M: int = 8  # parallel modules a layer (section 4.1)
    attention: Attention = "peak"  # of the last layer
    width: int | None = None  # none: the backbone's own
    stem: Stem = "learned"  # "whiten": fixed filters in place of the first layer
    activation: Activation = "relu"
    join: Join = "sum"  # of the last layer; "lanes": of all
    head: HeadKind = "linear"

    def build(self, seed: int) -> PathNetwork:
        if self.name not in BACKBONES:
            raise UsageError(f"there is no backbone {self.name!r}; there are {', '.join(BACKBONES)}")
        if self.M < 1:
            raise UsageError(f"a layer needs at least one module, got M = {self.M}")
        if self.stem == "whiten" and self.name not in WHITENED:
            raise UsageError(f"stem=whiten is for {' and '.join(WHITENED)}, not for {self.name}")
        if self.join == "lanes" and self.attention != "none":
            raise UsageError("lanes are weighed by the classifier alone: add --set attention=none to join=lanes")
        net = BACKBONES[self.name](self, seed)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the pictures come
        return net


@dataclass(frozen=True)
class _Layer:
    """The parts of one layer, not yet built."""

    module: Callable[[], nn.Module]
    skip: Callable[[], nn.Module] | None
    after: Callable[[], nn.Module] | None = None


def _assemble(
    spec: Backbone,
    seed: int,
    parts: list[_Layer],
    pool: nn.Module,
    features: int,
    positions: int,
    stem: Whitening | None = None,
) -> PathNetwork:
    layers, lanes = [], spec.join == "lanes"
    for l, part in enumerate(parts):  # noqa: E741
        attention = None
        if l == len(parts) - 1 and spec.attention != "none":
            attention = seeded(
                lambda: PathAttention(spec.attention, spec.M, features, positions), seed, "attention", spec.attention
            )
        layers.append(
            PathLayer(
                [_module(part, seed, l, m, lanes) for m in range(spec.M)],
                None if part.skip is None or lanes else seeded(part.skip, seed, "skip", l),
                None if part.after is None else part.after(),
                attention,
                ACTIVATIONS[spec.activation](),
                spec.join if l == len(parts) - 1 or lanes else "sum",
            )
        )
    return PathNetwork(layers, pool, features, seed, stem, spec.head)


def _module(part: _Layer, seed: int, l: int, m: int, lanes: bool) -> nn.Module:  # noqa: E741
    """Module (l, m); in lanes with the skip of its own."""
    module = seeded(part.module, seed, "init", l, m)
    if part.skip is None or not lanes:
        return module
    return WithSkip(module, seeded(part.skip, seed, "skip", l, m))


def _image_shape(spec: Backbone) -> tuple[int, int, int]:
    if len(spec.shape) != 3:
        raise UsageError(f"backbone {spec.name} takes images (h, w, c), got items of shape {spec.shape}; use mlp")
    h, w, c = spec.shape
    return h, w, c


def _stem(spec: Backbone, channels: int, outputs: int) -> tuple[Whitening | None, list[_Layer], int]:
    """The fixed stem, or the layer that learns in its place, and the number of channels that leave it."""
    if spec.stem == "whiten":
        fixed = Whitening(channels, ACTIVATIONS[spec.activation]())
        return fixed, [], fixed.outputs
    return None, [_Layer(lambda: nn.Sequential(*conv_bn(channels, outputs, 3)), None)], outputs


def resnet18_cifar(spec: Backbone, seed: int) -> PathNetwork:
    """Nine blocks (64-64-64-128-128-256-256-512-512 channels), max pooling after 5 and 7, GeM after 9 (section 4.1)."""
    h, w, c = _image_shape(spec)
    base = spec.width or 64
    stem, parts, first = _stem(spec, c, base)
    widths = [first, *(base * n for n in (1, 1, 2, 2, 4, 4, 8, 8))]
    for block, (inputs, outputs) in enumerate(zip(widths, widths[1:]), start=2):
        parts.append(
            _Layer(
                lambda i=inputs, o=outputs: residual(i, o, 1, spec.activation),  # type: ignore[misc]
                lambda i=inputs, o=outputs: shortcut(i, o),  # type: ignore[misc]
                (lambda: nn.MaxPool2d(2)) if block in (5, 7) else None,
            )
        )
    return _assemble(spec, seed, parts, GeM(3), widths[-1], (h // 4) * (w // 4), stem)


def resnet18_imagenet(spec: Backbone, seed: int) -> PathNetwork:
    """The standard resnet-18: a 7 x 7 stem with pooling, four stages of two blocks, global average pooling."""
    h, w, c = _image_shape(spec)
    base = spec.width or 64
    parts = [_Layer(lambda: nn.Sequential(*conv_bn(c, base, 7, 2)), None, lambda: nn.MaxPool2d(3, 2, 1))]
    inputs = base
    for stage in range(4):
        for block in range(2):
            outputs, stride = base * 2**stage, 2 if stage and not block else 1
            parts.append(
                _Layer(
                    lambda i=inputs, o=outputs, s=stride: residual(i, o, s, spec.activation),  # type: ignore[misc]
                    lambda i=inputs, o=outputs, s=stride: shortcut(i, o, s),  # type: ignore[misc]
                )
            )
            inputs = outputs
    positions = 1
    for side in (h, w):
        for _ in range(5):  # the stem, its pooling and three stages halve the picture, rounding up
            side = (side + 1) // 2
        positions *= side
    return _assemble(spec, seed, parts, GlobalMean(), inputs, positions)


class Halved(nn.Module):
    """The skip of resnet32 where a stage begins: every second pixel, and zeros for the new channels."""

    def __init__(self, new_channels: int):
        super().__init__()
        self.new_channels = new_channels

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, c + new, h / 2, w / 2), rounded up
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.new_channels))


def resnet32(spec: Backbone, seed: int) -> PathNetwork:
    """The field's network for CIFAR: three stages of five blocks, 16-32-64 channels (He et al. 2016, section 4.2)."""
    h, w, c = _image_shape(spec)
    base = spec.width or 16
    parts = [_Layer(lambda: nn.Sequential(*conv_bn(c, base, 3)), None)]
    inputs = base
    for stage in range(3):
        for block in range(5):
            outputs, stride = base * 2**stage, 2 if stage and not block else 1
            parts.append(
                _Layer(
                    lambda i=inputs, o=outputs, s=stride: residual(i, o, s, spec.activation),  # type: ignore[misc]
                    (lambda n=outputs - inputs: Halved(n)) if stride == 2 else nn.Identity,  # type: ignore[misc]
                )
            )
            inputs = outputs
    return _assemble(spec, seed, parts, GlobalMean(), inputs, ((h + 3) // 4) * ((w + 3) // 4))


def mlp(spec: Backbone, seed: int) -> PathNetwork:
    """Two layers of `width` neurons (400, section 4.1); a module is one linear map.

    No skip in layer 1 (a learnable linear skip could undo any frozen module), the identity in layer 2.
    """
    width = spec.width or 400
    inputs = 1
    for n in spec.shape:
        inputs *= n
    parts = [
        _Layer(lambda: nn.Sequential(nn.Flatten(), nn.Linear(inputs, width)), None),
        _Layer(lambda: nn.Linear(width, width), nn.Identity),
    ]
    return _assemble(spec, seed, parts, nn.Identity(), width, 1)


def compact(spec: Backbone, seed: int) -> PathNetwork:
    """A cheap CNN for small pictures on CPUs: a stem and three layers that halve the picture (ours, not the paper's).

    Inside a module the pooling stands behind the batch-norm (conv-bn-pool-relu-conv-bn), so that it folds; in the
    middle of the module it saves three quarters of the second convolution.
    """
    h, w, c = _image_shape(spec)
    base = spec.width or 48
    stem, parts, first = _stem(spec, c, max(4, base // 2))
    widths = [first, base, base * 8 // 3, 4 * base]

    def module(inputs: int, outputs: int) -> nn.Module:
        act = ACTIVATIONS[spec.activation]()
        return nn.Sequential(*conv_bn(inputs, outputs, 3), nn.MaxPool2d(2), act, *conv_bn(outputs, outputs, 3))

    def skip(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.MaxPool2d(2), *conv_bn(inputs, outputs, 1))

    for inputs, outputs in zip(widths, widths[1:]):
        parts.append(
            _Layer(
                lambda i=inputs, o=outputs: module(i, o),  # type: ignore[misc]
                lambda i=inputs, o=outputs: skip(i, o),  # type: ignore[misc]
            )
        )
    return _assemble(spec, seed, parts, GlobalMax(), widths[-1], (h // 8) * (w // 8), stem)


def whole(build: Callable[[], nn.Module], num_features: int) -> Callable[[Backbone, int], PathNetwork]:
    """A backbone made of any module that turns images into `num_features` numbers each: BACKBONES["mine"] = whole(...).

    It has one module in one layer, so it is for the rivals, and for `rps` with modules=1 and attention=none.
    """

    def make(spec: Backbone, seed: int) -> PathNetwork:
        if spec.M != 1 or spec.attention != "none":
            raise UsageError(f"backbone {spec.name} has one module: add --set modules=1 --set attention=none")
        layer = PathLayer([Whole(seeded(build, seed, "init", 0, 0))], None, activation=nn.Identity())
        return PathNetwork([layer], nn.Identity(), num_features, seed)

    return make


WHITENED = ("compact", "resnet18_cifar")  # whose first layer is a 3 x 3 convolution
BACKBONES: dict[str, Callable[[Backbone, int], PathNetwork]] = {
    "resnet18_cifar": resnet18_cifar,
    "resnet18_imagenet": resnet18_imagenet,
    "resnet32": resnet32,
    "mlp": mlp,
    "compact": compact,
}
