"""What a method is: four verbs, in one small file, that call the one shared training function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path as Directory
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.errors import DataError, DeviceMissing
from randpath.learning.memory import Budget
from randpath.learning.objective import cross_entropy
from randpath.learning.train import Terms, Tick, Training, fit, predict, quiet
from randpath.learning.whitening import fit_stem
from randpath.network.backbones import Backbone
from randpath.network.layers import PathNetwork
from randpath.network.path import Path

NO_REPLAY = "the memory's budget is 0: nothing is replayed, so old classes will be forgotten"

Map = Callable[..., Iterable[Any]]  # the signature of the builtin map; results may arrive in any order


@dataclass(frozen=True)
class Setting:
    """What every method is given."""

    backbone: Backbone
    training: Training
    augment: Augment
    budget: Budget = 2000  # images in the replay memory, or its size
    herding: bool = False  # the paper draws exemplars at random
    seed: int = 0
    device: str = "cpu"
    threads: int = 1  # of a lone fit: part of the experiment, because they change the last bits
    search_threads: int = 1  # of one of N candidates


@dataclass(frozen=True)
class Work:
    """How to run candidates, where to keep unfinished fits, whom to tell. `Work()` is serial, nowhere and quiet."""

    map: Map = map
    place: Directory | None = None
    tick: Tick = quiet

    def at(self, name: str) -> Directory | None:
        return None if self.place is None else self.place / name


@dataclass(frozen=True)
class Learned:
    """What a method tells of one task; none where it has no such value."""

    epochs: list[dict[str, Any]]  # lines of epochs.jsonl, without k
    parameters_trained: int
    parameters: int  # of all that answers at inference
    saturation: float | None = None
    switched: bool | None = None
    path: Path | None = None
    notes: list[str] = field(default_factory=list)  # sentences for the user


@dataclass(frozen=True)
class State:
    """All that a method needs to go on in another process: tensors by file, and a JSON-able document."""

    tensors: dict[str, dict[str, Tensor]]
    document: dict[str, Any]


class Method(Protocol):
    """A class-incremental learner."""

    cumulative: ClassVar[bool]  # whether its tasks hold all data so far (joint training alone)

    def learn(self, task: Task, work: Work) -> Learned: ...

    def logits(self, x: Tensor) -> Tensor:
        """One logit a class seen, for a normalised batch."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Plain:
    """One network with one module a layer and no attention, an ordinary ResNet or MLP: what the baselines train."""

    def __init__(self, setting: Setting):
        self.setting = replace(setting, backbone=replace(setting.backbone, M=1, attention="none"))
        self.reset()

    def reset(self) -> None:
        """Fresh weights: the same ones each time."""
        self.net = self.setting.backbone.build(self.setting.seed).to(self.setting.device)
        self.path = Path.full(self.net.L, 1)

    def train(
        self, task: Task, data: Dataset, work: Work, training: Training, log_counts: Tensor | None = None
    ) -> Learned:
        """Cross-entropy over all classes seen, on `data`."""
        s = self.setting
        torch.set_num_threads(s.threads)
        fit_stem(self.net, data, s.augment)
        self.net.grow_head(task.classes.stop)
        params = self.net.train_only(self.path)

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(self.net(x), y, log_counts, training.smoothing))}

        epochs = fit(
            self.net, params, data, loss, training, s.augment,
            key=(s.seed, "task", task.k), place=work.at("fit"), tick=work.tick,
        )  # fmt: skip
        size = self.net.num_parameters(self.path)
        return Learned([{"candidate": 0, "phi": None, **line} for line in epochs], size, size)

    def logits(self, x: Tensor) -> Tensor:
        self.net.eval()
        with torch.no_grad():
            q: Tensor = self.net(x, self.path)
        return q

    def features(self, data: Dataset) -> np.ndarray:
        return unit_features(self.net, self.path, data, self.setting)


def unit_features(net: PathNetwork, path: Path, data: Dataset, setting: Setting) -> np.ndarray:
    """Features of unit length, as iCaRL's herding takes them."""
    net.eval()
    f = predict(lambda x: net.features(x, path), data, setting.augment, setting.device)
    return nn.functional.normalize(f).numpy()


def check_task(task: Task, shape: tuple[int, ...], seen: int) -> None:
    """Refuse, before the first step, labels outside the task's classes and items of another shape."""
    for part, name in ((task.train, "training"), (task.val, "validation")):
        if not len(part):
            continue
        if part.shape != shape:
            raise DataError(f"task {task.k}: {name} items have shape {part.shape}, the network takes {shape}")
        wrong = np.flatnonzero((part.labels < task.classes.start) | (part.labels >= task.classes.stop))
        if len(wrong):
            raise DataError(
                f"task {task.k}: label {int(part.labels[wrong[0]])} of {name} item {int(wrong[0])} is outside of the "
                f"task's classes {task.classes.start}..{task.classes.stop - 1}"
            )
    if not len(task.train):
        raise DataError(f"task {task.k} has no training items")
    if task.classes.start > seen or task.classes.stop <= task.classes.start:
        raise DataError(f"task {task.k} teaches {task.classes}, but {seen} classes are known so far")


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceMissing(f"device {device!r} is not there: {str(error).splitlines()[0]}") from error


def count_flops(logits: Callable[[Tensor], Tensor], shape: tuple[int, ...], device: str = "cpu") -> int:
    """FLOPs (two a multiply-add) of one item."""
    from torch.utils.flop_counter import FlopCounterMode

    size = (1, shape[2], shape[0], shape[1]) if len(shape) == 3 else (1, *shape)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        logits(torch.zeros(size, device=device))
    return int(counter.get_total_flops())
