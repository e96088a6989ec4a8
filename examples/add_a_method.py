"""A method of your own in one file, which is also a recipe: nothing of randpath has to be changed to try it.

    randpath bench examples/add_a_method.py                     run it
    randpath bench examples/add_a_method.py --method finetune   the same without its term
    randpath resume runs/add_a_method-near-tuned-0              this file is found again

The method: fine-tuning that stays near the weights of the task before, L = L_ce + weight / 2 * |theta - theta'|^2.
CONTRIBUTING.md says how such a method moves into `src/randpath/methods/`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from torch import Tensor

from randpath import METHODS, Experiment, Training, replace
from randpath.data.stream import Task
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.settings import at_least


@dataclass(eq=False)
class Near(Plain):
    """L = L_ce + weight / 2 * sum_i (theta_i - theta'_i)^2 over the parameters of the task before."""

    _: KW_ONLY
    weight: Annotated[float, at_least(0), "of the distance to the weights of the task before"] = 1.0

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task)  # a copy with a row for each class; the method changes in `commit`
        before = {name: p.detach().clone() for name, p in self.net.named_parameters()}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1.0, cross_entropy(net(x), y))}
            if task.k > 1:
                now = dict(net.named_parameters())
                far = sum(((now[name][: len(old)] - old) ** 2).sum() for name, old in before.items())
                terms["near"] = (self.weight / 2, far)
            return terms

        epochs = self.fit(net, task, task.train, work, loss)
        return self.commit(task, net, epochs)


METHODS["near"] = Near

tuned = Experiment(
    dataset="digits",
    tasks=5,
    method="near",
    options={"weight": 0.1},
    backbone="mlp",
    width=100,
    padding=1,
    training=Training(epochs=10, batch=32, optimizer="adamw", lr=2e-3),
)
paper = replace(tuned, options={"weight": 0.0})
