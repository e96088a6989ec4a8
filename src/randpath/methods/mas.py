"""Memory aware synapses: parameters that the output is sensitive to are held where they were.

Aljundi et al., Memory Aware Synapses: Learning what (not) to forget, ECCV 2018.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.importance import penalty, sample, sensitivity, values
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain, grown
from randpath.learning.train import Terms
from randpath.settings import at_least


@dataclass(eq=False)
class MAS(Plain):
    """L = L_ce + strength * sum_j Omega_j (theta_j - theta*_j)^2, Omega_j += mean over images of |d |q|^2 / d theta_j|.

    No labels are needed for Omega; it is added up over the tasks.
    """

    warning: ClassVar[str] = forgets("MAS 19.52 %")

    _: KW_ONLY
    strength: Annotated[float, at_least(0), "lambda, the weight of the penalty"] = 1.0
    images: Annotated[int | None, at_least(1), "images that Omega is measured on; null: all"] = 1000

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        params = dict(net.named_parameters())
        old = {file: grown(tensors, params) for file, tensors in self.carried.items()}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1.0, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if old:
                terms["mas"] = (self.strength, penalty(params, old["theta"], old["omega"]))
            return terms

        epochs = self.fit(net, task, task.train, work, loss)
        images = sample(task.train, s.augment, s.device, self.images, s.seed, "sensitivity", task.k)
        omega = sensitivity(net, images)
        if old:
            omega = {name: old["omega"][name] + omega[name] for name in omega}
        return self.commit(task, net, epochs, carried={"omega": omega, "theta": values(net)})
