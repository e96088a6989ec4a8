"""How far a vector lies from each class, against how far it lies from all of them: from the sums of the closed form.

    r_c(x) = (x - mu_c)^T S^-1 (x - mu_c) - (x - mu_0)^T S_0^-1 (x - mu_0)

(relative Mahalanobis distance, Ren et al., 2021): S the shrunk covariance about the class means, mu_0 and S_0 those of
all vectors, shrunk likewise. -r_c / 2 is the closed form's q_c but for what all classes share. And in which direction:

    cos_c(x) = <x - mu_0, mu_c - mu_0> / (|x - mu_0| |mu_c - mu_0|),   <a, b> = a^T S_0^-1 b.

A vector that is in the sums can be left out of them without solving anew (Sherman and Morrison).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from randpath.learning.closed import Sums, shrunk


@dataclass(frozen=True)
class Gaussians:
    """One for each class, with one covariance, and one for all; what is inverted is inverted when it is first needed.

    >>> sums = Sums.nothing(1).plus(torch.tensor([[0.0], [2.0]]), 0).plus(torch.tensor([[10.0], [12.0]]), 1)
    >>> Gaussians(sums, 0.0).looks(np.zeros(0), np.array([[1.0], [11.0]]))[1].argmin(axis=1).tolist()
    [0, 1]
    """

    sums: Sums
    shrinkage: float

    @cached_property
    def mu(self) -> Tensor:  # (C, d)
        return self.sums.means()

    @cached_property
    def mu_0(self) -> Tensor:  # (d,)
        return self.sums.totals.sum(dim=0) / self.sums.counts.sum()

    @cached_property
    def inverse(self) -> Tensor:  # S^-1, (d, d)
        return _inverse(shrunk(self.sums.within(), self.shrinkage))

    @cached_property
    def inverse_0(self) -> Tensor:  # S_0^-1
        n = float(self.sums.counts.sum())
        total = (self.sums.gram - n * torch.outer(self.mu_0, self.mu_0)) / max(1.0, n - 1)
        return _inverse(shrunk(total, self.shrinkage))

    def looks(self, q: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """cos and r of vectors that are not in the sums, (n, C) each; what a network answers does not count."""
        g, m = torch.from_numpy(f) - self.mu_0, self.mu - self.mu_0
        seen = g @ self.inverse_0
        square = (seen * g).sum(dim=1)[:, None]
        lengths = square * ((m @ self.inverse_0) * m).sum(dim=1)
        cos = (seen @ m.T) / lengths.clamp(min=1e-12).sqrt()
        return cos.numpy(), (self._squares(torch.from_numpy(f)) - square).numpy()

    def _squares(self, f: Tensor) -> Tensor:
        """(x - mu_c)^T S^-1 (x - mu_c), (n, C)."""
        seen, means = f @ self.inverse, self.mu @ self.inverse
        return (seen * f).sum(dim=1)[:, None] - 2 * seen @ self.mu.T + (means * self.mu).sum(dim=1)

    def left_out(self, f: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """cos and r of vectors that are in the sums, each as if it were not; unlike a class that had no other.

        With u = x - mu_c, n of its class, N of C classes, e the shrinkage, without x:
        mu_c' = mu_c - u / (n - 1) and Sigma' = ((N - C) Sigma - n / (n - 1) u u^T) / (N - C - 1).
        """
        counts = self.sums.counts
        n, N, C = counts[labels], float(counts.sum()), len(counts)
        own, u = torch.arange(len(f)), f - self.mu[labels]
        grown = n / (n - 1).clamp(min=1)  # u' = x - mu_c' = n / (n - 1) u
        left = max(1.0, N - C - 1)
        a, b = self._downdate((N - C) / left, grown / left)
        seen = u @ self.inverse  # S^-1 u
        k = (b / a) / (1 - (b / a) * (seen * u).sum(dim=1)).clamp(min=1e-6)
        cross = (f * seen).sum(dim=1)[:, None] - seen @ self.mu.T  # (x - mu_j)^T S^-1 u
        squares = self._squares(f)
        squares[own, labels] *= grown**2
        cross[own, labels] *= grown
        squares = (squares + k[:, None] * cross.square()) / a
        cos, square = self._left_out_of_all(f, labels, u)
        found = squares - square[:, None]
        found[own, labels] = torch.where(n > 1, found[own, labels], torch.inf)
        cos[own, labels] = torch.where(n > 1, cos[own, labels], -1.0)
        return cos, found

    def _left_out_of_all(self, f: Tensor, labels: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """cos_j and (x - mu_0)^T S_0^-1 (x - mu_0) without x.

        With g = x - mu_0: mu_0' = mu_0 - g / (N - 1), so that x - mu_0' = N / (N - 1) g, and mu_j' - mu_0' is
        v_j = mu_j - mu_0 + g / (N - 1), less u / (n - 1) for its own class; S_0' = a S_0 - b g g^T.
        """
        counts, own, g, m = self.sums.counts, torch.arange(len(f)), f - self.mu_0, self.mu - self.mu_0
        N, less = float(counts.sum()), u / (counts[labels] - 1).clamp(min=1)[:, None]
        rest = max(1.0, N - 1)
        a, b = self._downdate((N - 1) / max(1.0, N - 2), torch.full_like(g[:, 0], N / rest / max(1.0, N - 2)))
        h, away = g @ self.inverse_0, less @ self.inverse_0
        s = (h * g).sum(dim=1)
        k = (b / a) / (1 - (b / a) * s).clamp(min=1e-6)
        gv = h @ m.T + (s / rest)[:, None]  # g^T S_0^-1 v_j
        vv = ((m @ self.inverse_0) * m).sum(dim=1) + 2 / rest * h @ m.T + (s / rest**2)[:, None]  # v_j^T S_0^-1 v_j
        vv[own, labels] += (away * less).sum(dim=1) - 2 * (away * (m[labels] + g / rest)).sum(dim=1)
        gv[own, labels] -= (away * g).sum(dim=1)
        lengths = (s + k * s.square())[:, None] * (vv + k[:, None] * gv.square())
        cos = (1 + k * s)[:, None] * gv / lengths.clamp(min=1e-12).sqrt()
        return cos, (s + k * s.square()) * (N / rest) ** 2 / a

    def _downdate(self, times: float, minus: Tensor) -> tuple[float, Tensor]:
        """a and b of S' = a S - b u u^T where Sigma' = times Sigma - minus u u^T; the sphere is taken to grow too."""
        return times, (1 - self.shrinkage) * minus


def _inverse(S: Tensor) -> Tensor:
    inverse: Tensor = torch.linalg.inv(S)
    return inverse
