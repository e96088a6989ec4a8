"""Joint training: fresh weights and all data so far, each time. The upper bound, which needs the old data."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms


@dataclass(eq=False)
class Joint(Plain):
    """L = L_ce over all classes seen, on the images of tasks 1..k."""

    cumulative: ClassVar[bool] = True

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task, fresh=True)

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(net(x), y, smoothing=self.setting.training.smoothing))}

        epochs = self.fit(net, task, task.train, work, loss, training=self.setting.training.from_nothing())
        return self.commit(task, net, epochs)
