"""Two commands on one directory, started together: exactly one runs, the other leaves with 73 and names it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import RECIPE
from test_learn_faults import make_pictures

from randpath.model import versions
from randpath.storage import checkpoint

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*typed: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "randpath", *map(str, typed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def typed(kind: str, place: Path, directory: Path) -> tuple[object, ...]:
    if kind == "learn":
        return ("learn", directory, place / "first", "--epochs", 1)
    return ("bench", RECIPE, "--out", directory)


def started_together(kind: str, place: Path, number: int) -> None:
    directory = place / f"{kind}-{number}"
    both = [start(*typed(kind, place, directory)) for _ in range(2)]
    told = [process.communicate(timeout=600)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 73], told
    winner, loser = codes.index(0), codes.index(73)
    assert f"process {both[winner].pid} on " in told[loser].replace("\n", " ")
    assert "Traceback" not in told[loser]
    if kind == "learn":
        assert versions.current(directory) == 1
    else:
        assert len(checkpoint.names(directory / "checkpoints")) == 4  # the start and three tasks
    checkpoint.remove(directory)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pairs")
    make_pictures(place)
    return place


@pytest.mark.parametrize("kind", ["learn", "bench"])
def test_a_pair(place: Path, kind: str) -> None:
    started_together(kind, place, 0)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["learn", "bench"])
def test_10_pairs(place: Path, kind: str) -> None:
    for number in range(1, 11):
        started_together(kind, place, number)


def test_a_killed_holder_holds_nothing(place: Path) -> None:
    model = place / "held"
    holder = start(*typed("learn", place, model))
    while not (model / "lock.json").exists():
        assert holder.poll() is None
        time.sleep(0.01)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    after = start(*typed("learn", place, model))
    told = after.communicate(timeout=600)[1]
    assert after.returncode == 0, told
