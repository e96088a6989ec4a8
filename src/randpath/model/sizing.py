"""How a model sizes itself: what the first pictures settle, with settings in the manner of `tuned`."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.errors import UsageError
from randpath.learning.anchor import POWER
from randpath.learning.memory import Budget, Size
from randpath.learning.method import Setting
from randpath.learning.train import Training
from randpath.methods.rps import RPS
from randpath.network.backbones import BACKBONES, Activation, Backbone, Stem
from randpath.network.layers import Attention
from randpath.settings import above, between, check, each, parse_size, that_is

STEPS = 600  # that a call trains for, unless there are few or many pictures
LEAST = 0.4  # of these steps, for a lesson of few new pictures
START_STEPS = 150  # likewise, behind a start: what its features can tell, the closed-form solution knows before
START_WIDTH = 96  # and so small a path that its saturation is measured in a moment

SHA256 = that_is("a SHA-256", lambda text: re.fullmatch("[0-9a-f]{64}", text) is not None)
SHAPE = that_is(
    "one or three whole numbers from 1 to 65,536 for at most 100,000,000 values",
    lambda shape: len(shape) in (1, 3) and all(0 < n <= 65536 for n in shape) and math.prod(shape) <= 10**8,
)

BUDGET = that_is(
    'a whole number from 0 to 1,000,000,000 or a size such as "6MB"',
    lambda budget: 0 <= budget <= 10**9 if isinstance(budget, int) else parse_size(budget) is not None,
)


@dataclass(frozen=True)
class Plan:
    """What the first call settles for ever, except `budget` and `epochs`, which a later call may change."""

    shape: Annotated[tuple[int, ...], SHAPE, "of one item: (h, w, c) or (d,)"]
    mean: Annotated[tuple[float, ...], "per channel, or per feature"]
    std: Annotated[tuple[float, ...], each(above(0)), "per channel, or per feature"]
    backbone: Annotated[str, that_is(f"one of {', '.join(BACKBONES)}", BACKBONES.__contains__), "the network family"]
    width: Annotated[int, between(1, 4096), "channels or neurons"]
    modules: Annotated[int, between(1, 64), "M, parallel modules per layer"] = 8
    candidates: Annotated[int, between(1, 64), "N, after a switch"] = 1
    budget: Annotated[int | str, BUDGET, "exemplars that are kept; a size: as many as fit, pictures as WebP"] = 2000
    epochs: Annotated[int | None, between(1, 10**6), "null: by the number of pictures"] = None
    mirror: Annotated[bool, "train on mirrored pictures too"] = False
    features: Annotated[bool, "the items came out of a function of the user's"] = False
    seed: Annotated[int, between(-(2**63), 2**63), "of weights, batches and paths"] = 0
    threads: Annotated[int, between(1, 256), "change the last bits, so they belong to the model"] = 1
    start: Annotated[str | None, SHA256, "of the file that turns pictures into the vectors; null: none"] = None
    start_name: Annotated[str | None, "how it can be had again"] = None
    # As release 0.1 had them, for models of it; `plan_for` says what a new model gets.
    attention: Annotated[Attention, "of the last layer"] = "peak"
    stem: Annotated[Stem, "the first layer"] = "learned"
    activation: Annotated[Activation, "in the modules and after each layer"] = "relu"
    power: Annotated[float, between(0.1, 1), "of a start's features, before they are scaled to unit length"] = 1.0

    def __post_init__(self) -> None:
        """What could not be read again is refused, before anything is trained; a stored plan is checked here too."""
        check(self)
        if self.start is not None and (len(self.shape) != 1 or self.start_name is None):
            raise UsageError("a model with a start takes vectors, and knows its name")
        if len(self.mean) != self.shape[-1] or len(self.std) != self.shape[-1]:
            raise UsageError(f"mean and std must have {self.shape[-1]} numbers, one per channel or feature")

    @property
    def memory(self) -> Budget:
        """The memory's budget, in items or in bytes."""
        if isinstance(self.budget, int):
            return self.budget
        size = parse_size(self.budget)
        return Size(size) if size else 0

    @property
    def at_most(self) -> str:
        """The limit of what is kept, behind a number of items.

        >>> [Plan((8,), (0.0,) * 8, (1.0,) * 8, "mlp", 96, budget=budget).at_most for budget in (2000, "6MB")]
        ['of at most 2,000', 'in at most 6MB']
        """
        return f"of at most {self.budget:,}" if isinstance(self.budget, int) else f"in at most {self.budget}"

    def training(self, n: int, new: int | None = None) -> Training:
        """Balanced, annealed, decayed as `tuned` is; small batches and many epochs for few items.

        Of n items `new` (none: all) come for the first time: of few, a network that knows the others has little to
        learn, and gets the share sqrt(new / n) of the steps, two fifths at least.

        >>> plan = Plan((28, 28, 1), (0.5,), (0.5,), "compact", 32)
        >>> [(plan.training(n).epochs, plan.training(n).batch) for n in (60, 1200, 20_000)]
        [(40, 16), (16, 32), (8, 128)]
        >>> plan = Plan((8,), (0.0,) * 8, (1.0,) * 8, "mlp", 96, start="0" * 64, start_name="lite0")
        >>> [(plan.training(n).epochs, plan.training(n).batch) for n in (60, 1200, 20_000)]
        [(20, 16), (4, 32), (2, 128)]
        >>> [Plan((28, 28, 1), (0.5,), (0.5,), "compact", 32).training(702, new).epochs for new in (702, 216, 54)]
        [28, 16, 11]
        """
        batch = 16 if n < 256 else 32 if n < 4096 else 128
        if self.start is None:
            share = 1.0 if new is None else max(LEAST, math.sqrt(new / n))
            epochs = self.epochs or min(40, math.ceil(share * max(8, STEPS * batch / n)))
        else:
            epochs = self.epochs or min(20, max(2, math.ceil(START_STEPS * batch / n)))
        return Training(epochs=epochs, batch=batch, optimizer="adamw", lr=2e-3, weight_decay=0.01, schedule="one_cycle")

    def spec(self) -> Backbone:
        return Backbone(self.backbone, self.shape, self.modules, self.attention, self.width, self.stem, self.activation)

    def method(self, device: str) -> RPS:
        """Adaptive RPS-Net, untrained."""
        setting = Setting(
            backbone=self.spec(),
            training=self.training(1),
            augment=self.augment(),
            budget=self.memory,
            seed=self.seed,
            device=device,
            threads=self.threads,
            search_threads=self.threads,
        )
        return RPS(setting, N=self.candidates, balanced=True, gamma=0.5)

    def augment(self) -> Augment:
        padding = round(min(self.shape[:2]) / 8) if len(self.shape) == 3 else 0
        # Rotation blurs small pictures and costs a CNN more than it gives (recipes/cifar100_10_cpu.py).
        degrees = 10.0 if self.backbone == "mlp" else 0.0
        return Augment(self.mean, self.std, padding, self.mirror, degrees)


