"""Classifiers that grow: one row for each class seen."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.keyed import rng

HeadKind = Literal["linear", "cosine"]


class Head(nn.Module):
    """q = W f + b (linear), or q = scale * cos(W, f) (cosine, LUCIR's, with a learned scale)."""

    def __init__(self, kind: HeadKind, num_features: int, seed: int):
        super().__init__()
        self.kind, self.seed = kind, seed
        self.weight = nn.Parameter(torch.empty(0, num_features))  # no class yet
        if kind == "linear":
            self.bias = nn.Parameter(torch.empty(0))
        else:
            self.scale = nn.Parameter(torch.tensor(10.0))

    @property
    def num_classes(self) -> int:
        return len(self.weight)

    @property
    def num_features(self) -> int:
        return self.weight.shape[1]

    def forward(self, features: Tensor) -> Tensor:  # (b, D) -> (b, classes so far)
        if self.kind == "linear":
            q = F.linear(features, self.weight, self.bias)
        else:
            q = self.scale * F.linear(F.normalize(features), F.normalize(self.weight))
        return q.to(self.weight.dtype)  # half precision ends here: the losses are computed in full

    def grow(self, num_classes: int) -> None:
        """Rows for the classes up to `num_classes`; the old rows keep their bytes."""
        old, features = self.num_classes, self.num_features
        if num_classes < old:
            raise ValueError(f"the classifier has {old} classes and cannot shrink to {num_classes}")
        bound = features**-0.5  # torch's own range for a linear layer
        rows = [rng(self.seed, "head", c).uniform(-bound, bound, features + 1) for c in range(old, num_classes)]
        new = torch.from_numpy(np.array(rows, np.float32).reshape(-1, features + 1)).to(self.weight.device)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new[:, :-1]]))
        if self.kind == "linear":
            self.bias = nn.Parameter(torch.cat([self.bias.detach(), new[:, -1]]))
