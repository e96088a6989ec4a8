"""Patches of other pictures, pasted in while training: twenty exemplars of a class are seen in many surroundings."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.engines.device import moved
from randpath.keyed import rng
from randpath.learning.train import Key


@dataclass(frozen=True)
class Patches:
    """Which picture's patch each one gets, and where."""

    chosen: np.ndarray  # (...), numbers of pictures
    side: np.ndarray  # (...), as a part of the picture's
    place: np.ndarray  # (..., 2): how far down and right, in 0..1 of the places that there are

    def at(self, index: Any) -> "Patches":
        return Patches(self.chosen[index], self.side[index], self.place[index])


class Pasting:
    """In a share of the steps a patch of another picture is pasted into each one.

        x = M x_a + (1 - M) x_b        t = lambda t_a + (1 - lambda) t_b

    1 - M is a rectangle of the picture's proportions, 1 - lambda its share of the pixels, about uniform in 0..1. The
    class of x_b is drawn first, all equally likely: mostly it is an exemplar, before one of the many pictures of new
    classes (CMO, Park et al. 2022).
    """

    def __init__(self, data: Dataset, num_classes: int, share: float, augment: Augment, key: Key):
        self.data, self.num_classes, self.share, self.augment, self.key = data, num_classes, share, augment, key
        self.by_class = np.argsort(data.labels, kind="stable")
        self.classes, self.first, self.counts = np.unique(
            data.labels[self.by_class], return_index=True, return_counts=True
        )

    def log_counts(self, log_counts: Tensor, share: Tensor) -> Tensor:
        """log(lambda n_c + (1 - lambda) n / C) for the balanced softmax of each picture: (b, C); share = 1 - lambda.

        The class of a patch is as likely as any other, so that new classes prevail in a picture without one, and the
        less the larger the patch is.

        >>> from randpath.data.dataset import Arrays
        >>> data = Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 0, 0, 1]))
        >>> pasting = Pasting(data, 2, 0.5, Augment((0.5,) * 3, (0.5,) * 3), (0,))
        >>> pasting.log_counts(torch.tensor([3.0, 1.0]).log(), torch.tensor([[0.0], [0.5]])).exp().round(decimals=4)
        tensor([[3.0000, 1.0000],
                [2.5000, 1.5000]])
        """
        n = log_counts.exp()
        equal = n.clone()
        equal[self.classes] = n[self.classes].mean()
        return torch.lerp(n, equal, share).log()

    def __call__(self, x: Tensor, y: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """The batch; its targets, as they are or a row of shares for each picture; the patches' shares, (b, 1)."""
        draw = rng(*self.key, "paste", step)
        if draw.random() >= self.share:
            return x, y, x.new_zeros(len(x), 1)
        return self.paste(x, y, self.patches((len(x),), draw), draw)

    def patches(self, shape: tuple[int, ...], draw: np.random.Generator) -> Patches:
        c = draw.integers(len(self.classes), size=shape)
        chosen = self.by_class[self.first[c] + draw.integers(self.counts[c])]
        return Patches(chosen, draw.random(shape) ** 0.5, draw.random((*shape, 2)))

    def paste(self, x: Tensor, y: Tensor, patches: Patches, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """x with the patches in it, augmented by `draw`, the shares of the classes, and the patches' own, (b, 1).

        y are labels or shares.
        """
        x_b, y_b = next(iter(self.data.batches([patches.chosen])))
        with torch.autocast(x.device.type, enabled=False):  # in bfloat16 a rotation would be pixels off
            x_b = self.augment.train(moved(x_b, x.device), draw)
        if x_b.shape != x.shape:  # `training.small_side`
            x_b = F.interpolate(x_b, size=x.shape[2:], mode="bilinear", antialias=True)
        rows, columns = (_within(patches.side, patches.place[:, i], x.shape[2 + i]) for i in (0, 1))
        inside = moved(torch.from_numpy(rows[:, :, None] & columns[:, None, :]), x.device)  # (b, h, w)
        t = y if y.ndim == 2 else F.one_hot(y, self.num_classes).float()
        t_b = F.one_hot(moved(y_b, y.device), self.num_classes).float()
        share = inside.float().mean(dim=(1, 2))[:, None]
        return torch.where(inside[:, None], x_b, x), torch.lerp(t, t_b, share), share


def _within(side: np.ndarray, place: np.ndarray, size: int) -> np.ndarray:
    """Which of `size` rows, or columns, a patch covers in each picture: (b, size).

    >>> _within(np.array([0.5, 0.75]), np.array([0.0, 0.9]), 4).astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 1]]
    """
    covered = np.round(side * size)
    first = np.floor(place * (size - covered + 1))  # every place as likely
    pixel = np.arange(size)
    inside: np.ndarray = (pixel >= first[:, None]) & (pixel < (first + covered)[:, None])
    return inside