def plan_for(data: Dataset, **choices: Any) -> Plan:
    """A plan that fits the data; `choices` that are not None overrule it.

    Tiny pictures and feature vectors: an MLP. Other pictures: the compact CNN.
    """
    shape = data.shape
    small = len(shape) == 1 or min(shape[:2]) < 16
    sized: dict[str, Any] = {
        "shape": shape,
        "backbone": "mlp" if small else "compact",
        "candidates": 2 if small else 1,
        "mirror": len(shape) == 3 and shape[2] == 3,  # a mirrored letter or digit is another one
        "threads": min(4, torch.get_num_threads()),
    }
    if "mean" not in choices:
        sized["mean"], sized["std"] = _moments(data)
    plan: dict[str, Any] = sized | {key: plain(value) for key, value in choices.items() if value is not None}
    if plan.get("start") is not None:
        plan = {"width": START_WIDTH, "power": POWER} | plan
    plan.setdefault("width", {"mlp": 200 if math.prod(shape) <= 256 else 400, "compact": 32}.get(plan["backbone"], 64))
    if plan["backbone"] == "compact":  # more for the same steps than the paper's (docs/log.md)
        # Few grey pictures, of digits say, have directions of nearly no variance, which whitening would blow up.
        stem = "whiten" if _coloured(data) else "learned"
        plan = {"attention": "none", "stem": stem, "activation": "gelu"} | plan
    return Plan(**plan)


def _coloured(data: Dataset) -> bool:
    """Whether a picture of some hundred has a colour; a folder of grey ones has three equal channels."""
    some = np.linspace(0, len(data) - 1, min(len(data), 300)).astype(np.int64)
    x = next(iter(data.batches([some])))[0]
    return bool((x != x[..., :1]).any())


def plain(value: Any) -> Any:
    """A number of numpy's, as a search over settings hands them out, is Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _moments(data: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel (in 0..1), or per feature, of at most 5,000 items."""
    some = np.linspace(0, len(data) - 1, min(len(data), 5000)).astype(np.int64)
    x = torch.cat([x for x, _ in data.batches(np.array_split(some, max(1, len(some) // 512)))]).double()
    if x.ndim == 4:
        x = x.reshape(-1, x.shape[3]) / 255
    std = x.std(dim=0, correction=0)
    return tuple(x.mean(dim=0).tolist()), tuple(torch.where(std > 1e-6, std, 1.0).tolist())
