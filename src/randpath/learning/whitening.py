"""The patches of a first task, from which a whitening stem (network/stem.py) is made."""

import numpy as np
import torch
import torch.nn.functional as F

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.errors import UsageError
from randpath.keyed import rng
from randpath.network.layers import PathNetwork
from randpath.network.stem import SIDE

IMAGES = 5000  # at most so many are looked at


def fit_stem(net: PathNetwork, data: Dataset, augment: Augment) -> None:
    """Make the fixed stem of a network, if it has one that is not made yet."""
    if net.stem is not None and not net.stem.is_made:
        net.stem.fit(patch_covariance(data, augment, net.seed))


def patch_covariance(data: Dataset, augment: Augment, seed: int) -> np.ndarray:
    """The covariance of all 3 x 3 patches that lie wholly in the images, in float64: (9 c, 9 c)."""
    chosen = np.arange(len(data))
    if len(data) > IMAGES:
        chosen = np.sort(rng(seed, "stem").choice(len(data), IMAGES, replace=False))
    h, w, c = data.shape
    if min(h, w) < SIDE:
        raise UsageError(f"a whitening stem needs images of at least {SIDE} x {SIDE}, got {h} x {w}")
    chunks = np.array_split(chosen, max(1, len(chosen) * h * w // 2**17))
    total, square = torch.zeros(c * SIDE**2, dtype=torch.float64), torch.zeros(c * SIDE**2, c * SIDE**2).double()
    count = 0
    for x, _ in data.batches(chunks):
        patches = F.unfold(augment.plain(x), SIDE).transpose(1, 2).flatten(0, 1).double()  # (patches, 9 c)
        total += patches.sum(dim=0)
        square += patches.T @ patches
        count += len(patches)
    mean = total / count
    covariance: np.ndarray = (square / count - torch.outer(mean, mean)).numpy()
    return covariance
