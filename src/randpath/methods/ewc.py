"""Elastic weight consolidation: parameters that mattered for an old task are held where they were after it.

Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, PNAS 2017.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.importance import Labels, fisher, penalty, sample, values
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain, grown
from randpath.learning.train import Terms
from randpath.settings import at_least


@dataclass(eq=False)
class EWC(Plain):
    """L = L_ce + strength / 2 * sum over tasks t < k of sum_j F_t,j (theta_j - theta*_t,j)^2.

    theta*_t are the parameters after task t and F_t the diagonal of the Fisher information on its images. One F and
    one theta* is kept for each task.
    """

    warning: ClassVar[str] = forgets("EWC 19.80 %")

    _: KW_ONLY
    strength: Annotated[float, at_least(0), "lambda, the weight of the penalty"] = 100.0
    fisher_images: Annotated[int | None, at_least(1), "images that F is measured on; null: all"] = 1000
    fisher_labels: Annotated[Labels, "F over labels that the model gives, or over the true ones"] = "model"

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = dict(net.named_parameters())
        carried = {file: grown(tensors, params) for file, tensors in self.carried.items()}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1.0, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if carried:
                old = [
                    penalty(params, carried[_file(t, "theta")], carried[_file(t, "fisher")]) for t in range(1, task.k)
                ]
                terms["ewc"] = (self.strength / 2, torch.stack(old).sum())
            return terms

        epochs = self.fit(net, task, task.train, work, loss)
        images = sample(task.train, s.augment, s.device, self.fisher_images, s.seed, "fisher", task.k)
        carried[_file(task.k, "fisher")] = fisher(net, images, task.num_classes, self.fisher_labels)
        carried[_file(task.k, "theta")] = values(net)
        return self.commit(task, net, epochs, carried=carried)


def _file(k: int, what: str) -> str:
    return f"task-{k:04d}-{what}"
