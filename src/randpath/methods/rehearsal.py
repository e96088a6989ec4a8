"""Rehearsal: fine-tuning on the new images and the memory's. One path, no distillation, no controller."""

from typing import ClassVar

from torch import Tensor

from randpath.data.dataset import Joined
from randpath.data.stream import Task
from randpath.learning.memory import Memory
from randpath.learning.method import NO_REPLAY, Learned, Plain, Setting, State, Work, check_task
from randpath.learning.objective import log_counts


class Rehearsal:
    """L = L_ce over all classes seen, on the images of task k and the exemplars of tasks 1..k-1."""

    cumulative: ClassVar[bool] = False

    def __init__(self, setting: Setting, *, balanced: bool = False):  # balanced softmax: for ablations
        self.plain = Plain(setting)
        self.memory = Memory(setting.budget)
        self.balanced = balanced

    def learn(self, task: Task, work: Work) -> Learned:
        s = self.plain.setting
        check_task(task, s.backbone.shape, self.plain.net.num_classes)
        self.memory.require_room(task.classes.stop)
        data = Joined([*self.memory.train.values(), task.train])
        counts = log_counts(data.labels, task.classes.stop) if self.balanced else None
        learned = self.plain.train(task, data, work, s.training.of_task(task.k), counts)
        self.memory.update(task.train, task.val, (s.seed, task.k), self.plain.features if s.herding else None)
        if s.budget == 0 and task.k == 1:
            learned.notes.append(NO_REPLAY)
        return learned

    def logits(self, x: Tensor) -> Tensor:
        return self.plain.logits(x)

    def state_dict(self) -> State:
        return State({"weights": dict(self.plain.net.state_dict()), **self.memory.tensors()}, {})

    def load_state_dict(self, state: State) -> None:
        self.plain.net.load_weights(state.tensors["weights"])
        self.memory.load(state.tensors)
