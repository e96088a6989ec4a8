"""Nearest class mean (Mensink et al., 2013): the class whose mean vector is nearest; for feature vectors."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from randpath.data.dataset import Dataset
from randpath.learning.closed import ClosedForm, Sums


@dataclass(eq=False)
class NCM(ClosedForm):
    """q_c = -|f - mu_c|^2 + |f|^2 = 2 mu_c f - |mu_c|^2."""

    needs_gram: ClassVar[bool] = False

    def solved(self, sums: Sums, val: Dataset) -> tuple[Tensor, Tensor]:
        mu = sums.means()
        return 2 * mu, -mu.square().sum(dim=1)
