"""Random path selection: train N candidates of a task, keep the best on validation data (section 3.3)."""

import copy
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from randpath.data.dataset import Dataset
from randpath.engines.device import own
from randpath.engines.serial import Serial, Tick
from randpath.errors import Diverged
from randpath.learning.method import Setting, Work
from randpath.learning.objective import cross_entropy, distillation
from randpath.learning.pasting import Pasting
from randpath.learning.train import Key, Terms, Training, fit, predict, rounded_once
from randpath.learning.views import Views
from randpath.metrics import mean_class_accuracy
from randpath.network.fold import Folded, fold
from randpath.network.layers import ModuleStart, PathNetwork
from randpath.network.path import Path


@dataclass(frozen=True)
class Job:
    """All that the candidates of one task have in common; it crosses processes."""

    setting: Setting
    training: Training
    weights: dict[str, Tensor]  # the network's state before the task: what P_fixed and a reused path need
    P_fixed: Path
    P_before: Path  # the inference path of `weights`
    P_last: Path  # the path trained last
    start: ModuleStart  # what a new module begins from
    num_classes: int
    data: Dataset  # the task's images and the memory's
    val: Dataset
    teacher: Folded | None  # the previous state on the previous inference path
    phi: float
    temperature: float
    log_counts: Tensor | None  # balanced softmax, `tuned` alone
    key: Key
    place: pathlib.Path | None
    views: int | None = None  # of each image, of which frozen lanes are computed once; none: at each visit
    paste: float = 0.0  # share of the steps with patches of other pictures


@dataclass(frozen=True)
class Trial:
    """A trained candidate."""

    index: int
    path: Path
    score: float | None  # mean per-class validation accuracy; none without validation data
    weights: dict[str, Tensor]  # of one path, the skips, the attention and the head: not of M paths
    epochs: list[dict[str, Any]]
    parameters_trained: int
    failure: Diverged | None = None


def random_search(job: Job, paths: Sequence[Path], work: Work) -> list[Trial]:
    """Train every candidate. A lone one is trained in this process, with all threads."""
    lone = len(paths) == 1
    engine = Serial(work.tick) if lone else work.engine
    threads = job.setting.threads if lone else job.setting.search_threads
    trials = sorted(engine.map(partial(train_candidate, job, threads), enumerate(paths)), key=lambda trial: trial.index)
    torch.set_num_threads(job.setting.threads)
    return trials


def train_candidate(job: Job, threads: int, candidate: tuple[int, Path], tick: Tick) -> Trial:
    """Train one path; the result depends on (job, threads, candidate) alone, `job.place` only shortens a retry."""
    index, P = candidate
    s, device = job.setting, own(job.setting.device)
    torch.set_num_threads(threads)
    P_tr = P ^ (P & job.P_fixed)
    P_ts = job.P_fixed | P
    net = _opened(job, P_ts).to(device)
    params = net.train_only(P_tr)
    # A copy lies in memory of torch's own alignment; what a pipe brought may not, and would be rounded differently.
    teacher = None if job.teacher is None else rounded_once(copy.deepcopy(job.teacher).to(device), job.training)
    key = (*job.key, "candidate", index)
    pasting = Pasting(job.data, job.num_classes, job.paste, s.augment, key) if job.paste else None
    log_counts = None if job.log_counts is None else job.log_counts.to(device)
    frozen = _frozen(job, net, P_tr)
    views, begin = None, 0 if frozen is None or job.views else _first_that_learns(P_tr)
    if frozen is not None and job.views:
        views = Views(frozen, job.data, job.views, job.training, s.augment, key, tick, pasting)
    # Just after a switch the teacher is what was frozen, and its features are at hand.
    teacher_is_frozen = frozen is not None and job.P_before == job.P_fixed

    def loss(x: Tensor, y: Tensor, step: int) -> Terms:
        f_fixed, share = None, x.new_zeros(len(x), 1)
        if views is not None:
            x, y, share, f_fixed = views.visit(x, y, step)
        elif pasting is not None:
            x, y, share = pasting(x, y, step)
        counts = log_counts if log_counts is None or pasting is None else pasting.log_counts(log_counts, share)
        h = x
        if frozen is not None and f_fixed is None:
            h, f_fixed = _frozen_features(frozen, x, job.P_fixed, P, begin)
        f = net.features(h, P_ts if f_fixed is None else P, begin)
        q = net.head(f if f_fixed is None else torch.cat([f_fixed, f], dim=1))
        terms = {"ce": (1.0, cross_entropy(q, y, counts, job.training.smoothing))}
        if teacher is not None:
            with torch.no_grad():
                q_teacher = teacher.head(f_fixed) if teacher_is_frozen else teacher(x)
            terms["dist"] = (job.phi, distillation(q, q_teacher, job.temperature))
        return terms

    def score() -> float | None:
        if not len(job.val):
            return None
        net.eval()
        q = predict(lambda x: net(x, P_ts), job.val, s.augment, device)
        return mean_class_accuracy(job.val.labels, q.argmax(dim=1).numpy())

    trained = sum(p.numel() for p in params.values())
    place = None if job.place is None else job.place / f"candidate-{index}"
    try:
        epochs = fit(
            net, params, job.data if views is None else views.data, loss, job.training, s.augment,
            key=key, place=place, validate=score, tick=tick,
        )  # fmt: skip
    except Diverged as failure:
        return Trial(index, P, None, {}, [], trained, failure)
    weights = {name: tensor.cpu() for name, tensor in net.weights(P).items()}
    log = [{"candidate": index, "phi": job.phi if teacher is not None else None, **line} for line in epochs]
    return Trial(index, P, epochs[-1]["validation"], weights, log, trained)


def _opened(job: Job, P_ts: Path) -> PathNetwork:
    """A candidate's network before its first step, with logits for all classes."""
    net = job.setting.backbone.build(job.setting.seed)
    net.load_weights(job.weights)
    net.open(P_ts, job.P_before, job.P_last, job.start)
    net.grow_head(job.num_classes)
    return net


def _frozen(job: Job, net: PathNetwork, P_tr: Path) -> Folded | None:
    """The frozen lanes, if there are any beside one that learns: nothing in them hears what it does."""
    if job.setting.backbone.join != "lanes" or not any(job.P_fixed.rows[-1]) or not any(P_tr.rows[-1]):
        return None
    return rounded_once(fold(net, job.P_fixed), job.training)


def _first_that_learns(P_tr: Path) -> int:
    """The first layer with a module that learns."""
    return [any(row) for row in P_tr.rows].index(True)


def _frozen_features(frozen: Folded, x: Tensor, P_fixed: Path, P: Path, begin: int) -> tuple[Tensor, Tensor]:
    """What the lane P hears in layer `begin`, and the features of the frozen lanes: what they share runs once."""
    h = x
    for l, stage in enumerate(frozen.stages(x), start=1):  # noqa: E741
        if l == begin:
            row = P_fixed.rows[l - 1]
            h = stage[sum(row[: P.rows[l - 1].index(True)])]
    return h, frozen.pooled(stage)


def best(trials: Iterable[Trial]) -> Trial:
    """The highest validation score; ties and no validation data: the lowest index. A diverged candidate never wins."""
    by_index = sorted(trials, key=lambda trial: trial.index)
    sound = [trial for trial in by_index if trial.failure is None]
    if not sound:
        assert by_index[0].failure is not None
        raise by_index[0].failure
    return max(sound, key=lambda trial: -1.0 if trial.score is None else trial.score)  # max keeps the first of equals
