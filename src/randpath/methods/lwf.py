"""Learning without Forgetting (Li and Hoiem, 2016): no exemplars; the old network's answers on new images are kept.

In the class-incremental setting, with one classifier for all classes.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy, distillation, soft_cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.settings import above, at_least


@dataclass(eq=False)
class LwF(Plain):
    """L = L_ce + weight * KL(softmax(q' / t), softmax(q / t)) over the old classes, on the images of task k alone.

    over=all: the second softmax is over all classes, a new one's target is 0, and t^2 scales the term, as in RtF.
    """

    warning: ClassVar[str] = forgets("LwF 24.17 %")

    _: KW_ONLY
    weight: Annotated[float, at_least(0), "of the distillation (lambda_o, 1 in the paper)"] = 1.0
    temperature: Annotated[float, above(0), "t of the distillation (2 in the paper)"] = 2.0
    over: Annotated[Literal["old", "all"], "which classes the distillation sees; all: it holds new ones down"] = "old"

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task)
        teacher = self.inference() if task.k > 1 else None
        kept = distillation if self.over == "old" else soft_cross_entropy

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            q = net(x)
            terms = {"ce": (1.0, cross_entropy(q, y, smoothing=self.setting.training.smoothing))}
            if teacher is not None:
                with torch.no_grad():
                    q_teacher = teacher(x)
                terms["dist"] = (self.weight, kept(q, q_teacher, self.temperature))
            return terms

        epochs = self.fit(net, task, task.train, work, loss)
        return self.commit(task, net, epochs)
