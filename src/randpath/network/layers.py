"""L layers of M parallel residual modules and a skip; a path says which modules are on (section 3.1)."""

from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from randpath.errors import UsageError
from randpath.network.heads import Head, HeadKind
from randpath.network.path import Path
from randpath.network.stem import Whitening

Attention = Literal["peak", "mean", "conv", "channel", "scale", "none"]
Join = Literal["sum", "concat", "lanes"]
ModuleStart = Literal["fresh", "copy", "zero"]


class PathAttention(nn.Module):
    """tau: one weight for each module's output T, per image (section 3.1.2); only the last layer has it.

    peak: max over h, w, c of T (the paper's PPR). mean: the mean over h, w, c. conv (path response A): a 1 x 1
    convolution makes one h x w map of each T, the M maps go through one linear layer to M weights. channel (path
    response B): the maximum over h, w of each channel, M * c numbers through one linear layer to M weights. Modules
    that are off contribute zeros. The linear layers start with bias 1, so that training starts at the plain sum.
    scale, ours: a learned number for each module, frozen ones too, 1 at first; the same for every image, so that it
    folds into the module.
    """

    def __init__(self, kind: Attention, M: int, channels: int, positions: int):
        super().__init__()
        if kind not in ("peak", "mean", "conv", "channel", "scale"):
            raise UsageError(f"attention must be peak, mean, conv, channel, scale or none, got {kind!r}")
        self.kind, self.M = kind, M
        self.responds = kind != "scale"  # to the image
        if kind == "scale":
            self.scales = nn.Parameter(torch.ones(M))
        if kind == "conv":
            self.to_map = nn.Linear(channels, 1)  # a 1 x 1 convolution, shared by the modules
        if kind in ("conv", "channel"):
            self.to_weights = nn.Linear(M * (positions if kind == "conv" else channels), M)
            nn.init.normal_(self.to_weights.weight, std=0.01)
            nn.init.ones_(self.to_weights.bias)

    def forward(
        self, outputs: dict[int, Tensor]
    ) -> dict[int, Tensor]:  # m -> T (b, c, h, w); m -> tau (b, 1, 1, 1) or ()
        if self.kind == "scale":
            return {m: self.scales[m] for m in outputs}
        flat = {m: T.flatten(2) if T.ndim > 2 else T.unsqueeze(2) for m, T in outputs.items()}  # (b, c, hw)
        if self.kind == "peak":
            weights = {m: T.amax(dim=(1, 2)) for m, T in flat.items()}
        elif self.kind == "mean":
            weights = {m: T.mean(dim=(1, 2)) for m, T in flat.items()}
        else:
            if self.kind == "conv":
                summary = {m: self.to_map(T.transpose(1, 2)).squeeze(2) for m, T in flat.items()}  # (b, hw)
            else:
                summary = {m: T.amax(dim=2) for m, T in flat.items()}  # (b, c)
            zeros = torch.zeros_like(next(iter(summary.values())))
            tau = self.to_weights(torch.cat([summary.get(m, zeros) for m in range(self.M)], dim=1))  # (b, M)
            weights = {m: tau[:, m] for m in outputs}
        return {m: weights[m].reshape(-1, *[1] * (T.ndim - 1)) for m, T in outputs.items()}


