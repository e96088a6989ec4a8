"""Joint training: fresh weights and all data so far, each time. The upper bound, which needs the old data."""

from typing import ClassVar

from torch import Tensor

from randpath.data.stream import Task
from randpath.learning.method import Learned, Plain, Setting, State, Work, check_task


class Joint:
    """L = L_ce over all classes seen, on the images of tasks 1..k."""

    cumulative: ClassVar[bool] = True

    def __init__(self, setting: Setting):
        self.plain = Plain(setting)

    def learn(self, task: Task, work: Work) -> Learned:
        check_task(task, self.plain.setting.backbone.shape, self.plain.net.num_classes)
        self.plain.reset()
        return self.plain.train(task, task.train, work, self.plain.setting.training.from_nothing())

    def logits(self, x: Tensor) -> Tensor:
        return self.plain.logits(x)

    def state_dict(self) -> State:
        return State({"weights": dict(self.plain.net.state_dict())}, {})

    def load_state_dict(self, state: State) -> None:
        self.plain.net.load_weights(state.tensors["weights"])
