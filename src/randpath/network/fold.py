"""P_ts as one plain module, exactly: the teacher, the predictor and what is exported.

Batch-norm is folded into the convolution before it. The active modules of a layer become one: with f_m = B_m(g(A_m x)),

    sum_m f_m(x) = [B_1 .. B_n] g([A_1; ..; A_n] x),

A stacked by outputs, B by inputs. A layer with attention, or one that concatenates, needs each module's own output, so
there B stays apart, as a grouped convolution. Attention that does not respond to the image (`scale`) goes into B. Lanes
hear each its own input, but for what they share at first, and are not merged.
"""

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from randpath.network.layers import PathAttention, PathLayer, PathNetwork, Whole, WithSkip, heard, joined
from randpath.network.path import Path

Affine = nn.Conv2d | nn.Linear
Kind = TypeVar("Kind", bound=nn.Module)


class FoldedLayer(nn.Module):
    """One path layer with its active modules merged; it takes and gives a list of one tensor, lanes of several."""

    def __init__(self, layer: PathLayer, row: tuple[bool, ...]):
        super().__init__()
        active = [m for m, on in enumerate(row) if on]
        self.join = layer.join
        attention = layer.attention
        scales = None if attention is None or attention.responds else attention.scales[active]
        self.attention: PathAttention | None = copy.deepcopy(attention) if scales is None else None
        self.apart = active if self.attention is not None or layer.join == "concat" else []
        self.merged = _merged([layer.parallel[m] for m in active], bool(self.apart), scales) if active else None
        self.skip = None if layer.skip is None else nn.Sequential(*_without_batch_norm(layer.skip))
        self.activation = copy.deepcopy(layer.activation)
        self.after = copy.deepcopy(layer.after)

    def forward(self, parts: list[Tensor]) -> list[Tensor]:
        (x,) = parts
        skip = None if self.skip is None else self.skip(x)
        outputs: list[Tensor] = []
        if self.merged is not None:
            T = self.merged(x)
            outputs = [T] if not self.apart else list(T.chunk(len(self.apart), dim=1))
            if self.attention is not None:
                weights = self.attention(dict(zip(self.apart, outputs)))
                outputs = [weights[m] * part for m, part in zip(self.apart, outputs)]
        y: Tensor = self.activation(joined(outputs, skip, self.join))
        return [y if self.after is None else self.after(y)]


class FoldedLanes(nn.Module):
    """One layer of lanes: act(module_m(x) + skip_m(x)) of each m that is on, x what its own lane gave before.

    They stay apart up to the pooling: side by side they would be copied, and taken apart again by the next layer.
    """

    def __init__(self, layer: PathLayer, row: tuple[bool, ...], before: tuple[bool, ...] | None):
        super().__init__()
        self.heard = [0] * sum(row) if before is None else heard(row, before)
        self.lanes = nn.ModuleList(_lane(layer.parallel[m]) for m, on in enumerate(row) if on)
        self.activation = copy.deepcopy(layer.activation)
        self.after = copy.deepcopy(layer.after)

    def forward(self, parts: list[Tensor]) -> list[Tensor]:
        given = [self.activation(lane(parts[i])) for lane, i in zip(self.lanes, self.heard)]
        return given if self.after is None else [self.after(y) for y in given]


class Folded(nn.Module):
    """A frozen network: images (b, c, h, w), normalised, to logits (b, classes)."""

    def __init__(self, net: PathNetwork, path: Path):
        super().__init__()
        layers = [layer for layer in net.layers if isinstance(layer, PathLayer)]
        self.stem = nn.Identity() if net.stem is None else copy.deepcopy(net.stem)
        self.layers = nn.Sequential(
            *(
                FoldedLanes(layer, row, before) if layer.join == "lanes" else FoldedLayer(layer, row)
                for layer, row, before in zip(layers, path.rows, (None, *path.rows))
            )
        )
        self.pool = copy.deepcopy(net.pool)
        self.head = copy.deepcopy(net.head)
        self.eval().requires_grad_(False)

    @property
    def num_classes(self) -> int:
        return self.head.num_classes

    def stages(self, x: Tensor) -> Iterator[list[Tensor]]:
        """What leaves each layer, one after the other; lanes each by itself."""
        parts = [self.stem(x)]
        for layer in self.layers:
            parts = layer(parts)
            yield parts

    def pooled(self, parts: list[Tensor]) -> Tensor:  # (b, D)
        """The features, of what leaves the last layer."""
        return torch.cat([self.pool(part) for part in parts], dim=1)

    def features(self, x: Tensor) -> Tensor:  # (b, D)
        return self.pooled(self.layers([self.stem(x)]))

    def forward(self, x: Tensor) -> Tensor:
        q: Tensor = self.head(self.features(x))
        return q