class Whole(nn.Module):
    """A network of one's own, from images to features, as the only module of a layer: it is copied, never merged."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:  # (b, D)
        features: Tensor = self.net(x)
        return features


class WithSkip(nn.Module):
    """module(x) + skip(x): a module with a skip of its own, which is frozen with it."""

    def __init__(self, module: nn.Module, skip: nn.Module):
        super().__init__()
        self.module, self.skip = module, skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x) + self.skip(x)
        return y


class PathLayer(nn.Module):
    """act(skip(x) + sum_m P[l, m] * tau_m * module_m(x)), then an optional pooling; act is the ReLU in the paper.

    join "concat", ours: act(skip(x) + tau_m * module_m(x)) of each m that is on, side by side, in the order of m.
    join "lanes", ours: so in every layer, and each module hears its own lane alone: what module m of the layer before
    gave or, if m is off there, the nearest one before m. Skips lie in the modules (`WithSkip`).
    """

    def __init__(
        self,
        parallel: list[nn.Module],
        skip: nn.Module | None,  # none: the layer has no bypass (a first layer)
        after: nn.Module | None = None,
        attention: PathAttention | None = None,
        activation: nn.Module | None = None,
        join: Join = "sum",
    ):
        super().__init__()
        self.join = join
        self.activation = nn.ReLU() if activation is None else activation
        self.parallel = nn.ModuleList(parallel)
        self.skip = skip
        self.attention = attention
        self.after = after

    def forward(self, x: Tensor, row: tuple[bool, ...], before: tuple[bool, ...] | None = None) -> Tensor:
        """`row`: the modules that are on, `before`: those of the layer before, if there is one."""
        active = [m for m, on in enumerate(row) if on]
        if self.join == "lanes" and before is not None:
            parts = x.chunk(sum(before), dim=1)
            outputs = {m: self.parallel[m](parts[i]) for m, i in zip(active, heard(row, before))}
        else:
            outputs = {m: self.parallel[m](x) for m in active}
        if self.attention is not None:
            weights = self.attention(outputs)
            outputs = {m: weights[m] * T for m, T in outputs.items()}
        skip = None if self.skip is None else self.skip(x)
        y: Tensor = self.activation(joined(list(outputs.values()), skip, self.join))
        return y if self.after is None else self.after(y)


def heard(row: tuple[bool, ...], before: tuple[bool, ...]) -> list[int]:
    """For each lane of a layer the place, among the lanes of the layer before, of its own or of the nearest before it.

    >>> heard((True, True, False, True), (True, False, False, True))
    [0, 0, 1]
    """
    return [sum(before[: m + 1]) - 1 for m, on in enumerate(row) if on]


def joined(outputs: list[Tensor], skip: Tensor | None, join: Join) -> Tensor:
    """Modules' outputs and the skip as the input of the activation."""
    if join != "sum":
        return torch.cat(outputs if skip is None else [T + skip for T in outputs], dim=1)
    terms = outputs + ([] if skip is None else [skip])
    if not terms:
        raise ValueError("a layer without a skip needs at least one module that is on")
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


