"""Logistic regression on the exemplars, or on all items seen (joint): the simple thing to do with feature vectors."""

import copy
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import Task
from randpath.errors import UsageError
from randpath.learning.closed import Linear
from randpath.learning.memory import Memory
from randpath.learning.method import Learned, Setting, State, Work, check_task
from randpath.learning.train import predict
from randpath.metrics import mean_class_accuracy
from randpath.settings import check

DECAYS = (1e-1, 1e-2, 1e-3)  # lambda, tried on held-out items; each begins where the one before it ended
STEPS = 60  # of L-BFGS, for each


@dataclass(eq=False)
class Logistic:
    """W, b = argmin mean of -log softmax(W f + b)_y + lambda |W|^2 / 2, over the exemplars after the task."""

    cumulative: ClassVar[bool] = False
    needs_exemplars: ClassVar[bool] = True

    setting: Setting

    def __post_init__(self) -> None:
        check(self, "options.")
        if self.needs_exemplars and not self.setting.budget:
            raise UsageError("Logistic needs exemplars: give a memory of at least one for each class")
        self.k = 0
        self.memory = Memory(0 if self.cumulative else self.setting.budget)
        self.solution = Linear(torch.zeros(0, math.prod(self.setting.backbone.shape)), torch.zeros(0))

    def learn(self, task: Task, work: Work) -> Learned:
        s = self.setting
        check_task(task, s.backbone.shape, len(self.solution.b), self.k)
        torch.set_num_threads(s.threads)
        memory = copy.copy(self.memory)
        train, val = task.train, task.val
        if not self.cumulative:
            memory.require_room(task.num_classes)
            memory.update(task.train, task.val, (s.seed, task.k))
            train = Joined(list(memory.train.values()))
            val = Joined(list(memory.val.values())) if memory.val else task.val
        solution = self._solved(train, val, task.num_classes, work)
        self.k, self.memory, self.solution = task.k, memory, solution
        size = solution.W.numel() + solution.b.numel()
        return Learned([], size, size)

    def _solved(self, train: Dataset, val: Dataset, num_classes: int, work: Work) -> Linear:
        """By the decay that is best on what is held out; without any, the middle one."""
        f, y = predict(nn.Flatten(), train, self.setting.augment), torch.from_numpy(train.labels)
        W, b = torch.zeros(num_classes, f.shape[1]), torch.zeros(num_classes)
        found: list[tuple[float, Linear]] = []
        for i, decay in enumerate(DECAYS):
            W, b = fitted(f, y, W, b, decay)
            one = Linear(W, b)
            score = 0.0
            if len(val):
                q = predict(one, val, self.setting.augment)
                score = mean_class_accuracy(val.labels, q.argmax(dim=1).numpy())
            found.append((score, one))
            work.tick((i + 1) / len(DECAYS))
        return max(found, key=lambda pair: pair[0])[1] if len(val) else found[len(found) // 2][1]

    def inference(self) -> nn.Module:
        return Linear(self.solution.W, self.solution.b).to(self.setting.device)

    def state_dict(self) -> State:
        weights = {"W": self.solution.W, "b": self.solution.b}
        return State({"weights": weights, **self.memory.tensors()}, {"k": self.k})

    def load_state_dict(self, state: State) -> None:
        self.k = state.document["k"]
        self.solution = Linear(*(torch.as_tensor(state.tensors["weights"][name]) for name in ("W", "b")))
        self.memory.load(state.tensors)


class JointLogistic(Logistic):
    """On all items seen: no one without old data can do it."""

    cumulative: ClassVar[bool] = True
    needs_exemplars: ClassVar[bool] = False


def fitted(f: Tensor, y: Tensor, W: Tensor, b: Tensor, decay: float) -> tuple[Tensor, Tensor]:
    """The minimum, from W and b on, by L-BFGS.

    >>> f, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1])
    >>> W, b = fitted(f, y, torch.zeros(2, 1), torch.zeros(2), 0.1)
    >>> bool(W[0] > 0.5), bool(abs(W.sum()) < 1e-4)
    (True, True)
    """
    W, b = W.clone().requires_grad_(), b.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([W, b], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(f @ W.T + b, y) + decay / 2 * W.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return W.detach(), b.detach()
