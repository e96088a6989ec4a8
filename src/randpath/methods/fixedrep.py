"""Fixed representation: the features of the first task stay as they are, and only new rows of the classifier learn.

The paper's baseline `FixedRep` (section 4.2); Rebuffi et al., iCaRL, CVPR 2017, section 4.1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms


@dataclass(eq=False)
class FixedRepresentation(Plain):
    """L = L_ce over all classes seen, on the images of task k; after task 1 only the rows of task k's classes move."""

    def learn(self, task: Task, work: Work) -> Learned:
        net, old = self.begin(task), self.net.num_classes
        head = {f"head.{name}": p for name, p in net.head.named_parameters()}
        before = {name: p.detach()[:old].clone() for name, p in head.items()}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(net(x), y, smoothing=self.setting.training.smoothing))}

        @torch.no_grad()
        def keep_old_rows() -> None:  # whatever the optimizer made of them: weight decay moves what has no gradient
            for name, p in head.items():
                p[:old] = before[name]

        first = self.k == 0
        epochs = self.fit(
            net, task, task.train, work, loss,
            params=None if first else head, after_step=None if first else keep_old_rows,
        )  # fmt: skip
        trained = None if first else sum(p[old:].numel() for p in head.values())
        return self.commit(task, net, epochs, trained=trained)
