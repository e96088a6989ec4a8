"""How full the path is: the relative saturation coefficient mu_sat (section 3.2)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.errors import NotFinite
from randpath.learning.fisher import fisher_max, log_likelihood
from randpath.network.layers import PathNetwork
from randpath.network.path import Path

SET_SIZE = 10  # "we use ten layers including kernel weights and biases in each set"


def relative_saturation(traces: Sequence[float]) -> float | None:
    """mu_sat = log(mean over final tensors of tr(I) / mean over early tensors of tr(I)); none if both are exactly zero.

    `traces`: tr(I) of each parameter tensor in forward order. Early and final are the first and last ten, or the first
    and last half if there are fewer than twenty.

    >>> round(relative_saturation([1.0, 3.0, 4.0, 12.0]), 4) == round(math.log(4), 4)
    True
    """
    n = min(SET_SIZE, len(traces) // 2)
    early, final = float(np.mean(traces[:n])), float(np.mean(traces[-n:]))
    if early == 0 and final == 0:
        return None
    if not (math.isfinite(early) and math.isfinite(final) and early > 0 and final > 0):
        raise NotFinite(f"mu_sat cannot be measured: mean trace {early} (early) and {final} (final)")
    return math.log(final / early)


def saturation(net: PathNetwork, P: Path, P_ts: Path, exemplars: Dataset, augment: Augment) -> float | None:
    """mu_sat of path P on all exemplars; the network runs forward on P_ts."""
    if not len(exemplars):
        return None
    tensors = net.parameters_of_path(P)
    n = min(SET_SIZE, len(tensors) // 2)
    device = tensors[0].device
    chunks = np.array_split(np.arange(len(exemplars)), max(1, len(exemplars) // 128))
    batches = ((augment.plain(x.to(device)), y.to(device)) for x, y in exemplars.batches(chunks))
    measured = [*tensors[:n], *tensors[-n:]]
    if net.adds_lanes(P_ts):
        lane = OwnShare(net, P, P_ts)
        targets = ((x, lane.label_and_rest(x, y)) for x, y in batches)
        I = fisher_max(lane, None, measured, targets, of=OwnShare.log_likelihood)  # noqa: E741
    else:
        I = fisher_max(net, P_ts, measured, batches)  # noqa: E741
    return relative_saturation([i.sum().item() for i in I])


class OwnShare(nn.Module):
    """W_m f_m(x), what lane m adds to the logits.

    What the others add is the same for every weight of this lane: it is computed once, batch by batch, and not again
    for the gradient of each image.
    """

    def __init__(self, net: PathNetwork, P: Path, P_ts: Path):
        super().__init__()
        self.net, self.P, self.P_ts = net, P, P_ts
        first = sum(P_ts.rows[-1][: P.rows[-1].index(True)]) * net.num_features
        self.columns = slice(first, first + net.num_features)
        self.train(net.training)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.net.features(x, self.P), self.net.head.weight[:, self.columns])

    @torch.no_grad()
    def label_and_rest(self, x: Tensor, y: Tensor) -> Tensor:  # (b, 1 + classes)
        """Each image's label and what the other lanes and the bias add to its logits, side by side: one target."""
        return torch.cat([y.unsqueeze(1), self.net(x, self.P_ts) - self(x)], dim=1)

    @staticmethod
    def log_likelihood(q: Tensor, label_and_rest: Tensor) -> Tensor:
        return log_likelihood(q + label_and_rest[1:], label_and_rest[0].long())
