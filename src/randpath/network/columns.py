"""One network per task beside the earlier ones, which feed it: the columns of progressive networks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from randpath.keyed import seed_of
from randpath.network.backbones import Backbone
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from randpath.network.seeded import seeded


class Column(nn.Module):
    """A network for the classes of one task, and a linear map from each earlier column into each layer but the first.

    The maps begin at zero: a new column starts as a network of its own.
    """

    def __init__(self, net: PathNetwork, channels: Sequence[int], earlier: int, maps: bool):
        super().__init__()
        self.net = net
        self.lateral = nn.ModuleList(
            nn.ModuleList(
                nn.Conv2d(c, c, 1, bias=False) if maps else nn.Linear(c, c, bias=False) for _ in range(earlier)
            )
            for c in channels[:-1]
        )
        for p in self.lateral.parameters():
            nn.init.zeros_(p)

    def maps_into(self, l: int) -> nn.ModuleList:  # noqa: E741
        """One for each earlier column."""
        maps = self.lateral[l - 1]
        assert isinstance(maps, nn.ModuleList)
        return maps


class Columns(nn.Module):
    """h_l of column k = layer_l(h_l-1 + sum over j < k of U_l,j h_l-1 of column j); the logits stand side by side."""

    def __init__(self, backbone: Backbone, seed: int, num_classes: Sequence[int] = ()):
        super().__init__()
        self.backbone, self.seed = backbone, seed
        self.columns = nn.ModuleList()
        for n in num_classes:
            self.add(n)

    @property
    def sizes(self) -> list[int]:
        """How many classes each column knows."""
        return [column.net.num_classes for column in self._columns()]

    def add(self, num_classes: int) -> Column:
        """A new column for so many new classes."""
        k = len(self.columns) + 1
        net = self.backbone.build(self.seed if k == 1 else seed_of(self.seed, "column", k))
        net.grow_head(num_classes)
        shape = self.backbone.shape
        with torch.no_grad():
            stages = list(net.eval().stages(torch.zeros(1, *shape[2:], *shape[:2])))  # (h, w, c) as (c, h, w)
        channels, maps = [stage.shape[1] for stage in stages], stages[0].ndim == 4
        column = seeded(lambda: Column(net, channels, k - 1, maps), self.seed, "lateral", k)
        self.columns.append(column.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
        return column

    def features(self, x: Tensor) -> Tensor:  # (b, columns x D)
        return torch.cat(self._features(x), dim=1)

    def forward(self, x: Tensor) -> Tensor:  # q: (b, classes so far)
        return torch.cat([column.net.head(f) for column, f in zip(self._columns(), self._features(x))], dim=1)

    def _features(self, x: Tensor) -> list[Tensor]:
        """What each column's classifier sees."""
        stages: list[list[Tensor]] = []
        found = []
        for column in self._columns():
            net = column.net
            h = x if net.stem is None else net.stem(x)
            own = []
            for l, (layer, row) in enumerate(zip(net.layers, Path.full(net.L, net.M).rows)):  # noqa: E741
                if l:
                    for lateral, earlier in zip(column.maps_into(l), stages):
                        h = h + lateral(earlier[l - 1])
                h = layer(h, row)
                own.append(h)
            stages.append(own)
            found.append(net.pool(h))
        return found

    def _columns(self) -> list[Column]:
        return [column for column in self.columns if isinstance(column, Column)]
