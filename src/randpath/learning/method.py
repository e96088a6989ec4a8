"""What a method is: four verbs, in one small file, that call the one shared training function."""

import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.engines.device import lacks_bfloat16
from randpath.engines.serial import Engine, Part, Serial, Tick
from randpath.errors import DataError, DeviceMissing
from randpath.learning.memory import Budget
from randpath.learning.train import Training, predict
from randpath.network.backbones import Backbone
from randpath.network.layers import PathNetwork
from randpath.network.path import Path

NO_REPLAY = "the memory's budget is 0: nothing is replayed, so old classes will be forgotten"


def forgets(published: str = "") -> str:
    """What a method that keeps nothing of the old images says of itself; `published`: its number in the paper.

    >>> forgets("SI 19.67 %").endswith("rehearsal with 4,400 exemplars 95.59 %)")
    True
    """
    listed = ", ".join(part for part in (published, "rehearsal with 4,400 exemplars 95.59 %") if part)
    return f"without old images such a method is known to forget the old classes (published for MNIST: {listed})"


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
    auxiliary: Dataset | None = None  # unlabelled images of no class of the stream, for methods that need such (DMC)

    def __post_init__(self) -> None:
        if self.training.mixed and self.device.startswith("cpu") and (reason := lacks_bfloat16()):
            raise DeviceMissing(f"training.mixed: {reason}", next="--set training.mixed=false")


@dataclass(frozen=True)
class Work:
    """How to run candidates and where to keep unfinished fits. `Work()` is serial, nowhere and quiet."""

    engine: Engine = field(default_factory=Serial)
    place: pathlib.Path | None = None

    @property
    def tick(self) -> Tick:
        """Whom to tell which share of the task is done."""
        return self.engine.tick

    def at(self, name: str) -> pathlib.Path | None:
        return None if self.place is None else self.place / name

    def part(self, index: int, parts: int) -> "Work":
        """For the fit number `index` (from 0) of several: its ticks are its share of the one bar."""
        return Work(Part(self.engine, index, parts), self.place)


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
    remarks: list[str] = field(default_factory=list)  # sentences for a researcher: `bench` says them, `learn` does not
    cpu_seconds: list[float] = field(default_factory=list)  # of each of several networks


@dataclass(frozen=True)
class State:
    """All that a method needs to go on in another process: tensors by file, and a JSON-able document."""

    tensors: dict[str, dict[str, Tensor]]
    document: dict[str, Any]


@runtime_checkable
class Measured(Protocol):
    """A method with metrics of its own: they stand under `own` in metrics.jsonl."""

    def metrics(self, accuracy: Callable[[nn.Module], float]) -> dict[str, float]:
        """Numbers by name, after a task; `accuracy` tells that of any module on the test images of all classes seen."""


class Method(Protocol):
    """A class-incremental learner."""

    cumulative: ClassVar[bool]  # whether its tasks hold all data so far (joint training alone)

    def learn(self, task: Task, work: Work) -> Learned:
        """Learn the next task. If it fails or is stopped, the method is as it was."""

    def inference(self) -> nn.Module:
        """The method's only answer: normalised images to one logit for each class seen. It shares no memory."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


def unit_features(net: PathNetwork, path: Path, data: Dataset, setting: Setting) -> np.ndarray:
    """Features of unit length, as iCaRL's herding takes them."""
    net.eval()
    f = predict(lambda x: net.features(x, path), data, setting.augment, setting.device)
    return nn.functional.normalize(f).numpy()


def check_task(task: Task, shape: tuple[int, ...], seen: int, k: int | None) -> None:
    """Refuse, before the first step, a task that does not follow task k, foreign labels and items of another shape."""
    if k is not None and task.k != k + 1:
        raise DataError(f"task {task.k} does not follow task {k}")
    for part, name in ((task.train, "training"), (task.val, "validation")):
        if not len(part):
            continue
        if part.shape != shape:
            raise DataError(f"task {task.k}: {name} items have shape {part.shape}, the network takes {shape}")
        wrong = np.flatnonzero((part.labels < 0) | (part.labels >= task.num_classes))
        if len(wrong):
            raise DataError(
                f"task {task.k}: label {int(part.labels[wrong[0]])} of {name} item {int(wrong[0])} is outside of the "
                f"task's classes 0..{task.num_classes - 1}"
            )
    if not len(task.train):
        raise DataError(f"task {task.k} has no training items")
    if task.new.stop != task.num_classes or task.new.start != seen or (k is not None and not task.new):
        raise DataError(
            f"task {task.k} teaches classes {task.new.start}..{task.new.stop - 1} of {task.num_classes}, "
            f"but {seen} classes are known so far"
        )
