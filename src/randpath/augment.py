"""Batched augmentation on the device: crop with padding, mirror, rotation, normalisation."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Augment:
    """How a uint8 batch becomes the network's input; every random number comes from the generator given."""

    mean: tuple[float, ...]  # per channel, in 0..1; for feature vectors per feature or one for all
    std: tuple[float, ...]
    padding: int = 4  # pixels a crop may shift, each way; what enters is black
    mirror: bool = False
    degrees: float = 10.0  # "rotated (< 10 degrees)", section 4.1; 0 = none, and then pixels are moved, never blended

    def train(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """uint8 (b, h, w, c) to float32 (b, c, h, w), randomly cropped, mirrored and rotated image by image.

        >>> x = torch.full((2, 8, 8, 3), 255, dtype=torch.uint8)
        >>> Augment((0.5,) * 3, (0.5,) * 3).train(x, np.random.default_rng(0)).shape
        torch.Size([2, 3, 8, 8])
        """
        if x.ndim == 2 or not len(x):
            return self.plain(x)
        b = len(x)
        shift = torch.from_numpy(rng.integers(-self.padding, self.padding + 1, (2, b)))  # rows, columns
        flip = torch.from_numpy(rng.random(b) < 0.5) if self.mirror else torch.zeros(b, dtype=torch.bool)
        if self.degrees:
            angle = torch.from_numpy(rng.uniform(-self.degrees, self.degrees, b)) * (math.pi / 180)
            return self._normalise(_warp(x, shift, flip, angle))
        return self._normalise(_shift(x, shift, flip, self.padding).permute(0, 3, 1, 2).float())

    def plain(self, x: Tensor) -> Tensor:
        """Normalised only: what evaluation sees."""
        if x.ndim == 2:
            mean, std = x.new_tensor(self.mean), x.new_tensor(self.std)
            return (x - mean) / std
        return self._normalise(x.permute(0, 3, 1, 2).float())

    def _normalise(self, x: Tensor) -> Tensor:
        """(x / 255 - mean) / std, in one multiplication and one addition."""
        std = torch.tensor(self.std, dtype=torch.float64)
        scale = (1 / (255 * std)).to(x)[:, None, None]
        offset = (-torch.tensor(self.mean, dtype=torch.float64) / std).to(x)[:, None, None]
        return torch.addcmul(offset, x, scale)


def _shift(x: Tensor, shift: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Whole-pixel moves as one gather: exact pixels, no blending."""
    b, h, w, _ = x.shape
    rows = torch.arange(h) + padding + shift[0][:, None]  # (b, h)
    columns = torch.arange(w) + padding + shift[1][:, None]  # (b, w)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    padded = F.pad(x, (0, 0, padding, padding, padding, padding))
    return padded[torch.arange(b)[:, None, None], rows[:, :, None].to(x.device), columns[:, None, :].to(x.device)]


def _warp(x: Tensor, shift: Tensor, flip: Tensor, angle: Tensor) -> Tensor:
    """Shift, mirror and rotation about the middle in one bilinear sampling; what enters is black."""
    b, h, w, c = x.shape
    cos, sin = angle.cos(), angle.sin()
    side = 1 - 2 * flip.double()
    # Where each output pixel comes from, in coordinates of -1..1 that differ in scale when h != w.
    theta = torch.stack(
        [
            torch.stack([cos * side, -sin * (h / w), 2 * shift[1] / w], 1),
            torch.stack([sin * side * (w / h), cos, 2 * shift[0] / h], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta.float().to(x.device), [b, c, h, w], align_corners=False)
    pixels = x.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
