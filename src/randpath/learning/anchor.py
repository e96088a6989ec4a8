"""What a model with a start answers: the closed-form solution on its features, and the path network's share beside it.

    q = (1 - a) log softmax(q_lda / t_lda) + a log softmax(q_path / t_path)

q_lda is a shrunk linear discriminant of unit vectors, which needs sums alone and no old picture; a is chosen on the
held-out pictures, 0 unless they show that more is better, so that the answer is not worse than the simple thing.
Before a vector is scaled to unit length, each number x becomes sign(x) |x|^power: features of a network are many small
numbers and a few large ones, and a power below 1 brings them nearer to what a discriminant takes them for.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import log_softmax
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.learning.closed import Sums, lda
from randpath.learning.gaussians import Gaussians
from randpath.learning.memory import some_of_each
from randpath.learning.train import predict
from randpath.metrics import class_weights

SHARES = (0.0, 0.25, 0.5, 0.75)  # of the path network
FEW = 40  # held-out pictures: below that, they cannot tell what the path network adds
LEFT_OUT = 2000  # stored vectors, at most, that are asked as if they had not been learned
TEMPERATURES = np.logspace(-3, 3, 61)
POWER = 0.7  # of four tried on other pictures (docs/log.md); 1 in models of release 0.1


def unit(x: Tensor, power: float) -> Tensor:
    """sign(x) |x|^power, of length 1.

    >>> unit(torch.tensor([[9.0, -16.0]]), 0.5).tolist() == unit(torch.tensor([[3.0, -4.0]]), 1.0).tolist()
    True
    """
    return F.normalize(x if power == 1 else x.sign() * x.abs() ** power)


@dataclass(frozen=True)
class Mix:
    """a, t_lda and t_path."""

    share: float = 0.0
    t_lda: float = 1.0
    t_path: float = 1.0


class Anchored(nn.Module):
    """Normalised vectors (b, d) to q (b, classes)."""

    W: Tensor
    b: Tensor
    mean: Tensor
    std: Tensor

    def __init__(
        self, path: nn.Module, sums: Sums, mean: tuple[float, ...], std: tuple[float, ...], mix: Mix, power: float
    ):
        super().__init__()
        self.path, self.mix, self.power = path, mix, power
        W, b = lda(sums, shrinkage(sums))
        one_each = (torch.tensor(mean), torch.tensor(std))
        if len(W.T) != len(mean) > 1:  # of pictures: one for each channel
            one_each = (one_each[0][:, None, None], one_each[1][:, None, None])
        for name, value in (("W", W), ("b", b), ("mean", one_each[0]), ("std", one_each[1])):
            self.register_buffer(name, value.double().clone(memory_format=torch.contiguous_format))

    def features(self, x: Tensor) -> Tensor:
        """What the sums are of."""
        return unit((x * self.std + self.mean).flatten(1), self.power)

    def linear(self, x: Tensor) -> Tensor:
        """q_lda."""
        return self.features(x) @ self.W.T + self.b

    def with_share(self, share: float) -> "Anchored":
        """The same with another share of the path network; 0: the closed form alone."""
        other = copy.copy(self)
        other.mix = replace(self.mix, share=share)
        return other

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.W.dtype)
        q = F.log_softmax(self.linear(x) / self.mix.t_lda, dim=1)
        if not self.mix.share:
            return q
        return (1 - self.mix.share) * q + self.mix.share * F.log_softmax(self.path(x) / self.mix.t_path, dim=1)


def shrinkage(sums: Sums) -> float:
    """e = d / (d + n): the sphere counts for as many vectors as there are dimensions (docs/log.md, how it was found).

    >>> shrinkage(Sums.nothing(2).plus(torch.ones(6, 2), 0))
    0.25
    """
    d = sums.totals.shape[1]
    return d / (d + float(sums.counts.sum()))


def with_items(sums: Sums | None, data: Dataset, power: float) -> Sums:
    """The sums of unit vectors, with those of a lesson."""
    sums = Sums.nothing(math.prod(data.shape)) if sums is None else sums
    for c in np.unique(data.labels).tolist():
        own = np.flatnonzero(data.labels == c)
        for x, _ in data.batches(np.array_split(own, max(1, len(own) // 512))):
            x = x.movedim(-1, 1) if x.ndim == 4 else x  # as the network sees them
            sums = sums.plus(unit(x.double().flatten(1), power), c)
    return sums


def mixed(anchored: Anchored, data: Dataset, augment: Augment, device: str) -> tuple[Mix, float]:
    """The mix that held-out pictures choose, and the accuracy of the closed form alone on them."""
    q_lda = predict(lambda x: anchored.linear(x.double()), data, augment, device).numpy()
    q_path = predict(lambda x: anchored.path(x.double()), data, augment, device).numpy()
    return choose(q_lda, q_path, data.labels), float(np.mean(q_lda.argmax(axis=1) == data.labels))


def left_out(
    anchored: Anchored, gaussians: Gaussians, stored: Mapping[int, Dataset], augment: Augment, device: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of vectors that are in the sums: the closed form's answer, what tells of strangers (learning/gaussians.py) and
    the labels, each as if the vector had not been learned; without those that are the only one of their class."""
    others = {c: data for c, data in stored.items() if gaussians.sums.counts[c] > 1}
    if not others:
        nothing = np.zeros((0, len(gaussians.mu)))
        return nothing, nothing, nothing, np.zeros(0, np.int64)
    data = some_of_each(others, LEFT_OUT)
    f = predict(lambda x: anchored.features(x.double()), data, augment, device)
    cos, r = (found.numpy() for found in gaussians.left_out(f, torch.from_numpy(data.labels)))
    return log_softmax(-r / 2 / anchored.mix.t_lda, axis=1), cos, r, data.labels


