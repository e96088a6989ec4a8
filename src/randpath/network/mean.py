"""Several networks, answered together."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Mean(nn.Module):
    """q(x) = 1/n sum_i q_i(x), the mean of the networks' logits.

    >>> Mean([nn.Flatten(), nn.Sequential(nn.Flatten(), nn.ReLU())])(torch.tensor([[-2.0, 4.0]])).tolist()
    [[-1.0, 4.0]]
    """

    def __init__(self, nets: Iterable[nn.Module]):
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def features(self, x: Tensor) -> Tensor:  # (b, n D)
        """What the classifiers see, side by side."""
        return torch.cat([net.features(x) for net in self.nets], dim=1)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:  # (b, classes)
        return torch.stack([net(x) for net in self.nets]).mean(dim=0)
