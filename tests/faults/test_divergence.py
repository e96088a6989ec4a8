"""What is not finite never reaches the weights, and never wins."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import digest
from tiny import tuned
from torch import Tensor, nn

from randpath.bench import run as bench
from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.errors import Diverged
from randpath.learning import selection, train
from randpath.learning.train import Training, fit


class Victim:
    """A small network that is trained until something is not finite at one step."""

    def __init__(self, site: str, strike: int, bad: float) -> None:
        self.site, self.strike, self.bad, self.now = site, strike, bad, -1
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.params = dict(self.net.named_parameters())
        self.before: dict[str, Tensor] = {}

    def loss(self, x: Tensor, y: Tensor, step: int) -> train.Terms:
        struck, self.now = step == self.strike, step
        if struck:
            self.before = {name: p.detach().clone() for name, p in self.params.items()}
        value = nn.functional.cross_entropy(self.net(x), y)
        return {
            "ce": (1.0, value * self.bad if struck and self.site == "loss" else value),
            "other": (0.0, value.detach() * 0 + (self.bad if struck and self.site == "term" else 1)),
        }

    def poison(self, step: int) -> None:
        if self.now == self.strike and self.site == "gradient":
            self.params["3.bias"].grad.fill_(self.bad)  # type: ignore[union-attr]
        if self.now == self.strike and self.site == "batch-norm":
            self.net[2].running_var.fill_(self.bad)

    def train(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), dtype=np.uint8)
        data, augment = Arrays(pixels, np.arange(40) % 2), Augment((0.5,), (0.5,))
        training = Training(epochs=5, batch=10)
        fit(self.net, self.params, data, self.loss, training, augment, key=(0,), after_backward=self.poison)


@pytest.mark.parametrize("site", ["loss", "gradient", "term", "batch-norm"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_caught_before_the_step(site: str, bad: float) -> None:
    for strike in range(20):
        victim = Victim(site, strike, bad)
        with pytest.raises(Diverged, match="not finite"):
            victim.train()
        assert all(torch.isfinite(p).all() for p in victim.params.values())
        assert all(torch.equal(p, victim.before[name]) for name, p in victim.params.items())


def diverge(monkeypatch: pytest.MonkeyPatch, indices: set[int]) -> None:
    """Let the candidates of these indices diverge at their fourth step."""
    original = selection.fit

    def fit(net: nn.Module, params: object, data: object, loss: train.Terms, *args: object, **kwargs: object) -> object:
        def poisoned(x: Tensor, y: Tensor, step: int) -> train.Terms:
            terms = loss(x, y, step)  # type: ignore[operator]
            return {name: (weight, value * math.nan) for name, (weight, value) in terms.items()} if step == 3 else terms

        bad = kwargs["key"][-1] in indices  # type: ignore[index]
        return original(net, params, data, poisoned if bad else loss, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(selection, "fit", fit)


def test_a_diverged_candidate_never_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = replace(tuned, tasks=2, options={"N": 4, "switch_every": 1})
    for lost in ({0}, {3}, {0, 1, 2}):
        with monkeypatch.context() as patch:
            diverge(patch, lost)
            bench.run(four, tmp_path / f"{lost}")
        trained = {line["candidate"] for line in bench.checkpoint.read_lines(tmp_path / f"{lost}" / "epochs.jsonl")}
        assert trained == {0, 1, 2, 3} - lost


def test_when_all_diverge_the_task_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run(tuned, tmp_path / "reference")
    steps = bench.steps(tuned, tmp_path / "run")
    next(steps)
    with monkeypatch.context() as patch:
        diverge(patch, {0, 1})
        with pytest.raises(Diverged, match=r"learning rate 0\.001, gradient norm nan, last losses .*, nan"):
            next(steps)
    assert len(bench.checkpoint.read_lines(tmp_path / "run" / "metrics.jsonl")) == 1
    bench.run(tuned, tmp_path / "run")  # whatever the cause was, it is gone
    assert digest(tmp_path / "run") == digest(tmp_path / "reference")
