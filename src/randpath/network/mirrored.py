"""A picture and its mirror image, answered together: more accurate for most photographs, and twice the cost."""

from torch import Tensor, nn


class Mirrored(nn.Module):
    """q(x) = (f(x) + f(mirror x)) / 2, f any network from images (b, c, h, w) to logits.

    >>> import torch
    >>> Mirrored(nn.Flatten())(torch.tensor([[[[1.0, 2.0, 6.0]]]])).tolist()
    [[3.5, 2.0, 3.5]]
    """

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:  # (b, classes)
        q: Tensor = (self.net(x) + self.net(x.flip(-1))) / 2
        return q
