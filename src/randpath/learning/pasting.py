"""Patches of other pictures, pasted in while training: twenty exemplars of a class are seen in many surroundings."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.engines.device import moved
from randpath.keyed import rng
from randpath.learning.train import Key


class Pasting:
    """In a share of the steps a patch of another picture is pasted into each one.

        x = M x_a + (1 - M) x_b        t = lambda t_a + (1 - lambda) t_b

    1 - M is a rectangle of the picture's proportions, 1 - lambda its share of the pixels, uniform in 0..1. The
    class of x_b is drawn first, all equally likely: mostly it is an exemplar, before one of the many pictures of new
    classes (CMO, Park et al. 2022).
    """

    def __init__(self, data: Dataset, num_classes: int, share: float, augment: Augment, key: Key):
        self.data, self.num_classes, self.share, self.augment, self.key = data, num_classes, share, augment, key
        self.by_class = np.argsort(data.labels, kind="stable")
        self.classes, self.first, self.counts = np.unique(
            data.labels[self.by_class], return_index=True, return_counts=True
        )

    def log_counts(self, log_counts: Tensor) -> Tensor:
        """log n_c for the balanced softmax, of targets: in the steps that have patches half of them are the patches'.

        >>> from randpath.data.dataset import Arrays
        >>> data = Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 0, 0, 1]))
        >>> pasting = Pasting(data, 2, 0.5, Augment((0.5,) * 3, (0.5,) * 3), (0,))
        >>> pasting.log_counts(torch.tensor([3.0, 1.0]).log()).exp().round(decimals=4).tolist()
        [2.75, 1.25]
        """
        n = log_counts.exp()
        seen = n[self.classes]
        n[self.classes] = (1 - self.share / 2) * seen + self.share / 2 * seen.mean()
        return n.log()

    def __call__(self, x: Tensor, y: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The batch and its targets: as they are, or a row of shares for each picture."""
        draw = rng(*self.key, "paste", step)
        if draw.random() >= self.share:
            return x, y
        c = draw.integers(len(self.classes), size=len(x))
        chosen = self.by_class[self.first[c] + draw.integers(self.counts[c])]
        x_b, y_b = next(iter(self.data.batches([chosen])))
        with torch.autocast(x.device.type, enabled=False):  # in bfloat16 a rotation would be pixels off
            x_b = self.augment.train(moved(x_b, x.device), draw)
        if x_b.shape != x.shape:  # `training.small_side`
            x_b = F.interpolate(x_b, size=x.shape[2:], mode="bilinear", antialias=True)
        h, w = x.shape[2:]
        side = draw.random() ** 0.5
        rows, columns = round(side * h), round(side * w)
        top, left = draw.integers(h - rows + 1), draw.integers(w - columns + 1)
        x = x.clone()
        x[:, :, top : top + rows, left : left + columns] = x_b[:, :, top : top + rows, left : left + columns]
        share = rows * columns / (h * w)
        t = y if y.ndim == 2 else F.one_hot(y, self.num_classes).float()
        return x, torch.lerp(t, F.one_hot(moved(y_b, y.device), self.num_classes).float(), share)
