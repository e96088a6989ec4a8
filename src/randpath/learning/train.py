"""The only training loop and the only inference loop."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path as Directory
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset, Index
from randpath.engines.device import deterministic_kernels, moved
from randpath.engines.serial import Tick, quiet
from randpath.errors import Damaged, Diverged, Stopped
from randpath.keyed import rng
from randpath.network.heads import Head
from randpath.network.layers import Whole
from randpath.settings import above, at_least, between, check, each
from randpath.storage import checkpoint

Key = tuple[int | str, ...]
Net = TypeVar("Net", bound=nn.Module)
Terms = Mapping[str, tuple[float, Tensor]]  # name -> (weight, value); the loss is the weighted sum


@dataclass(frozen=True)
class Training:
    """How one path is trained on one task; the defaults are the paper's (section 4.1)."""

    epochs: Annotated[int, at_least(1), "passes over the images of a task"] = 50
    first_factor: Annotated[float, at_least(0), "the first task gets so many times the epochs"] = 1.0
    # The first task has nothing to keep; none: lr.
    first_lr: Annotated[float | None, at_least(0), "the highest learning rate of the first task"] = None
    batch: Annotated[int, at_least(1), "images per step"] = (
        128  # the paper is silent; its protocol's repository has 128
    )
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], "which optimizer"] = "adam"
    lr: Annotated[float, at_least(0), "the highest learning rate"] = 1e-3
    # "we do not use any weight or network regularization scheme"
    weight_decay: Annotated[float, at_least(0), "of weights; scales and biases are not decayed"] = 0.0
    # What it says of old classes was learned when all their images were there.
    head_decay: Annotated[float | None, at_least(0), "weight decay of the classifier; null: weight_decay"] = None
    momentum: Annotated[float, between(0, 1), "of sgd"] = 0.9
    nesterov: Annotated[bool, "whether the momentum of sgd is Nesterov's"] = True
    schedule: Annotated[Literal["halve", "one_cycle", "cosine"], "of the learning rate"] = "halve"
    # 20, 30 and 40 of 50 epochs
    halve_after: Annotated[tuple[float, ...], each(between(0, 1)), "shares of the epochs"] = (0.4, 0.6, 0.8)
    divide_by: Annotated[float, above(1), "what the learning rate of `halve` is divided by after each of them"] = 2.0
    warm_up: Annotated[float, between(0, 1), "share of the steps of one_cycle in which the rate rises"] = 0.2
    smoothing: Annotated[float, between(0, 1), "of the labels"] = 0.0
    # Cheaper steps at nearly the same accuracy.
    small_side: Annotated[int | None, at_least(1), "the side to which pictures are shrunk at first"] = None
    small_share: Annotated[float, between(0, 1), "of the epochs, on shrunk pictures"] = 0.75
    mixed: Annotated[bool, "bfloat16 where it is safe, in the steps of training; not every CPU has it"] = False
    deterministic: Annotated[bool, "slower kernels that give the same bits each time, on GPUs"] = False
    save_seconds: Annotated[float, at_least(0), "how often an unfinished fit is saved, at an epoch's end"] = 30.0

    def __post_init__(self) -> None:
        check(self, "training.")

    def of_task(self, k: int) -> "Training":
        """With the number of epochs and the learning rate that task k gets.

        >>> [Training(epochs=8, first_factor=2.25).of_task(k).epochs for k in (1, 2)]
        [18, 8]
        >>> [Training(lr=0.02, first_lr=0.05).of_task(k).lr for k in (1, 2)]
        [0.05, 0.02]
        """
        if k > 1:
            return self
        return replace(self.from_nothing(), epochs=max(1, round(self.first_factor * self.epochs)))

    def from_nothing(self) -> "Training":
        """With the learning rate of a network that has nothing to keep: in the first task, and in joint training."""
        return self if self.first_lr is None else replace(self, lr=self.first_lr)

    def lr_at(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of a step, counted from 0 over the whole fit.

        >>> Training().lr_at(0, 10), Training().lr_at(200, 10), Training().lr_at(499, 10)
        (0.001, 0.0005, 0.000125)
        """
        total = self.epochs * steps_an_epoch
        if self.schedule == "halve":
            epoch = step // steps_an_epoch
            halvings = sum(epoch >= round(share * self.epochs) for share in self.halve_after)
            return float(self.lr / self.divide_by**halvings)
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / total))
        rise = self.warm_up * total
        if step < rise:
            return self.lr * (step + 1) / (rise + 1)
        return self.lr * (total - step) / (total - rise)


def batch_indices(n: int, size: int, *key: int | str) -> list[Index]:
    """A shuffled pass over n items; a last batch of one item joins the batch before it (batch-norm needs two).

    >>> [len(b) for b in batch_indices(9, 4, 0)], [len(b) for b in batch_indices(1, 4, 0)]
    ([4, 5], [1])
    """
    order = rng(*key).permutation(n)
    cuts = list(range(size, n, size))
    if cuts and n - cuts[-1] == 1:
        cuts.pop()
    return list(np.split(order, cuts))


def fit(
    net: nn.Module,
    params: Mapping[str, nn.Parameter],
    data: Dataset,
    loss: Callable[[Tensor, Tensor, int], Terms],
    training: Training,
    augment: Augment,
    *,
    key: Key,
    place: Directory | None = None,
    until: int | None = None,
    extra: dict[str, Tensor] | None = None,
    after_backward: Callable[[int], None] | None = None,  # with the step, counted from 0
    after_step: Callable[[], None] | None = None,
    validate: Callable[[], float | None] | None = None,
    tick: Tick = quiet,
) -> list[dict[str, Any]]:
    """Train `params` of `net` on `data`: make the weighted sum of the terms of `loss(x, y, step)` small.

    Returns one dict per epoch. Everything random comes from `key` and the step. `place` is this fit's own directory: a
    good unfinished state there is gone on from, a finished one is loaded. The state is params, moving buffers,
    optimizer, `extra` (tensors that the caller adds or changes in place), epoch and step. `until` pauses after that
    epoch, so that a search can stop weak candidates.
    """
    device = next(iter(params.values())).device
    train_mode(net, params, len(data))
    run = _Run(net, params, training, extra, place)
    steps = len(batch_indices(len(data), training.batch, *key, "batches", 0))
    last_epoch = training.epochs if until is None else min(until, training.epochs)
    while run.epoch < last_epoch:
        train_mode(net, params, len(data))  # validation may have left it in eval mode
        indices = batch_indices(len(data), training.batch, *key, "batches", run.epoch)[run.step :]
        for x, y in data.batches(indices):
            step = run.epoch * steps + run.step
            lr = training.lr_at(step, steps)
            x = augment.train(moved(x, device), rng(*key, "augment", run.epoch, run.step))
            if training.small_side and run.epoch < round(training.small_share * training.epochs):
                x = F.interpolate(x, size=training.small_side, mode="bilinear", antialias=True)
            with precision(training, device):
                terms = loss(x, moved(y, device), step)
            total = torch.stack([weight * value for weight, value in terms.values()]).sum()
            run.optimizer.zero_grad(set_to_none=True)
            total.backward()  # type: ignore[no-untyped-call]
            if after_backward is not None:
                after_backward(step)
            run.require_finite(total, terms, step, lr)
            for group in run.optimizer.param_groups:
                group["lr"] = lr
            run.optimizer.step()
            if after_step is not None:
                after_step()
            run.step += 1
            try:
                tick((step + 1) / (steps * training.epochs))
            except Stopped:
                run.save()
                raise
        run.close_epoch(training.lr_at((run.epoch + 1) * steps - 1, steps), len(data), validate)
        run.save_if_due(finished=run.epoch == training.epochs)
    return run.log


def precision(training: Training, device: torch.device) -> AbstractContextManager[object]:
    """Torch's mixed precision if it is asked for; bfloat16 needs no scaling of the loss."""
    return torch.autocast(device.type, torch.bfloat16) if training.mixed else nullcontext()


def rounded_once(frozen: Net, training: Training) -> Net:
    """Rounds, in place, the weights of a network that stands still and is asked only within `precision`.

    Torch would round them anew at each step. One's own network may use its weights otherwise, and is left alone.
    """
    modules = list(frozen.modules())
    if training.mixed and not any(isinstance(module, Whole) for module in modules):
        for module in modules:
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.to(torch.bfloat16)
    return frozen


def train_mode(net: nn.Module, params: Mapping[str, nn.Parameter], n: int) -> None:
    """Train mode, but eval mode for every module none of whose own parameters are trained: its batch-norm stands still.

    One image has no batch statistics: then all stay in eval mode.
    """
    net.train(n > 1)
    trained = {id(p) for p in params.values()}
    for module in net.modules():
        own = list(module.parameters(recurse=False))
        if own and not any(id(p) in trained for p in own):
            module.training = False


class _Run:
    """The moving parts of one fit: what has to be saved so that it goes on exactly."""

    def __init__(
        self,
        net: nn.Module,
        params: Mapping[str, nn.Parameter],
        training: Training,
        extra: dict[str, Tensor] | None,
        place: Directory | None,
    ):
        if training.deterministic:
            deterministic_kernels()
        self.net, self.params, self.training, self.place = net, params, training, place
        self.extra = {} if extra is None else extra
        self.optimizer = _optimizer(net, list(params.values()), training)
        self.epoch = self.step = 0
        self.sums: dict[str, float] = {}
        self.log: list[dict[str, Any]] = []
        # A GPU works behind us: each look at its numbers waits for it, so that they are looked at a few steps later.
        self.patience = 1 if next(iter(params.values())).device.type == "cpu" else 64
        self.unread: list[tuple[int, float, list[str], Tensor]] = []  # step, learning rate, names of terms, numbers
        self.losses: list[float] = []  # the last 20, for the report of a divergence
        self.saved_at = time.monotonic()
        self.buffers = {  # batch-norm statistics of the modules that learn
            f"{name}.{kind}": buffer
            for name, module in net.named_modules()
            if module.training
            for kind, buffer in module.named_buffers(recurse=False)
        }
        self.statistics = [buffer for buffer in self.buffers.values() if buffer.is_floating_point()]
        try:
            found = checkpoint.latest(place) if place is not None else None
        except Damaged:  # all of them: begun again, the fit costs time but ends the same
            found = None
        if found is not None:
            self._load(found[1])

    def require_finite(self, total: Tensor, terms: Terms, step: int, lr: float) -> None:
        """Refuse a step whose loss, gradient or statistics are not finite; on a GPU at one of the next 64 steps."""
        gradients = [p.grad for p in self.params.values() if p.grad is not None]
        # One number each for the gradients and for the statistics that this step's forward pass has moved.
        norm = torch.nn.utils.get_total_norm(gradients)
        statistics = torch.nn.utils.get_total_norm(self.statistics) if self.statistics else torch.zeros_like(norm)
        losses = [total.detach(), *(value.detach() for _, value in terms.values())]
        self.unread.append((step, lr, list(terms), torch.stack([*losses, norm, statistics])))
        if len(self.unread) >= self.patience:
            self.read()

    def read(self) -> None:
        """Look at the numbers of the last steps, one step after another; add up the losses of the epoch."""
        unread, self.unread = self.unread, []
        for step, lr, names, numbers in unread:
            self._read_one(step, lr, names, numbers.tolist())

    def _read_one(self, step: int, lr: float, names: list[str], numbers: list[float]) -> None:
        *values, gradient, statistic = numbers
        self.losses = [*self.losses[-19:], values[0]]
        for what, found in (
            ("the loss", values),
            ("the gradient", [gradient]),
            ("a batch-norm statistic", [statistic]),
        ):
            if not all(map(math.isfinite, found)):
                raise Diverged(what, step, lr, gradient, self.losses)
        for name, value in zip(names, values[1:]):
            self.sums[name] = self.sums.get(name, 0.0) + value

    def close_epoch(self, lr: float, visits: int, validate: Callable[[], float | None] | None) -> None:
        self.read()
        losses = {f"loss_{name}": total / self.step for name, total in self.sums.items()}
        validation = validate() if validate is not None else None
        self.log.append({"epoch": self.epoch + 1, "lr": lr, "visits": visits, **losses, "validation": validation})
        self.epoch, self.step, self.sums = self.epoch + 1, 0, {}

    def save_if_due(self, finished: bool) -> None:
        if finished or time.monotonic() - self.saved_at >= self.training.save_seconds:
            self.save()

    def save(self) -> None:
        if self.place is None:
            return
        self.read()  # nothing that is not finite is saved
        tensors = {f"params.{name}": p.detach() for name, p in self.params.items()}
        tensors |= {f"buffers.{name}": b for name, b in self.buffers.items()}
        tensors |= {f"extra.{name}": t for name, t in self.extra.items()}
        for name, p in self.params.items():
            for what, value in self.optimizer.state.get(p, {}).items():
                if value is not None:
                    tensors[f"optimizer.{what}.{name}"] = torch.as_tensor(value)
        progress = {"epoch": self.epoch, "step": self.step, "sums": self.sums, "log": self.log, "losses": self.losses}
        name = f"{self.epoch:05d}-{self.step:07d}"
        if not (self.place / name).exists():
            checkpoint.save(self.place, name, {"state": tensors}, {"progress": progress})
            checkpoint.prune(self.place, keep=2)
        self.saved_at = time.monotonic()

    def _load(self, saved: checkpoint.Saved) -> None:
        progress = saved.documents["progress"]
        self.epoch, self.step, self.sums = progress["epoch"], progress["step"], progress["sums"]
        self.log, self.losses = progress["log"], progress["losses"]
        targets: dict[str, Tensor] = {f"params.{name}": p.data for name, p in self.params.items()}
        targets |= {f"buffers.{name}": b for name, b in self.buffers.items()}
        targets |= {f"extra.{name}": t for name, t in self.extra.items()}
        for name, tensor in saved.tensors["state"].items():
            if name in targets:
                targets[name].copy_(tensor)
                continue
            if name.startswith("extra."):  # the caller had not filled it yet when this fit began again
                self.extra[name.removeprefix("extra.")] = tensor.clone()
                continue
            _, what, parameter = name.split(".", 2)
            p = self.params[parameter]
            # Adam counts its steps in a CPU tensor; the others lie where the parameter lies.
            value = tensor if what == "step" else torch.empty_like(p).copy_(tensor)
            self.optimizer.state[p][what] = value


def _optimizer(net: nn.Module, params: list[nn.Parameter], training: Training) -> torch.optim.Optimizer:
    head_decay = training.weight_decay if training.head_decay is None else training.head_decay
    heads = {id(module.weight) for module in net.modules() if isinstance(module, Head)}
    # Scales and biases are not decayed: pulling a batch-norm's scale to zero regularises nothing.
    groups = [
        {"params": [p for p in params if p.ndim > 1 and id(p) not in heads], "weight_decay": training.weight_decay},
        {"params": [p for p in params if id(p) in heads], "weight_decay": head_decay},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    if training.optimizer == "adam":
        return torch.optim.Adam(groups, training.lr)
    if training.optimizer == "adamw":
        return torch.optim.AdamW(groups, training.lr)
    return torch.optim.SGD(
        groups, training.lr, momentum=training.momentum, nesterov=training.nesterov and training.momentum > 0
    )


@torch.no_grad()
def predict(
    logits: Callable[[Tensor], Tensor], data: Dataset, augment: Augment, device: torch.device | str = "cpu"
) -> Tensor:
    """q for every item of `data`, in order: (n, classes), on the CPU."""
    chunks: Iterator[Index] = (np.arange(i, min(i + 512, len(data))) for i in range(0, len(data), 512))
    return torch.cat([logits(augment.plain(moved(x, device))).cpu() for x, _ in data.batches(chunks)])
