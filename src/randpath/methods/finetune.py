"""Fine-tuning: the whole network is trained on the new task's images alone, so it forgets. The lower bound."""

from typing import ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Plain, Setting, State, Work, check_task


class FineTune:
    """L = L_ce over all classes seen, on the images of task k."""

    cumulative: ClassVar[bool] = False

    def __init__(self, setting: Setting):
        self.plain = Plain(setting)

    def learn(self, task: Task, work: Work) -> Learned:
        check_task(task, self.plain.setting.backbone.shape, self.plain.net.num_classes)
        return self.plain.train(task, task.train, work, self.plain.setting.training.of_task(task.k))

    def logits(self, x: Tensor) -> Tensor:
        return self.plain.logits(x)

    def state_dict(self) -> State:
        return State({"weights": dict(self.plain.net.state_dict())}, {})

    def load_state_dict(self, state: State) -> None:
        self.plain.net.load_weights(state.tensors["weights"])
