"""Runs on several processes whose workers are killed and stopped: same winner, same bytes."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import digest
from tiny import tuned

from randpath.bench.run import run
from randpath.engines.processes import Processes
from randpath.storage import checkpoint

LONGER = replace(tuned, processes=2, training=replace(tuned.training, epochs=15))  # so that a candidate takes seconds


class Assassin:
    """Called by the pool several times a second: sends a signal to a worker at work, at most twice in one search."""

    def __init__(self, number: signal.Signals, seed: int) -> None:
        self.number, self.rng, self.struck = number, random.Random(seed), 0
        self.pool: Processes | None = None
        self.searches: dict[int, int] = {}

    cpu_seconds = 0.0

    def tick(self, done: float) -> None:
        assert self.pool is not None
        self.pool.tick(done)

    def map(self, function: Any, arguments: Any) -> Iterator[Any]:
        assert self.pool is not None
        self.search = 0
        return self.pool.map(function, arguments)

    def __call__(self, done: float) -> None:
        assert self.pool is not None
        for worker in self.pool._workers:
            at_work = worker.number and worker.steps  # it has done a step: it is in the middle of training
            if at_work and self.search < 2 and self.rng.random() < 0.5 and worker.process.pid:
                os.kill(worker.process.pid, self.number)
                self.search += 1
                self.struck += 1


def strike(place: Path, number: signal.Signals, seed: int, silence: float) -> int:
    assassin = Assassin(number, seed)
    with Processes(2, silence, assassin) as pool:
        assassin.pool = pool
        run(LONGER, place, engine=assassin)
    return assassin.struck


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("serial")
    run(LONGER, place)  # in one process
    return digest(place)


def test_killed_and_stopped_workers_change_nothing(tmp_path: Path, reference: dict[str, str]) -> None:
    assert strike(tmp_path / "kill", signal.SIGKILL, 1, silence=300) > 0
    assert digest(tmp_path / "kill") == reference


@pytest.mark.faults
def test_60_killed_workers(tmp_path: Path, reference: dict[str, str]) -> None:
    struck = seed = 0
    while struck < 60:
        seed += 1
        struck += strike(tmp_path / str(seed), signal.SIGKILL, seed, silence=300)
        assert digest(tmp_path / str(seed)) == reference
        print(f"{struck} killed, the same bytes in {seed} of {seed} runs", flush=True)
        checkpoint.remove(tmp_path / str(seed))


@pytest.mark.faults
def test_10_stopped_workers(tmp_path: Path, reference: dict[str, str]) -> None:
    struck = seed = 0
    while struck < 10:
        seed += 1
        struck += strike(tmp_path / str(seed), signal.SIGSTOP, seed, silence=5)
        assert digest(tmp_path / str(seed)) == reference
        checkpoint.remove(tmp_path / str(seed))