def relabelled(sums: Sums, labels: list[int]) -> Sums:
    """After classes were merged (their new labels are equal) or forgotten (-1).

    Of a forgotten class the spread about its mean stays in the covariance of all: no picture, and no mean.

    >>> one = Sums.nothing(1).plus(torch.ones(1, 1), 0).plus(2 * torch.ones(1, 1), 1).plus(torch.ones(1, 1), 2)
    >>> relabelled(one, [0, 1, 1]).totals.tolist(), relabelled(one, [0, -1, 1]).gram.tolist()
    ([[1.0], [3.0]], [[2.0]])
    """
    new, mu = torch.tensor(labels), sums.means()
    onto = torch.stack([(new == c).double() for c in range(max(labels) + 1)])  # (new classes, old classes)
    gone = (new < 0).double() * sums.counts
    return Sums(onto @ sums.counts, onto @ sums.totals, sums.gram - (mu * gone[:, None]).T @ mu)


def choose(q_lda: np.ndarray, q_path: np.ndarray, y: np.ndarray) -> Mix:
    """The temperatures under which the held-out pictures are the most likely; the share with the most of them right.

    Every class counts equally; a share that is not two standard errors better than none is chance.

    >>> choose(np.eye(2).repeat(30, 0), np.eye(2).repeat(30, 0)[::-1], np.arange(2).repeat(30)).share
    0.0
    """
    if not len(y) or q_lda.shape[1] < 2:
        return Mix()
    t_lda, t_path = (_temperature(q, y) for q in (q_lda, q_path))
    if len(y) < FEW:
        return Mix(0.0, t_lda, t_path)
    one, other = log_softmax(q_lda / t_lda, axis=1), log_softmax(q_path / t_path, axis=1)
    right = {a: (((1 - a) * one + a * other).argmax(axis=1) == y).astype(float) for a in SHARES}
    gain = {a: class_weights(y) * (right[a] - right[0.0]) for a in SHARES}
    sure = [a for a in SHARES if gain[a].sum() >= 2 * np.sqrt(np.square(gain[a]).sum())]  # 0 always is
    return Mix(max(sure, key=lambda a: gain[a].sum()), t_lda, t_path)


def _temperature(q: np.ndarray, y: np.ndarray) -> float:
    return float(min(TEMPERATURES, key=lambda t: _loss(log_softmax(q / t, axis=1), y)))


def _loss(log_p: np.ndarray, y: np.ndarray) -> float:
    """Cross-entropy, with the doubt that so few pictures leave: else, where all are right, no temperature is too low"""
    doubt = 1 / (len(y) + 1)
    each = (1 - doubt) * log_p[np.arange(len(y)), y] + doubt * log_p.mean(axis=1)
    return float(-class_weights(y) @ each)
