"""Riemannian walk: a running Fisher information, and a score of how much loss a parameter took off per distance.

Chaudhry et al., Riemannian Walk for incremental learning, ECCV 2018 (without its exemplars: the paper's comparison).
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.importance import Named, fisher, path_integral, penalty, values
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Carried, Plain, grown
from randpath.learning.train import Terms
from randpath.network.layers import PathNetwork
from randpath.settings import above, at_least, between


@dataclass(eq=False)
class RWalk(Plain):
    """L = L_ce + strength * sum_j (F_j + s_j) (theta_j - theta*_j)^2, F and s each scaled to a largest value of 1.

    Every `interval` steps F <- alpha F_batch + (1 - alpha) F, with F_batch the mean over the batch of the images' own
    squared gradients (true labels), and s_j += max(0, dL_j / (F_j (change of theta_j)^2 / 2 + epsilon)), where dL_j is
    the sum of -g_j * (change of theta_j) over those steps. After a task s becomes the mean of its old and new value.
    """

    warning: ClassVar[str] = forgets()

    _: KW_ONLY
    strength: Annotated[float, at_least(0), "lambda, the weight of the penalty"] = 10.0
    alpha: Annotated[float, between(0, 1), "share of the newest Fisher information in the running one"] = 0.9
    interval: Annotated[int, at_least(1), "steps between two updates of F and s"] = 10
    epsilon: Annotated[float, above(0), "keeps the score finite"] = 1e-3

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = dict(net.named_parameters())
        old = {file: grown(tensors, params) for file, tensors in self.carried.items()}
        importance = _importance(old) if old else {}
        extra = self._begun(net, old)
        dL, g = {name: extra[f"dL.{name}"] for name in params}, {}
        before: Named = {}
        batch: list[Tensor] = []
        count = 0

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            batch[:] = [x, y]
            terms = {"ce": (1.0, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if old:
                terms["rwalk"] = (self.strength, penalty(params, old["theta"], importance))
            return terms

        @torch.no_grad()
        def note_gradient(step: int) -> None:
            nonlocal count
            count = step + 1
            before.update(values(net))
            for name, p in params.items():
                assert p.grad is not None
                g[name] = p.grad.clone()
                if old:  # less the penalty's own gradient
                    g[name] -= 2 * self.strength * importance[name] * (p - old["theta"][name])

        def walk() -> None:
            path_integral(dL, before, net, g)
            if count % self.interval == 0:
                self._update(net, extra, fisher(net, iter([(batch[0], batch[1])]), task.num_classes, "true"))

        epochs = self.fit(net, task, task.train, work, loss, extra=extra, after_backward=note_gradient, after_step=walk)
        F = {name: extra[f"fisher.{name}"] for name in params}
        score = {name: extra[f"score.{name}"] for name in params}
        if old:
            score = {name: (old["score"][name] + score[name]) / 2 for name in score}
        return self.commit(task, net, epochs, carried={"fisher": F, "score": score, "theta": values(net)})

    def _begun(self, net: PathNetwork, old: Carried) -> Named:
        """F goes on from the old tasks'; score and dL begin at nothing, the distance at where the parameters are."""
        extra: Named = {}
        for name, p in net.named_parameters():
            zeros = torch.zeros_like(p, requires_grad=False)
            extra[f"fisher.{name}"] = old["fisher"][name].clone() if old else zeros.clone()
            extra[f"score.{name}"], extra[f"dL.{name}"] = zeros.clone(), zeros
            extra[f"from.{name}"] = p.detach().clone()
        return extra

    @torch.no_grad()
    def _update(self, net: PathNetwork, extra: Named, newest: Named) -> None:
        for name, p in net.named_parameters():
            F, score, dL, start = (extra[f"{what}.{name}"] for what in ("fisher", "score", "dL", "from"))
            F.mul_(1 - self.alpha).add_(newest[name], alpha=self.alpha)
            score += (dL / (F * (p - start).square() / 2 + self.epsilon)).clamp(min=0)
            dL.zero_()
            start.copy_(p)


def _importance(carried: Carried) -> Named:
    """F + s, each divided by its largest value over all parameters."""
    largest = {what: max(float(t.max()) for t in carried[what].values()) or 1.0 for what in ("fisher", "score")}
    return {
        name: carried["fisher"][name] / largest["fisher"] + carried["score"][name] / largest["score"]
        for name in carried["fisher"]
    }
