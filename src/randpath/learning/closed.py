"""Methods without training: from sums over the items seen, a linear answer is solved; no item is kept.

n_c = number, s_c = sum of f, G = sum of f f^T;  q = W f + b
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.learning.method import Learned, Setting, State, Work, check_task
from randpath.learning.train import predict
from randpath.settings import check


@dataclass(frozen=True)
class Sums:
    """n_c, s_c and G, in float64."""

    counts: Tensor  # (C,)
    totals: Tensor  # (C, d)
    gram: Tensor  # (d, d), or (0, 0) where no one needs it

    @classmethod
    def nothing(cls, d: int, *, gram: bool = True) -> "Sums":
        side = d if gram else 0
        empty = torch.float64
        return cls(torch.zeros(0, dtype=empty), torch.zeros(0, d, dtype=empty), torch.zeros(side, side, dtype=empty))

    def plus(self, f: Tensor, c: int) -> "Sums":
        """With the items of one class, (n, d).

        >>> one = Sums.nothing(2).plus(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), 0)
        >>> one.counts.tolist(), one.totals.tolist(), one.gram.tolist()
        ([2.0], [[4.0, 2.0]], [[10.0, 2.0], [2.0, 4.0]])
        """
        f = f.double()
        more = max(0, c + 1 - len(self.counts))
        counts = torch.cat([self.counts, self.counts.new_zeros(more)])
        totals = torch.cat([self.totals, self.totals.new_zeros(more, self.totals.shape[1])])
        counts[c] += len(f)
        totals[c] += f.sum(dim=0)
        return Sums(counts, totals, self.gram + f.T @ f if len(self.gram) else self.gram)

    def tensors(self) -> dict[str, Tensor]:
        return {"counts": self.counts, "totals": self.totals, "gram": self.gram}

    def means(self) -> Tensor:
        return self.totals / self.counts.clamp(min=1)[:, None]

    def within(self) -> Tensor:
        """The covariance about the mean of each class: (G - sum_c n_c mu_c mu_c^T) / (n - C).

        >>> Sums.nothing(1).plus(torch.tensor([[1.0], [3.0]]), 0).plus(torch.tensor([[5.0], [5.0]]), 1).within().item()
        1.0
        """
        mu = self.means()
        spread = self.gram - (mu * self.counts[:, None]).T @ mu
        return spread / max(1.0, float(self.counts.sum()) - len(self.counts))


def lda(sums: Sums, shrinkage: float) -> tuple[Tensor, Tensor]:
    """W = mu S^-1, b = -diag(mu S^-1 mu^T) / 2, S = (1 - e) Sigma + e (tr Sigma / d) I: every class equally likely."""
    mu = sums.means()
    W = torch.linalg.solve(shrunk(sums.within(), shrinkage), mu.T).T
    return W, -0.5 * (W * mu).sum(dim=1)


def shrunk(sigma: Tensor, shrinkage: float) -> Tensor:
    """(1 - e) Sigma + e (tr Sigma / d) I.

    >>> shrunk(torch.tensor([[3.0, 1.0], [1.0, 1.0]]), 0.5).tolist()
    [[2.5, 0.5], [0.5, 1.5]]
    """
    d = len(sigma)
    scale = max(float(sigma.trace()) / d, 1e-12)
    return (1 - shrinkage) * sigma + shrinkage * scale * torch.eye(d, dtype=sigma.dtype)


class Linear(nn.Module):
    """q = W f + b, f the item as a vector, or relu(f R) where there is a projection R."""

    R: Tensor | None
    W: Tensor
    b: Tensor

    def __init__(self, W: Tensor, b: Tensor, R: Tensor | None = None):
        super().__init__()
        self.register_buffer("R", None if R is None else R.float().clone())
        self.register_buffer("W", W.float().clone(memory_format=torch.contiguous_format))  # as a file gives it back
        self.register_buffer("b", b.float().clone())

    def forward(self, x: Tensor) -> Tensor:  # (b, classes)
        return self.features(x) @ self.W.T + self.b

    def features(self, x: Tensor) -> Tensor:
        f = x.flatten(1)
        return f if self.R is None else torch.relu(f @ self.R)


@dataclass(eq=False)
class ClosedForm:
    """learn: add to the sums, class by class; inference: `solved`, which is all that a method of this kind has."""

    cumulative: ClassVar[bool] = False
    needs_gram: ClassVar[bool] = True

    setting: Setting

    def __post_init__(self) -> None:
        check(self, "options.")
        self.k = 0
        self.R = self.projection(math.prod(self.setting.backbone.shape))
        width = math.prod(self.setting.backbone.shape) if self.R is None else self.R.shape[1]
        self.sums = Sums.nothing(width, gram=self.needs_gram)
        self.solution = Linear(self.sums.totals, self.sums.counts, self.R)

    def projection(self, d: int) -> Tensor | None:
        """R, (d, width); none: the item itself."""
        return None

    def solved(self, sums: Sums, val: Dataset) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def learn(self, task: Task, work: Work) -> Learned:
        s = self.setting
        check_task(task, s.backbone.shape, len(self.sums.counts), self.k)
        torch.set_num_threads(s.threads)
        sums, labels = self.sums, np.unique(task.train.labels).tolist()
        for i, c in enumerate(labels):
            own = task.train.take(np.flatnonzero(task.train.labels == c))
            sums = sums.plus(predict(self.solution.features, own, s.augment), c)
            work.tick((i + 1) / len(labels))
        solution = Linear(*self.solved(sums, task.val), self.R)
        self.k, self.sums, self.solution = task.k, sums, solution
        size = solution.W.numel() + solution.b.numel() + (0 if self.R is None else self.R.numel())
        return Learned([], solution.W.numel() + solution.b.numel(), size)

    def inference(self) -> nn.Module:
        return Linear(self.solution.W, self.solution.b, self.R).to(self.setting.device)

    def state_dict(self) -> State:
        weights = {"W": self.solution.W, "b": self.solution.b}
        return State({"weights": weights, "sums": self.sums.tensors()}, {"k": self.k})

    def load_state_dict(self, state: State) -> None:
        self.k = state.document["k"]
        # A copy lies in memory of torch's own alignment; what a file gave may not, and would be rounded differently.
        self.sums = Sums(**{name: torch.as_tensor(t).clone() for name, t in state.tensors["sums"].items()})
        W, b = (torch.as_tensor(state.tensors["weights"][name]) for name in ("W", "b"))
        self.solution = Linear(W, b, self.R)
