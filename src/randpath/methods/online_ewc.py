"""Online EWC: one Fisher information for all old tasks, which fades, around the latest parameters.

Schwarz et al., Progress & Compress, ICML 2018, section 3.2.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.importance import Labels, fisher, penalty, sample, values
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain, grown
from randpath.learning.train import Terms
from randpath.settings import at_least, between


@dataclass(eq=False)
class OnlineEWC(Plain):
    """L = L_ce + strength / 2 * sum_j F_j (theta_j - theta*_j)^2, after each task F <- decay * F + F_k."""

    warning: ClassVar[str] = forgets("online EWC 19.77 %")

    _: KW_ONLY
    strength: Annotated[float, at_least(0), "lambda, the weight of the penalty"] = 100.0
    decay: Annotated[float, between(0, 1), "gamma, what is left of F after each task"] = 1.0
    fisher_images: Annotated[int | None, at_least(1), "images that F is measured on; null: all"] = 1000
    fisher_labels: Annotated[Labels, "F over labels that the model gives, or over the true ones"] = "model"

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = dict(net.named_parameters())
        old = {file: grown(tensors, params) for file, tensors in self.carried.items()}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1.0, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if old:
                terms["ewc"] = (self.strength / 2, penalty(params, old["theta"], old["fisher"]))
            return terms

        epochs = self.fit(net, task, task.train, work, loss)
        images = sample(task.train, s.augment, s.device, self.fisher_images, s.seed, "fisher", task.k)
        F = fisher(net, images, task.num_classes, self.fisher_labels)
        if old:
            F = {name: self.decay * old["fisher"][name] + F[name] for name in F}
        return self.commit(task, net, epochs, carried={"fisher": F, "theta": values(net)})
