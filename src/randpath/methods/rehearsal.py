"""Rehearsal: fine-tuning on the new images and the memory's. One path, no distillation, no controller."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy, log_counts
from randpath.learning.plain import Plain
from randpath.learning.train import Terms


@dataclass(eq=False)
class Rehearsal(Plain):
    """L = L_ce over all classes seen, on the images of task k and the exemplars of tasks 1..k-1."""

    replays: ClassVar[bool] = True

    balanced: Annotated[bool, "balanced softmax in L_ce, as `tuned` has it"] = False

    def learn(self, task: Task, work: Work) -> Learned:
        net, data = self.begin(task), self.replayed(task)
        counts = log_counts(data.labels, task.num_classes).to(self.setting.device) if self.balanced else None

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(net(x), y, counts, self.setting.training.smoothing))}

        epochs = self.fit(net, task, data, work, loss)
        return self.commit(task, net, epochs, memory=self.remember(task, net))
