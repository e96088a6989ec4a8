"""iCaRL (Rebuffi et al., 2017): herded exemplars, sigmoid outputs with distillation, nearest mean of exemplars."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.learning.memory import Memory
from randpath.learning.method import Learned, Work
from randpath.learning.plain import Plain
from randpath.learning.train import Terms, predict
from randpath.network.fold import Folded, fold
from randpath.network.layers import PathNetwork


class NearestMean(nn.Module):
    """-|f(x) - mu_c| for every class c, f of unit length, mu_c the mean of its exemplars' f, scaled to unit length."""

    means: Tensor  # (classes, features)

    def __init__(self, extractor: Folded, means: Tensor):
        super().__init__()
        self.extractor = extractor
        self.register_buffer("means", means.clone())

    def features(self, x: Tensor) -> Tensor:  # (b, D), of unit length
        return F.normalize(self.extractor.features(x))

    def forward(self, x: Tensor) -> Tensor:  # (b, classes)
        f = self.features(x)
        if torch.compiler.is_compiling():  # ONNX has no cdist, which rounds differently
            return -(f[:, None] - self.means).square().sum(dim=2).sqrt()
        return -torch.cdist(f, self.means)


def targets(y: Tensor, num_classes: int, q_teacher: Tensor | None) -> Tensor:
    """What each sigmoid should give: the teacher's own answer for an old class, 1 or 0 for a new one.

    >>> targets(torch.tensor([2]), 3, torch.zeros(1, 2)).tolist()
    [[0.5, 0.5, 1.0]]
    """
    wanted = F.one_hot(y, num_classes).float()
    if q_teacher is not None:
        wanted[:, : q_teacher.shape[1]] = torch.sigmoid(q_teacher)
    return wanted


@dataclass(eq=False)
class ICaRL(Plain):
    """L = -sum_c [t_c log g_c + (1 - t_c) log(1 - g_c)], g = sigmoid(q), t as `targets`, on images and exemplars."""

    replays: ClassVar[bool] = True
    needs_exemplars: ClassVar[bool] = True

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task)
        teacher = fold(self.net, self.path) if task.k > 1 else None

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            with torch.no_grad():
                wanted = targets(y, task.num_classes, None if teacher is None else teacher(x))
            each = F.binary_cross_entropy_with_logits(net(x), wanted, reduction="none")
            return {"ce": (1.0, each.sum(dim=1).mean())}

        epochs = self.fit(net, task, self.replayed(task), work, loss)
        memory = self.remember(task, net, herding=True)
        return self.commit(task, net, epochs, memory=memory, carried={"means": {"means": self._means(net, memory)}})

    def _means(self, net: PathNetwork, memory: Memory) -> Tensor:
        """mu_c of every class, from the exemplars that train."""
        s, extractor = self.setting, fold(net, self.path)

        def mean(data: Dataset) -> Tensor:
            f = predict(extractor.features, data, s.augment, s.device)
            return F.normalize(F.normalize(f).mean(dim=0), dim=0)

        return torch.stack([mean(memory.train[c]) for c in sorted(memory.train)])

    def inference(self) -> nn.Module:
        return NearestMean(fold(self.net, self.path), self.carried["means"]["means"]).to(self.setting.device)

    def metrics(self, accuracy: Callable[[nn.Module], float]) -> dict[str, float]:
        """Of the network's own outputs and of the nearest mean of exemplars, which is the method's answer."""
        return {"head": accuracy(fold(self.net, self.path)), "nearest mean": accuracy(self.inference())}
