"""A fixed first layer that whitens: made once, from the first task's images, so that there is nothing to forget."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.augment import Augment
from randpath.images import Dataset
from randpath.keyed import rng

SIDE = 3  # of a patch
FILTERS = 12  # leading eigenvectors; the rest is mostly noise
IMAGES = 5000  # at most so many are looked at
EPSILON = 5e-3  # added to the variance, so that weak directions are not blown up


class Whitening(nn.Module):
    """act([W; -W] * x), W the leading eigenvectors v_i of the patches' covariance, each over sqrt(lambda_i + epsilon).

    The filters are a buffer, not a parameter: no optimizer, no mu_sat and no count of what was learned sees them.
    """

    filters: Tensor

    def __init__(self, channels: int, activation: nn.Module):
        super().__init__()
        half = min(FILTERS, channels * SIDE**2)
        self.outputs = 2 * half
        self.register_buffer("filters", torch.zeros(self.outputs, channels, SIDE, SIDE))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, outputs, h, w)
        y: Tensor = self.activation(F.conv2d(x, self.filters, padding=SIDE // 2))
        return y

    @torch.no_grad()
    def fit(self, data: Dataset, augment: Augment, seed: int) -> None:
        """Make the filters from patches of `data`, normalised as the network sees them."""
        values, vectors = np.linalg.eigh(patch_covariance(data, augment, seed))  # in rising order
        half = self.outputs // 2
        W = (vectors / np.sqrt(values + EPSILON)).T[::-1][:half]
        # An eigenvector's sign is free: its largest entry is made positive.
        W = W * np.sign(np.take_along_axis(W, np.abs(W).argmax(axis=1, keepdims=True), axis=1))
        self.filters.copy_(torch.from_numpy(np.concatenate([W, -W])).view(self.filters.shape))


def patch_covariance(data: Dataset, augment: Augment, seed: int) -> np.ndarray:
    """The covariance of all 3 x 3 patches that lie wholly in the images, in float64: (9 c, 9 c)."""
    chosen = np.arange(len(data))
    if len(data) > IMAGES:
        chosen = np.sort(rng(seed, "stem").choice(len(data), IMAGES, replace=False))
    h, w, c = data.shape
    if min(h, w) < SIDE:
        raise ValueError(f"a whitening stem needs images of at least {SIDE} x {SIDE}, got {h} x {w}")
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
