"""Between the network's input and the pixels that a generator makes."""

import torch
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.engines.device import moved
from randpath.errors import UsageError
from randpath.learning.method import Setting


def pixels(x: Tensor, augment: Augment) -> Tensor:
    """A normalised batch as pixels in 0..1."""
    mean, std = (moved(torch.tensor(v), x.device)[:, None, None] for v in (augment.mean, augment.std))
    return (x * std + mean).clamp(0, 1)


def normalised(x: Tensor, augment: Augment) -> Tensor:
    """Pixels in 0..1 as the network takes them.

    >>> augment = Augment((0.5,), (0.25,))
    >>> normalised(torch.ones(1, 1, 1, 1), augment).item(), pixels(torch.full((1, 1, 1, 1), 2.0), augment).item()
    (2.0, 1.0)
    """
    mean, std = (moved(torch.tensor(v), x.device)[:, None, None] for v in (augment.mean, augment.std))
    return (x - mean) / std


class OnPixels(nn.Module):
    """A network that was trained on pixels in 0..1, for normalised batches as all methods are asked by."""

    def __init__(self, net: nn.Module, augment: Augment):
        super().__init__()
        self.net, self.augment = net, augment

    def features(self, x: Tensor) -> Tensor:  # (b, D)
        found: Tensor = self.net.features(pixels(x, self.augment))  # type: ignore[operator]
        return found

    def forward(self, x: Tensor) -> Tensor:  # (b, classes)
        q: Tensor = self.net(pixels(x, self.augment))
        return q


def require_small_pictures(method: str, setting: Setting) -> None:
    """Refuse data that a generator of two fully connected layers cannot draw, before anything starts."""
    shape, small_side = setting.backbone.shape, setting.training.small_side
    if small_side:
        raise UsageError(
            f"training.small_side={small_side} shrinks the pictures, but {method} draws them in one size",
            next="--set training.small_side=null",
        )
    if len(shape) != 3 or shape[2] != 1 or shape[0] * shape[1] > 1024:
        raise UsageError(
            f"{method} draws old pictures from a small generator, for pictures of one channel and at most 32 x 32 "
            f"pixels (MNIST, digits); these items have shape {shape}",
            next="use rehearsal, gem or rps, which keep exemplars",
        )
