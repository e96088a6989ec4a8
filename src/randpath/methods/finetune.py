"""Fine-tuning: the whole network is trained on the new task's images alone, so it forgets. The lower bound."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Work, forgets
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms


@dataclass(eq=False)
class FineTune(Plain):
    """L = L_ce over all classes seen, on the images of task k."""

    warning: ClassVar[str] = forgets()

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task)

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(net(x), y, smoothing=self.setting.training.smoothing))}

        epochs = self.fit(net, task, task.train, work, loss)
        return self.commit(task, net, epochs)
