"""Synaptic intelligence: parameters that took much off the loss on their way are held where they arrived.

Zenke, Poole and Ganguli, Continual learning through synaptic intelligence, ICML 2017.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.importance import Named, path_integral, penalty, values
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain, grown
from randpath.learning.train import Terms
from randpath.settings import above, at_least


@dataclass(eq=False)
class SI(Plain):
    """L = L_ce + strength * sum_j Omega_j (theta_j - theta*_j)^2.

    Over the steps of a task omega_j = sum of -g_j * (change of theta_j), g the gradient of L_ce alone; after it
    Omega_j <- max(0, Omega_j + omega_j / ((change of theta_j over the task)^2 + damping)).
    """

    warning: ClassVar[str] = forgets("SI 19.67 %")

    _: KW_ONLY
    strength: Annotated[float, at_least(0), "c, the weight of the penalty"] = 1.0
    damping: Annotated[float, above(0), "xi, keeps the quotient finite"] = 1e-3

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = dict(net.named_parameters())
        old = {file: grown(tensors, params) for file, tensors in self.carried.items()}
        start = values(net)
        omega = {name: torch.zeros_like(p, requires_grad=False) for name, p in params.items()}
        g: Named = {}
        before: Named = {}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1.0, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if old:
                terms["si"] = (self.strength, penalty(params, old["theta"], old["omega"]))
            return terms

        @torch.no_grad()
        def note_gradient(step: int) -> None:
            before.update(values(net))
            for name, p in params.items():
                assert p.grad is not None
                g[name] = p.grad.clone()
                if old:  # less the penalty's own gradient
                    g[name] -= 2 * self.strength * old["omega"][name] * (p - old["theta"][name])

        epochs = self.fit(
            net, task, task.train, work, loss, extra=omega,
            after_backward=note_gradient, after_step=lambda: path_integral(omega, before, net, g),
        )  # fmt: skip
        now = values(net)
        for name in omega:
            omega[name] /= (now[name] - start[name]).square() + self.damping
            if old:
                omega[name] += old["omega"][name]
            omega[name].clamp_(min=0)  # a negative weight would reward moving away without end
        return self.commit(task, net, epochs, carried={"omega": omega, "theta": now})
