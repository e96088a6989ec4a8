"""Streaming linear discriminant analysis (Hayes and Kanan, 2020): class means, one covariance; for feature vectors."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from randpath.data.dataset import Dataset
from randpath.learning.closed import ClosedForm, Sums, lda
from randpath.settings import between


@dataclass(eq=False)
class SLDA(ClosedForm):
    """q_c = mu_c S^-1 f - mu_c S^-1 mu_c / 2, S = (1 - e) Sigma + e (tr Sigma / d) I, Sigma about the class means."""

    # 1e-4 in the paper, for as many images as ImageNet has; a user's are few.
    shrinkage: Annotated[float, between(0, 1), "e: from the covariance to a sphere"] = 0.1

    def solved(self, sums: Sums, val: Dataset) -> tuple[Tensor, Tensor]:
        return lda(sums, self.shrinkage)