@torch.no_grad()
def fold(net: PathNetwork, path: Path) -> Folded:
    """The network on `path`, in eval mode, as a plain module that shares no memory with it."""
    return Folded(net, path).to(net.head.weight.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _without_batch_norm(module: nn.Module) -> list[nn.Module]:
    """The steps of a module, each batch-norm folded into the convolution before it."""
    steps: list[nn.Module] = []
    for step in module if isinstance(module, nn.Sequential) else [module]:
        if isinstance(step, nn.BatchNorm2d):
            conv = steps[-1]
            if not isinstance(conv, nn.Conv2d):
                raise ValueError("a batch-norm that does not follow its convolution cannot be folded")
            assert step.running_mean is not None and step.running_var is not None and conv.bias is not None
            scale = step.weight / torch.sqrt(step.running_var + step.eps)
            conv.weight.mul_(scale.reshape(-1, 1, 1, 1))
            conv.bias.copy_((conv.bias - step.running_mean) * scale + step.bias)
        elif isinstance(step, nn.Conv2d):
            steps.append(_conv(step, step.weight, step.bias))
        else:
            steps.append(copy.deepcopy(step))
    return steps


def _lane(module: nn.Module) -> nn.Module:
    """A module of a lane without batch-norm."""
    if isinstance(module, WithSkip):
        return WithSkip(_lane(module.module), _lane(module.skip))
    return nn.Sequential(*_without_batch_norm(module))


def _empty(kind: type[Kind], *sizes: Any, **more: Any) -> Kind:
    """A layer whose weights are not drawn: they are copied in next, and the global generator is left alone."""
    layer: Kind = torch.nn.utils.skip_init(kind, *sizes, **more)  # type: ignore[no-untyped-call]
    return layer


def _conv(like: nn.Conv2d, weight: Tensor, bias: Tensor | None, groups: int = 1) -> nn.Conv2d:
    """A convolution with the step and padding of `like` and copies of these weights; always with a bias."""
    outputs, inputs, *kernel = weight.shape
    stride, padding = like.stride, like.padding
    conv = _empty(
        nn.Conv2d, inputs * groups, outputs, tuple(kernel), stride, padding, groups=groups, device=weight.device
    )
    assert conv.bias is not None
    conv.weight.copy_(weight)
    conv.bias.copy_(weight.new_zeros(outputs) if bias is None else bias)
    return conv


def _affine(like: Affine, weight: Tensor, bias: Tensor, groups: int = 1) -> nn.Module:
    if isinstance(like, nn.Conv2d):
        return _conv(like, weight, bias, groups)
    linear = _empty(nn.Linear, weight.shape[1], weight.shape[0], device=weight.device)
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)
    return linear


def _merged(modules: list[nn.Module], apart: bool, scales: Tensor | None = None) -> nn.Module:
    if len(modules) == 1 and isinstance(modules[0], Whole):
        return copy.deepcopy(modules[0])
    chains = [_without_batch_norm(module) for module in modules]
    for chain, scale in zip(chains, [] if scales is None else scales):  # tau * (W x + b) = (tau W) x + tau b
        last = [step for step in chain if isinstance(step, Affine)][-1]
        assert last is chain[-1] and last.bias is not None
        last.weight.mul_(scale)
        last.bias.mul_(scale)
    return _merge(chains, apart)


def _merge(chains: list[list[nn.Module]], apart: bool) -> nn.Sequential:
    """Chains of equal structure, with one or two affine steps each, as one chain."""
    steps: list[nn.Module] = []
    places = [i for i, step in enumerate(chains[0]) if isinstance(step, Affine)]
    if len(places) not in (1, 2):
        raise ValueError(f"a module with {len(places)} convolutions cannot be merged")
    for i, first in enumerate(chains[0]):
        if not isinstance(first, Affine):
            steps.append(first)
            continue
        same = [chain[i] for chain in chains]
        weights = [step.weight for step in same if isinstance(step, Affine)]
        biases = [step.bias for step in same if isinstance(step, Affine) and step.bias is not None]
        if i != places[-1] or (apart and len(places) == 1):  # shared input, outputs side by side
            steps.append(_affine(first, torch.cat(weights), torch.cat(biases)))
        elif apart:  # own input, outputs side by side
            steps.append(_affine(first, torch.cat(weights), torch.cat(biases), groups=len(chains)))
        elif len(places) == 1:  # shared input, outputs added
            steps.append(_affine(first, torch.stack(weights).sum(0), torch.stack(biases).sum(0)))
        else:  # own input, outputs added
            steps.append(_affine(first, torch.cat(weights, dim=1), torch.stack(biases).sum(0)))
    return nn.Sequential(*steps)
