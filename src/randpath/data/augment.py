"""Batched augmentation on the device: crop with padding, mirror, rotation, colour jitter, normalisation."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from randpath.engines.device import moved


@dataclass(frozen=True)
class Augment:
    """How a uint8 batch becomes the network's input; every random number comes from the generator given."""

    mean: tuple[float, ...]  # per channel, in 0..1; for feature vectors per feature or one for all
    std: tuple[float, ...]
    padding: int = 4  # pixels a crop may shift, each way; what enters is black
    mirror: bool = False
    degrees: float = 10.0  # "rotated (< 10 degrees)", section 4.1; 0 = none, and then pixels are moved, never blended
    jitter: tuple[float, ...] = (0.0, 0.0, 0.0)  # brightness, contrast, saturation: each times 1 - j to 1 + j

    def train(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """uint8 (b, h, w, c) to float32 (b, c, h, w), randomly cropped, mirrored, rotated and coloured image by image.

        >>> x = torch.full((2, 8, 8, 3), 255, dtype=torch.uint8)
        >>> Augment((0.5,) * 3, (0.5,) * 3).train(x, np.random.default_rng(0)).shape
        torch.Size([2, 3, 8, 8])
        """
        if x.ndim == 2 or not len(x):
            return self.plain(x)
        b = len(x)
        shift = rng.integers(-self.padding, self.padding + 1, (2, b))  # rows, columns
        flip = rng.random(b) < 0.5 if self.mirror else np.zeros(b, bool)
        if self.degrees:
            angle = np.deg2rad(rng.uniform(-self.degrees, self.degrees, b))
            pixels = _warp(x, shift, flip, angle)
        else:
            pixels = _shift(x, shift, flip, self.padding).permute(0, 3, 1, 2).float()
        if any(self.jitter):
            j = np.array(self.jitter)
            pixels = _coloured(pixels, moved(torch.from_numpy(rng.uniform(1 - j, 1 + j, (b, 3))).float(), x.device))
        return self._normalised(pixels)

    def plain(self, x: Tensor) -> Tensor:
        """Normalised only: what evaluation sees."""
        if x.ndim == 2:
            mean, std = (moved(torch.tensor(v, dtype=x.dtype), x.device) for v in (self.mean, self.std))
            return (x - mean) / std
        return self._normalised(x.permute(0, 3, 1, 2).float())

    def _normalised(self, x: Tensor) -> Tensor:
        """(x / 255 - mean) / std, in place, by one multiplication and one addition."""
        mean, std = np.array(self.mean), np.array(self.std)
        scale = moved(torch.from_numpy(1 / (255 * std)).to(x.dtype), x.device)[:, None, None]
        offset = moved(torch.from_numpy(-mean / std).to(x.dtype), x.device)[:, None, None]
        return x.mul_(scale).add_(offset)


def _shift(x: Tensor, shift: np.ndarray, flip: np.ndarray, padding: int) -> Tensor:
    """Whole-pixel moves as one gather of pixels: exact, no blending."""
    b, h, w, c = x.shape
    H, W = h + 2 * padding, w + 2 * padding
    rows = np.arange(h) + padding + shift[0][:, None]  # (b, h)
    columns = np.arange(w) + padding + shift[1][:, None]  # (b, w)
    columns = np.where(flip[:, None], columns[:, ::-1], columns)
    places = (np.arange(b)[:, None, None] * H + rows[:, :, None]) * W + columns[:, None, :]
    pixels = F.pad(x, (0, 0, padding, padding, padding, padding)).view(-1, c)
    return pixels.index_select(0, moved(torch.from_numpy(places.ravel()), x.device)).view(b, h, w, c)


def _warp(x: Tensor, shift: np.ndarray, flip: np.ndarray, angle: np.ndarray) -> Tensor:
    """Shift, mirror and rotation about the middle in one bilinear sampling; what enters is black."""
    b, h, w, c = x.shape
    cos, sin = np.cos(angle), np.sin(angle)
    side = np.where(flip, -1.0, 1.0)
    # Where each output pixel comes from, in coordinates of -1..1 that differ in scale when h != w.
    rows = [[cos * side, -sin * (h / w), 2 * shift[1] / w], [sin * side * (w / h), cos, 2 * shift[0] / h]]
    theta = moved(torch.from_numpy(np.array(rows, np.float32).transpose(2, 0, 1)), x.device)  # (b, 2, 3)
    grid = F.affine_grid(theta, [b, c, h, w], align_corners=False)
    pixels = x.permute(0, 3, 1, 2).contiguous().float()
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _coloured(x: Tensor, factors: Tensor) -> Tensor:
    """Brightness, then contrast about the picture's mean grey, then saturation about each pixel's; kept in 0..255."""
    brightness, contrast, saturation = factors.view(len(x), 3, 1, 1, 1).unbind(dim=1)
    x = (x * brightness).clamp_(0, 255)
    x = torch.lerp(_grey(x).mean(dim=(2, 3), keepdim=True), x, contrast).clamp_(0, 255)
    return torch.lerp(_grey(x), x, saturation).clamp_(0, 255)


def _grey(x: Tensor) -> Tensor:
    """(b, 1, h, w), by the usual weights of red, green and blue (ITU-R 601); one channel is grey already."""
    return x if x.shape[1] == 1 else 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