class PathNetwork(nn.Module):
    """Path layers, a global pooling and one classifier, shared by all tasks, that grows."""

    def __init__(
        self,
        layers: list[PathLayer],
        pool: nn.Module,
        num_features: int,
        seed: int,
        stem: Whitening | None = None,
        head: HeadKind = "linear",
    ):
        super().__init__()
        self.stem = stem  # stands still from the first task on
        self.layers = nn.ModuleList(layers)
        self.pool = pool
        self.seed = seed
        self.num_features = num_features  # of each module of the last layer, if it concatenates them
        self.head = Head(head, num_features, seed)

    @property
    def L(self) -> int:
        return len(self.layers)

    @property
    def M(self) -> int:
        return len(self._layer(0).parallel)

    @property
    def num_classes(self) -> int:
        return self.head.num_classes

    def stages(self, x: Tensor, path: Path | None = None, begin: int = 0) -> Iterator[Tensor]:
        """What leaves each layer, one after the other; from layer `begin` on, if x is what the one before it gave."""
        path = Path.full(self.L, self.M) if path is None else path
        if not begin and self.stem is not None:
            x = self.stem(x)
        for l in range(begin, self.L):  # noqa: E741
            x = self.layers[l](x, path.rows[l], path.rows[l - 1] if l else None)
            yield x

    def features(self, x: Tensor, path: Path | None = None, begin: int = 0) -> Tensor:  # (b, D)
        for stage in self.stages(x, path, begin):  # noqa: B007  # only the last is kept in memory
            pass
        pooled: Tensor = self.pool(stage)
        return pooled

    def forward(self, x: Tensor, path: Path | None = None) -> Tensor:  # q: (b, classes so far)
        q: Tensor = self.head(self.features(x, path))
        return q

    def grow_head(self, num_classes: int) -> None:
        """Rows for the classes up to `num_classes`; the old rows keep their bytes."""
        self.head.grow(num_classes)

    @torch.no_grad()
    def open(self, path: Path, before: Path, last: Path, start: ModuleStart) -> None:
        """Begin the modules that `path` turns on and `before` had not; the network on `before` stays as it was.

        fresh: as they were drawn. copy: with the weights of the module of `last`, the path trained last, in the same
        layer. zero: as drawn, but adding nothing at first; so does a copy where outputs are summed, because the sum
        would count twice. Not so in a layer with attention, which would never wake a silent module. A layer that
        concatenates gets columns of zeros in the classifier for each new module, which silence a whole new lane.
        """
        if before:  # else it is the first path, which has nothing to begin from
            for l, m in path ^ (path & before):  # noqa: E741
                layer = self._layer(l)
                if start == "copy":
                    layer.parallel[m].load_state_dict(layer.parallel[last.rows[l].index(True)].state_dict())
                silent = layer.join != "lanes" and (start == "zero" or (start == "copy" and layer.join == "sum"))
                # tau * T has no gradient where tau is a response to T = 0
                if silent and not (layer.attention is not None and layer.attention.responds):
                    _silence(layer.parallel[m])
        if self._layer(self.L - 1).join != "sum":
            old = [m for m, on in enumerate(before.rows[-1]) if on]
            blocks = dict(zip(old, torch.split(self.head.weight.detach(), self.num_features, dim=1)))
            zeros = self.head.weight.new_zeros(self.num_classes, self.num_features)
            columns = [blocks.get(m, zeros) for m, on in enumerate(path.rows[-1]) if on]
            self.head.weight = nn.Parameter(torch.cat(columns, dim=1))

    def train_only(self, trained: Path) -> dict[str, nn.Parameter]:
        """Make `trained`, the skips, the attention and the head learn, and nothing else; `fit` takes what is returned.

        Frozen is what is left: no gradient is computed there, and `fit` lets its batch-norm stand still (`train_mode`).
        """
        self.requires_grad_(True)
        for l, m in Path.full(self.L, self.M):  # noqa: E741
            self._layer(l).parallel[m].requires_grad_((l, m) in trained)
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def weights(self, path: Path) -> dict[str, Tensor]:
        """All that `path` needs: parameters and buffers of its modules, the stem, skips, attention and head."""
        off = tuple(f"layers.{l}.parallel.{m}." for l, m in Path.full(self.L, self.M) ^ path)  # noqa: E741
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(off)}

    def num_parameters(self, path: Path) -> int:
        """How many numbers `path` has learned: modules, skips, attention and head."""
        learned = {name for name, _ in self.named_parameters()}
        return sum(tensor.numel() for name, tensor in self.weights(path).items() if name in learned)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the present parameters (the copy keeps their alignment, and so their rounding)."""
        features = weights["head.weight"].shape[1]
        if features != self.head.num_features:  # the last layer concatenates, and another number of modules is on
            self.head.weight = nn.Parameter(self.head.weight.new_zeros(self.num_classes, features))
        self.grow_head(len(weights["head.weight"]))
        present = self.state_dict()
        for name, tensor in weights.items():
            present[name].copy_(tensor)

    def adds_lanes(self, path: Path) -> bool:
        """Whether the logits on `path` are a sum over several lanes, none of which shares a module with another."""
        row = path.rows[-1]
        apart = self._layer(self.L - 1).join == "lanes" and all(own == row for own in path.rows)
        return apart and sum(row) > 1 and self.head.kind == "linear"

    def parameters_of_path(self, path: Path) -> list[nn.Parameter]:
        """The parameter tensors of the modules of `path` in forward order: no skip, head or attention."""
        modules = [self._layer(l).parallel[m] for l, m in path]  # noqa: E741
        own = [module.module if isinstance(module, WithSkip) else module for module in modules]
        return [p for module in own for p in module.parameters()]

    def _layer(self, index: int) -> PathLayer:
        layer = self.layers[index]
        assert isinstance(layer, PathLayer)
        return layer


def _silence(module: nn.Module) -> None:
    """Let the last step of a module give zeros: the scale and shift of its batch-norm, or its linear map."""
    last = [step for step in module.modules() if isinstance(step, nn.BatchNorm2d | nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
