"""Frozen lanes are computed once a task: on a few random views of each image, instead of anew at each visit."""

import numpy as np
import torch
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.engines.device import moved
from randpath.engines.serial import Tick, quiet
from randpath.keyed import rng
from randpath.learning.train import Key, Training, precision
from randpath.network.fold import Folded


class Views:
    """Features of `count` views of each image; a visit draws one of them, the lane that learns sees a view of its own.

    They are taken at full size, as at inference, also while that lane sees shrunk pictures (`training.small_side`).
    `data` are the same images, labelled with their numbers: it is by its number that an image's features are found.
    """

    def __init__(
        self,
        frozen: Folded,
        data: Dataset,
        count: int,
        training: Training,
        augment: Augment,
        key: Key,
        tick: Tick = quiet,
    ):
        n, device = len(data), frozen.head.weight.device
        self.count, self.key = count, key
        self.labels = torch.from_numpy(data.labels).to(device)
        self.data = data.take(np.arange(n), np.arange(n))
        views = []
        with torch.no_grad():
            for v in range(count):
                chunks = [np.arange(i, min(i + 512, n)) for i in range(0, n, 512)]
                of_view = []
                for i, (x, _) in enumerate(data.batches(chunks)):
                    x = augment.train(moved(x, device), rng(*key, "views", v, i))
                    with precision(training, device):
                        of_view.append(frozen.features(x).float())
                    tick(0.0)  # no step yet, but a stop is heard
                views.append(torch.cat(of_view))
        self.features = torch.stack(views)  # (count, n, D)

    def at(self, numbers: Tensor, step: int) -> Tensor:  # (b, D)
        drawn = rng(*self.key, "drawn", step).integers(self.count, size=len(numbers))
        return self.features[moved(torch.from_numpy(drawn), numbers.device), numbers]
