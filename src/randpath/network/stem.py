"""A fixed first layer that whitens: made once, from the first task's images, so that there is nothing to forget."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 3  # of a patch
FILTERS = 12  # leading eigenvectors; the rest is mostly noise
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

    @property
    def is_made(self) -> bool:
        return bool(self.filters.any())

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) -> (b, outputs, h, w)
        y: Tensor = self.activation(F.conv2d(x, self.filters, padding=SIDE // 2))
        return y

    @torch.no_grad()
    def fit(self, covariance: np.ndarray) -> None:
        """Make the filters from the covariance of patches (learning/whitening.py)."""
        values, vectors = np.linalg.eigh(covariance)  # in rising order
        half = self.outputs // 2
        W = (vectors / np.sqrt(values + EPSILON)).T[::-1][:half]
        # An eigenvector's sign is free: its largest entry is made positive.
        W = W * np.sign(np.take_along_axis(W, np.abs(W).argmax(axis=1, keepdims=True), axis=1))
        self.filters.copy_(torch.from_numpy(np.concatenate([W, -W])).view(self.filters.shape))
