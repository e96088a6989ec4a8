"""Frozen lanes are computed once a task: on a few random views of each image, instead of anew at each visit."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.engines.device import moved
from randpath.engines.serial import Tick, quiet
from randpath.keyed import rng
from randpath.learning.pasting import Pasting
from randpath.learning.train import Key, Training, precision
from randpath.network.fold import Folded


class Views:
    """Features of `count` views of each image; a visit draws one of them, the lane that learns sees a view of its own.

    They are taken at full size, as at inference, also while that lane sees shrunk pictures (`training.small_side`).
    `data` are the same images, labelled with their numbers: it is by its number that an image's features are found.

    Of `pasting` so many of the views have patches as its share says: the lane sees the same two pictures, the patch in
    the same place, in views of its own.
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
        pasting: Pasting | None = None,
    ):
        n, device = len(data), frozen.head.weight.device
        self.count, self.key = count, key
        self.patched = 0 if pasting is None else round(pasting.share * count)  # the first ones
        self.plan = None if pasting is None else (pasting, pasting.patches((self.patched, n), rng(*key, "patches")))
        self.labels = torch.from_numpy(data.labels).to(device)
        self.data = data.take(np.arange(n), np.arange(n))
        chunks = [np.arange(i, min(i + 512, n)) for i in range(0, n, 512)]
        views = []
        with torch.no_grad():
            for v in range(count):
                of_view = []
                for i, (x, y) in enumerate(data.batches(chunks)):
                    draw = rng(*key, "views", v, i)
                    x = augment.train(moved(x, device), draw)
                    if self.plan is not None and v < self.patched:
                        pasting, patches = self.plan
                        x, _, _ = pasting.paste(x, moved(y, device), patches.at((v, chunks[i])), draw)
                    with precision(training, device):
                        of_view.append(frozen.features(x).float())
                    tick(0.0)  # no step yet, but a stop is heard
                views.append(torch.cat(of_view))
        self.features = torch.stack(views)  # (count, n, D)

    def visit(self, x: Tensor, numbers: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The batch, some of it patched; its labels, or the shares of the classes; the patches' shares, (b, 1); the
        frozen lanes' features.
        """
        draw = rng(*self.key, "drawn", step)
        drawn = draw.integers(self.count, size=len(numbers))
        y, share = self.labels[numbers], x.new_zeros(len(x), 1)
        if self.plan is not None:
            pasting, patches = self.plan
            y = F.one_hot(y, pasting.num_classes).float()
            rows = np.flatnonzero(drawn < self.patched)
            own = moved(torch.from_numpy(rows), x.device)
            visited = patches.at((drawn[rows], numbers.cpu().numpy()[rows]))
            x_own, y_own, share_own = pasting.paste(x[own], y[own], visited, draw)
            x, y, share = (all_.index_copy(0, own, part) for all_, part in ((x, x_own), (y, y_own), (share, share_own)))
        return x, y, share, self.features[moved(torch.from_numpy(drawn), numbers.device), numbers]
