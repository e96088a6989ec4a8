"""Deep model consolidation: a network for the new classes alone and the old network teach a third, on other pictures.

Zhang et al., Class-incremental learning via deep model consolidation, WACV 2020.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.stream import Task
from randpath.errors import UsageError
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy, double_distillation
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.learning.whitening import fit_stem


@dataclass(eq=False)
class DMC(Plain):
    """First L = L_ce over the new classes alone, with fresh weights; then double distillation on auxiliary pictures.

    L_dd = mean over classes of (q - target)^2, the targets the two teachers' logits, each less its mean. No picture of
    the tasks is shown to the student, which starts from the old network.
    """

    needs_auxiliary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setting.auxiliary is None:
            raise UsageError("dmc learns from pictures of other things", next="name a dataset: --set auxiliary=svhn")

    def learn(self, task: Task, work: Work) -> Learned:
        if self.k == 0:
            net = self.begin(task)
            epochs = self.fit(net, task, task.train, work, _cross_entropy(net, self.setting.training.smoothing))
            return self.commit(task, net, epochs)
        student, auxiliary = self.begin(task), self.setting.auxiliary
        assert auxiliary is not None
        alone = self.setting.backbone.build(self.setting.seed).to(self.setting.device)
        fit_stem(alone, task.train, self.setting.augment)
        alone.grow_head(len(task.new))
        data = task.train.take(np.arange(len(task.train)), task.train.labels - task.new.start)
        lines = self.fit(
            alone, task, data, work.part(0, 2), _cross_entropy(alone, self.setting.training.smoothing), name="alone"
        )
        alone.eval().requires_grad_(False)
        old = self.inference()

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            with torch.no_grad():
                q_old, q_new = old(x), alone(x)
            return {"dd": (1.0, double_distillation(student(x), q_old, q_new))}

        lines += self.fit(student, task, auxiliary, work.part(1, 2), loss, name="student")
        return self.commit(task, student, lines)


def _cross_entropy(net: nn.Module, smoothing: float) -> Callable[[Tensor, Tensor, int], Terms]:
    def loss(x: Tensor, y: Tensor, step: int) -> Terms:
        return {"ce": (1.0, cross_entropy(net(x), y, smoothing=smoothing))}

    return loss
