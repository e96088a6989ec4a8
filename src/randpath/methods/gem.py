"""Gradient episodic memory: a step may not make the loss on any old task's exemplars larger.

Lopez-Paz and Ranzato, Gradient episodic memory for continual learning, NeurIPS 2017.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import Task
from randpath.engines.device import moved
from randpath.keyed import rng
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.projection import project
from randpath.learning.train import Terms
from randpath.settings import at_least


@dataclass(eq=False)
class GEM(Plain):
    """g = d L_ce / d theta on a batch of task k becomes the nearest g' with <g', g_t> >= 0 for every task t < k.

    g_t is the gradient of L_ce on exemplars of task t, `exemplars` of them drawn anew at each step (the original takes
    all). With a margin the dual variables are at least that, as in the original.

    The batch and all exemplars go forward together. Alone, each task would be normalised by its own statistics, and a
    network with batch-norm would learn what holds only as long as these say which task an image is of.
    """

    replays: ClassVar[bool] = True
    needs_exemplars: ClassVar[bool] = True

    _: KW_ONLY
    margin: Annotated[float, at_least(0), "gamma, the least value of the dual variables"] = 0.5
    exemplars: Annotated[int | None, at_least(1), "of each old task, at each step; null: all"] = 256

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = list(net.parameters())
        stops = self.carried["tasks"]["stops"].tolist() if self.carried else []  # where old tasks end
        old = self._exemplars_by_task(stops)
        constraints: list[Tensor] = []

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            drawn = [self._drawn(data, x, (s.seed, "gem", task.k, step, t)) for t, data in enumerate(old)]
            together = torch.cat([x, *(x_t for x_t, _ in drawn)])
            q, *q_old = net(together).split([len(x), *(len(y_t) for _, y_t in drawn)])
            constraints[:] = [_gradient(cross_entropy(q_t, y_t), params) for q_t, (_, y_t) in zip(q_old, drawn)]
            return {"ce": (1.0, cross_entropy(q, y, smoothing=s.training.smoothing))}

        def turn(step: int) -> None:
            if constraints:
                g = torch.cat([p.grad.flatten() for p in params if p.grad is not None])
                nearest = project(g, torch.stack(constraints), self.margin)
                for p, part in zip(params, torch.split(nearest, [p.numel() for p in params])):
                    p.grad = part.view_as(p).clone(memory_format=torch.preserve_format)

        epochs = self.fit(net, task, self.memory.alike(task.train), work, loss, after_backward=turn)
        carried = {"tasks": {"stops": torch.tensor([*stops, task.num_classes])}}
        return self.commit(task, net, epochs, memory=self.remember(task, net), carried=carried)

    def _exemplars_by_task(self, stops: list[int]) -> list[Dataset]:
        by_task = [
            [self.memory.train[c] for c in range(a, b) if c in self.memory.train] for a, b in zip([0, *stops], stops)
        ]
        return [Joined(parts) for parts in by_task if parts]

    def _drawn(self, data: Dataset, like: Tensor, key: tuple[int | str, ...]) -> tuple[Tensor, Tensor]:
        """Exemplars of one old task, of the size that the batch has at this step."""
        s, draw = self.setting, rng(*key)
        n = len(data) if self.exemplars is None else min(self.exemplars, len(data))
        x, y = next(iter(data.batches([draw.choice(len(data), n, replace=False)])))
        x = s.augment.train(moved(x, s.device), draw)
        if x.shape[1:] != like.shape[1:]:
            x = F.interpolate(x, size=like.shape[2:], mode="bilinear", antialias=True)
        return x, moved(y, s.device)


def _gradient(loss: Tensor, params: list[nn.Parameter]) -> Tensor:
    """As one vector; the graph is kept for the other losses of the step."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, params, retain_graph=True)])
