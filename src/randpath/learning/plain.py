"""One network and any loss: what the comparison methods are made of.

net = self.begin(task)                                  a copy, with a row for each class
epochs = self.fit(net, task, data, work, loss)          the one training loop
return self.commit(task, net, epochs)                   now, and not before, the method changes
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.errors import UsageError
from randpath.learning.memory import Memory
from randpath.learning.method import NO_REPLAY, Learned, Setting, State, Work, check_task, unit_features
from randpath.learning.train import Terms, Training, fit
from randpath.learning.whitening import fit_stem
from randpath.network.fold import fold
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from randpath.settings import check

Carried = dict[str, dict[str, Tensor]]  # tensors by file


@dataclass(eq=False)
class Plain:
    """A network of one module per layer without attention (a ResNet or MLP), a memory, and what it carries along."""

    cumulative: ClassVar[bool] = False
    replays: ClassVar[bool] = False  # whether it keeps exemplars, within the memory's budget
    needs_exemplars: ClassVar[bool] = False  # whether it cannot do without them
    needs_auxiliary: ClassVar[bool] = False  # whether it learns from pictures of other things
    warning: ClassVar[str] = ""  # what a user should know before trusting it, said once

    setting: Setting

    def __post_init__(self) -> None:
        check(self, "options.")
        if self.needs_exemplars and not self.setting.budget:
            raise UsageError(
                f"{type(self).__name__} needs exemplars: give a memory of at least one for each class",
                next="e.g. --set memory=2000",
            )
        self.setting = replace(self.setting, backbone=replace(self.setting.backbone, M=1, attention="none"))
        self.net = self.setting.backbone.build(self.setting.seed).to(self.setting.device)
        self.path = Path.full(self.net.L, 1)
        self.memory = Memory(self.setting.budget if self.replays else 0)
        self.k: int | None = 0  # none: a state of release 0.1 was loaded, which does not tell
        self.carried: Carried = {}  # e.g. the importance of each parameter

    # ---- one task

    def begin(self, task: Task, *, fresh: bool = False) -> PathNetwork:
        """A copy of the network (or one with fresh weights, always the same) with a row for each class of the task."""
        s = self.setting
        check_task(task, s.backbone.shape, self.net.num_classes, self.k)
        self.memory.require_room(task.num_classes)
        net = s.backbone.build(s.seed)
        if not fresh:
            net.load_weights(self.net.state_dict())
        net.to(s.device)
        fit_stem(net, task.train, s.augment)
        net.grow_head(task.num_classes)
        return net

    def fit(
        self,
        net: nn.Module,
        task: Task,
        data: Dataset,
        work: Work,
        loss: Callable[[Tensor, Tensor, int], Terms],
        *,
        params: Mapping[str, nn.Parameter] | None = None,  # none: all
        name: str = "fit",  # of one of several fits of a task
        training: Training | None = None,  # none: the setting's, for this task
        extra: dict[str, Tensor] | None = None,
        after_backward: Callable[[int], None] | None = None,
        after_step: Callable[[], None] | None = None,
        validate: Callable[[], float | None] | None = None,
    ) -> list[dict[str, Any]]:
        """Train; returns the lines of epochs.jsonl, which name the fit unless it is the only one."""
        s = self.setting
        torch.set_num_threads(s.threads)
        params = dict(net.named_parameters()) if params is None else params
        trained = {id(p) for p in params.values()}
        for p in net.parameters():
            p.requires_grad_(id(p) in trained)  # no gradient is computed that nobody uses
        only = name == "fit"
        epochs = fit(
            net, params, data, loss, training or s.training.of_task(task.k), s.augment,
            key=(s.seed, "task", task.k) if only else (s.seed, "task", task.k, name),
            place=work.at(name), extra=extra, after_backward=after_backward, after_step=after_step,
            validate=validate, tick=work.tick,
        )  # fmt: skip
        return [{"candidate": 0, "phi": None, **({} if only else {"fit": name}), **line} for line in epochs]

    def commit(
        self,
        task: Task,
        net: PathNetwork,
        epochs: list[dict[str, Any]],
        *,
        memory: Memory | None = None,
        carried: Carried | None = None,
        trained: int | None = None,  # parameters; none: all
    ) -> Learned:
        """Take over what was trained: all at once, after everything that could fail."""
        self.net, self.k = net, task.k
        self.memory = self.memory if memory is None else memory
        self.carried = self.carried if carried is None else carried
        size = net.num_parameters(self.path)
        notes = [NO_REPLAY] if self.replays and not self.setting.budget and task.k == 1 else []
        notes += [self.warning] if self.warning and task.k == 1 else []
        return Learned(epochs, size if trained is None else trained, size, notes=notes)

    # ---- exemplars

    def replayed(self, task: Task) -> Dataset:
        """The exemplars and the task's images."""
        return self.memory.beside(task.train)

    def remember(self, task: Task, net: PathNetwork, *, herding: bool = False) -> Memory:
        """The memory after the task."""
        s, memory = self.setting, copy.copy(self.memory)
        features = partial(unit_features, net, self.path, setting=s) if herding or s.herding else None
        memory.update(task.train, task.val, (s.seed, task.k), features)
        return memory

    # ---- the other verbs

    def inference(self) -> nn.Module:
        return fold(self.net, self.path)

    def state_dict(self) -> State:
        tensors = {"weights": dict(self.net.state_dict()), **self.memory.tensors(), **self.carried}
        return State(tensors, {"k": self.k})

    def load_state_dict(self, state: State) -> None:
        self.k = state.document.get("k")
        self.net.load_weights(state.tensors["weights"])
        self.memory.load(state.tensors)
        own = {"weights", "memory_train", "memory_val"}
        params = {name: p.detach() for name, p in self.net.named_parameters()}
        self.carried = {
            file: grown(tensors, params) if set(tensors) <= set(params) else dict(tensors)
            for file, tensors in state.tensors.items()
            if file not in own
        }


def grown(carried: Mapping[str, Tensor], params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is carried for each parameter, with zeros where the parameter has grown since; in its memory format.

    A tensor that came from a file has lost that format, and would be added up in another order.

    >>> grown({"w": torch.ones(1, 2)}, {"w": torch.zeros(2, 2)})["w"].tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    found = {}
    for name, old in carried.items():
        found[name] = torch.zeros_like(params[name], dtype=old.dtype)
        found[name][tuple(slice(n) for n in old.shape)] = old.to(params[name].device)
    return found
