"""Ridge regression on a random projection (RanPAC, McDonnell et al., 2023, without its adaptation of the features)."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from randpath.data.dataset import Dataset
from randpath.keyed import rng
from randpath.learning.closed import ClosedForm, Linear, Sums
from randpath.learning.train import predict
from randpath.metrics import mean_class_accuracy
from randpath.settings import at_least

RIDGES = tuple(10.0**e for e in range(-4, 7))  # lambda, tried on the task's held-out items; without any, the middle one


@dataclass(eq=False)
class RanPAC(ClosedForm):
    """W = (H^T H + lambda I)^-1 H^T Y, H = relu(F R), R random and fixed, Y one-hot."""

    width: Annotated[int, at_least(1), "of the projection; 10,000 in the paper"] = 2000

    def projection(self, d: int) -> Tensor:
        return torch.from_numpy(rng(self.setting.seed, "projection").normal(size=(d, self.width)).astype(np.float32))

    def solved(self, sums: Sums, val: Dataset) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(sums.gram)
        targets = vectors.T @ sums.totals.T  # H^T Y, in the basis in which the Gram matrix is diagonal
        best, found, b = -1.0, sums.totals, sums.counts * 0
        for ridge in RIDGES if len(val) else [RIDGES[len(RIDGES) // 2]]:
            W = (vectors @ (targets / (values.clamp(min=0) + ridge)[:, None])).T
            score = self._score(W, b, val)
            if score > best:
                best, found = score, W
        return found, b

    def _score(self, W: Tensor, b: Tensor, val: Dataset) -> float:
        if not len(val):
            return 0.0  # there is one ridge
        q = predict(Linear(W, b, self.R), val, self.setting.augment)
        return float(mean_class_accuracy(val.labels, q.argmax(dim=1).numpy()))
