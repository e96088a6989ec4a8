"""What the field does beside or after the training, and our software does not: the `--add` of benchmarks/ablation.py.

Each has a strength, which may be typed (`--add features=3`). A thing that pays becomes a setting of the package, and
then its lines here are removed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.dataset import Batch, Dataset, Index
from randpath.keyed import rng
from randpath.learning import selection
from randpath.learning.objective import log_counts
from randpath.learning.selection import train_candidate
from randpath.learning.train import fit
from randpath.network.fold import fold

STRENGTHS = {  # name -> the strength unless one is typed
    "average": 0.99,  # the decay
    "align": 1.0,
    "teacher": 1.0,
    "phase": 0.1,  # of the learning rate
    "flip": 1.0,
    "biases": 8.0,  # times the learning rate (64 for the biases of airbench's networks, without learned scales)
    "cutout": 0.25,  # of the picture's side
    "mixup": 0.2,  # alpha of Beta(alpha, alpha)
    "cutmix": 1.0,  # alpha
    "everywhere": 0.5,  # of the steps of later tasks
    "interpolate": 0.2,  # of the weights before the task
    "features": 5.0,  # LUCIR's lambda: times sqrt(old classes / new classes)
    "decorrelate": 0.5,  # eta of CwD
    "ratio": 0.5,  # of a batch
}


def parsed(typed: Iterable[str]) -> dict[str, float]:
    """Strengths by name.

    >>> parsed(["flip", "features=3"])
    {'flip': 1.0, 'features': 3.0}
    """
    found = {}
    for text in typed:
        name, equals, strength = text.partition("=")
        if name not in STRENGTHS:
            raise ValueError(f"--add {text}: there are {', '.join(STRENGTHS)}")
        found[name] = float(strength) if equals else STRENGTHS[name]
    return found


class Additions:
    """Takes the place of `train_candidate` and `fit` in path selection."""

    def __init__(self, strengths: dict[str, float]):
        self.strengths = strengths
        self.known = 0  # classes before the present task
        self.seen: dict[str, Tensor] = {}  # pooled features of the present batch: of the student, of the teacher
        if strengths:
            selection.train_candidate, selection.fit = self.train, self.fit

    def train(self, job, threads, candidate, tick):
        """`train_candidate` with another job."""
        if job.setting.backbone.join == "lanes" and {"teacher", "features"} & set(self.strengths):
            raise SystemExit("--add teacher and --add features are not for lanes: add --set join=sum")
        job = replace(job, views=None)  # what is added looks at labels, which views replace by numbers
        if job.teacher is not None and "teacher" in self.strengths:
            net = job.setting.backbone.build(job.setting.seed)
            net.load_weights(job.weights)
            job = replace(job, teacher=fold(net, job.P_fixed | candidate[1]))
        if job.teacher is not None and "features" in self.strengths:
            self.seen["teacher"] = torch.empty(0)
            job = replace(job, teacher=Remembering(job.teacher, self.seen))
        if self.known and "ratio" in self.strengths and job.log_counts is not None:
            job = replace(job, log_counts=self._counts_of_visits(job.data.labels, job.num_classes))
        return train_candidate(job, threads, candidate, tick)

    def _counts_of_visits(self, labels: Index, num_classes: int) -> Tensor:
        """For the balanced softmax: how often a class is seen, not how many images it has."""
        share, old = self.strengths["ratio"], labels < self.known
        offset = torch.full((num_classes,), float(np.log((1 - share) / np.mean(~old))))
        offset[: self.known] = float(np.log(share / np.mean(old)))
        return log_counts(labels, num_classes) + offset

    def fit(self, net, params, data, loss, training, augment, *, key, **more):
        """`fit` on other batches, with other terms, and what comes behind it."""
        s = self.strengths
        first = self.known == 0
        if "flip" in s:
            data, augment = AlternatingFlips(data, key), replace(augment, mirror=False)
        if "ratio" in s and not first:
            data = Mixed(data, data.labels < self.known, s["ratio"], key)
        bases = self._loss(net, loss, key, first)
        mean = {name: p.detach().clone() for name, p in params.items()}
        before = {name: tensor.detach().clone() for name, tensor in net.state_dict().items() if "head." not in name}
        quick = [p for module in net.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()]
        if "biases" in s and training.optimizer != "sgd":
            raise SystemExit("--add biases scales gradients, which is a learning rate for sgd alone")

        def after_backward(step: int) -> None:
            for p in quick:
                if p.grad is not None:
                    p.grad.mul_(s["biases"])  # they are not decayed, so that it is the same as a larger rate

        def after_step() -> None:
            for name, p in params.items():
                mean[name].lerp_(p.detach(), 1 - s["average"])

        log = fit(
            net, params, data, bases, training, augment, key=key,
            after_backward=after_backward if "biases" in s else None,
            after_step=after_step if "average" in s else None, **more,
        )  # fmt: skip
        with torch.no_grad():
            if "average" in s:
                for name, p in params.items():
                    p.copy_(mean[name])
            if "interpolate" in s and not first:  # the batch-norm statistics too
                for name, tensor in net.state_dict().items():
                    if name in before and tensor.is_floating_point():
                        tensor.lerp_(before[name], s["interpolate"])
            if "align" in s and not first:
                norms = net.head.weight.norm(dim=1)
                net.head.weight[self.known :] *= norms[: self.known].mean() / norms[self.known :].mean()
        if "phase" in s:
            chosen = balanced(data.labels, key)
            last = replace(training, epochs=max(1, training.epochs // 4), lr=training.lr * s["phase"])
            more = {name: value for name, value in more.items() if name != "validate"}
            fit(
                net, params, data.take(chosen), bases, replace(last, schedule="cosine"), augment,
                key=(*key, "phase"), **more,
            )  # fmt: skip
        return log

    def _loss(self, net, loss, key, first: bool):
        """`loss` on pictures that are mixed or cut, with terms about the features."""
        s = self.strengths
        if {"features", "decorrelate"} & set(s):
            net.head.register_forward_pre_hook(lambda _, inputs: self.seen.update(student=inputs[0]))

        def more(x: Tensor, y: Tensor, step: int):
            draw = rng(*key, "mix", step)
            if first or draw.random() < s.get("everywhere", 0.0):
                x, y = mixed(x, y, net.num_classes, s, draw)
            terms = dict(loss(x, y, step))
            if first and "decorrelate" in s:
                terms["decorrelate"] = s["decorrelate"], decorrelation(self.seen["student"], y)
            if not first and "features" in s:
                f, f_teacher = self.seen["student"], self.seen["teacher"]
                if f.shape != f_teacher.shape:
                    raise SystemExit("--add features needs as many features as the teacher has: not join=concat")
                weight = s["features"] * (self.known / (net.num_classes - self.known)) ** 0.5
                terms["features"] = weight, (1 - F.cosine_similarity(f, f_teacher)).mean()
            return terms

        return more


class Remembering(nn.Module):
    """A teacher that leaves its features behind."""

    def __init__(self, net: nn.Module, seen: dict[str, Tensor]):
        super().__init__()
        self.net, self.seen = net, seen

    def __deepcopy__(self, memo: object) -> "Remembering":
        return self  # one process: whoever copies it gets what it leaves behind

    def forward(self, x: Tensor) -> Tensor:
        self.seen["teacher"] = self.net.features(x)
        return self.net.head(self.seen["teacher"])


class AlternatingFlips:
    """Every image is mirrored in every second epoch; a coin says in which of two it begins."""

    def __init__(self, data: Dataset, key: tuple[int | str, ...]):
        self.data, self.labels, self.shape = data, data.labels, data.shape
        self.flipped = rng(*key, "flip").random(len(data)) < 0.5

    def __len__(self) -> int:
        return len(self.data)

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:  # asked for once per epoch
        self.flipped = ~self.flipped
        indices = list(indices)
        for i, (x, y) in zip(indices, self.data.batches(indices)):
            flipped = torch.from_numpy(self.flipped[i]).view(-1, 1, 1, 1)
            yield torch.where(flipped, x.flip(2), x), y

    def take(self, indices: Index) -> "AlternatingFlips":
        part = AlternatingFlips(self.data.take(indices), ())
        part.flipped = self.flipped[indices]
        return part


class Mixed:
    """Each batch holds a share of exemplars; as many batches per epoch as before, so that the cost is the same."""

    def __init__(self, data: Dataset, old: np.ndarray, share: float, key: tuple[int | str, ...]):
        self.data, self.labels, self.shape, self.share = data, data.labels, data.shape, share
        self.parts = np.flatnonzero(old), np.flatnonzero(~old)
        self.key, self.epoch, self.old = key, 0, old

    def __len__(self) -> int:
        return len(self.data)

    def batches(self, indices: Iterable[Index]) -> Iterator[Batch]:
        self.epoch += 1
        old, new = (self._endless(name, part) for name, part in zip(("old", "new"), self.parts))
        chosen = []
        for i in indices:
            exemplars = round(self.share * len(i))
            chosen.append(
                np.array([next(old) for _ in range(exemplars)] + [next(new) for _ in range(exemplars, len(i))])
            )
        yield from self.data.batches(chosen)

    def _endless(self, name: str, part: Index) -> Iterator[int]:
        again = 0
        while True:
            yield from rng(*self.key, name, self.epoch, again).permutation(part).tolist()
            again += 1

    def take(self, indices: Index) -> "Mixed":
        return Mixed(self.data.take(indices), self.old[indices], self.share, (*self.key, "part"))


def balanced(labels: Index, key: tuple[int | str, ...]) -> Index:
    """As many images of each class as the rarest has, in order."""
    of_class = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    least = min(map(len, of_class))
    return np.sort(np.concatenate([rng(*key, "phase", c).permutation(own)[:least] for c, own in enumerate(of_class)]))


def mixed(x: Tensor, y: Tensor, num_classes: int, strengths: dict[str, float], draw: np.random.Generator):
    """A batch after cutout, mixup and cutmix; labels become shares where pictures are mixed.

    >>> x, y = torch.ones(2, 1, 4, 4), torch.tensor([0, 1])
    >>> mixed(x, y, 2, {"cutout": 0.5}, np.random.default_rng(0))[0].sum().item() < 32
    True
    >>> mixed(x, y, 2, {"mixup": 0.2}, np.random.default_rng(0))[1].sum(dim=1).tolist()
    [1.0, 1.0]
    """
    if "cutout" in strengths:
        for i in range(len(x)):
            rows, columns = square(x, strengths["cutout"], draw)
            x[i, :, rows, columns] = 0  # the mean of all pixels
    if "mixup" in strengths or "cutmix" in strengths:
        y = F.one_hot(y, num_classes).to(x.dtype)
    if "mixup" in strengths:
        other, share = draw.permutation(len(x)), draw.beta(strengths["mixup"], strengths["mixup"])
        x, y = torch.lerp(x[other], x, share), torch.lerp(y[other], y, share)
    if "cutmix" in strengths:
        other, share = draw.permutation(len(x)), draw.beta(strengths["cutmix"], strengths["cutmix"])
        rows, columns = square(x, (1 - share) ** 0.5, draw)
        cut = x.clone()
        cut[:, :, rows, columns] = x[other][:, :, rows, columns]
        share = 1 - len(range(*rows.indices(x.shape[2]))) * len(range(*columns.indices(x.shape[3]))) / x[0, 0].numel()
        x, y = cut, torch.lerp(y[other], y, share)
    return x, y


def square(x: Tensor, share: float, draw: np.random.Generator) -> tuple[slice, slice]:
    """A square of that share of each side around a random pixel, as far as it lies in the picture."""
    h, w = x.shape[2:]
    middles = int(draw.integers(h)), int(draw.integers(w))
    sides = round(share * h), round(share * w)
    starts = [middle - side // 2 for middle, side in zip(middles, sides)]
    rows, columns = (slice(max(0, start), start + side) for start, side in zip(starts, sides))
    return rows, columns


def decorrelation(f: Tensor, y: Tensor) -> Tensor:
    """|K|^2 / d^2, K the correlation of the d features about their class's mean (CwD, eq. 5, classes pooled).

    A batch of 32 has three images of a class, too few for a correlation of its own.

    >>> f = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> round(decorrelation(f, torch.zeros(4, dtype=torch.long)).item(), 3)
    1.0
    """
    y = y.argmax(dim=1) if y.ndim == 2 else y
    one_hot = F.one_hot(y).to(f.dtype)
    means = one_hot.T @ f / one_hot.sum(dim=0)[:, None].clamp(min=1)
    z = f - means[y]
    z = z / (z.square().mean(dim=0) + 1e-5).sqrt()
    gram = z @ z.T / len(z)  # |Z'Z| = |ZZ'|, and a batch is smaller than d
    return gram.square().sum() / f.shape[1] ** 2
