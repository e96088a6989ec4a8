"""Processes: order, exceptions, and workers that die, hang or lose their parent."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from randpath.engines import processes as workers
from randpath.engines.processes import Processes
from randpath.engines.serial import Serial, Tick
from randpath.errors import WorkerLost


def square(x: int, tick: Tick) -> int:
    return x * x


def attempt(place: Path, x: int) -> int:
    """Count the attempts at x in a directory, since a killed one leaves nothing else."""
    count = len(list(place.glob(f"{x}-*")))
    (place / f"{x}-{count}").touch()
    return count


def die_first(place: Path, times: int, x: int, tick: Tick) -> int:
    if attempt(place, x) < times and x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def hang_first(place: Path, x: int, tick: Tick) -> int:
    first = attempt(place, x) == 0
    for _ in range(10):
        tick(0.0)
        time.sleep(0.12)  # past a second, so that there is a median step
    if first and x == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return x * x


def refuse(x: int, tick: Tick) -> int:
    if x == 1:
        raise ZeroDivisionError("the reason")
    return x


def train(x: int, tick: Tick) -> torch.Tensor:
    weights = torch.full((1000, 1000), float(x))
    weights += 1
    return weights


def add_in_place(weights: torch.Tensor, tick: Tick) -> float:
    weights += 1
    return float(weights.sum())


def quarter_by_quarter(x: int, tick: Tick) -> None:
    for quarter in range(4):
        tick(quarter / 4)
        time.sleep(1.05)  # a beat travels once a second


def step_until_stopped(place: Path, x: int, tick: Tick) -> int:
    try:
        while True:
            tick(0.0)
            time.sleep(0.01)
    except KeyboardInterrupt:
        (place / f"saved-{x}").touch()
        raise


def opened(name: str, tick: Tick) -> object:
    return open(name)  # noqa: PTH123


def test_gives_what_the_serial_engine_gives() -> None:
    with Processes(2) as on_workers:
        assert list(on_workers.map(square, range(7))) == list(Serial().map(square, range(7)))
        assert list(on_workers.map(square, [2, 3])) == [4, 9]  # the same workers, a second map
        assert list(on_workers.map(square, [])) == []


def test_tensors_travel_by_value() -> None:
    weights = torch.zeros(100, 100)
    with Processes(2) as on_workers:
        assert [float(w.sum()) for w in on_workers.map(train, [0, 1])] == [1e6, 2e6]
        assert list(on_workers.map(add_in_place, [weights, weights])) == [1e4, 1e4]
    assert weights.sum() == 0
    assert not weights.is_shared()


def test_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    with Processes(2) as on_workers:
        assert list(on_workers.map(functools.partial(die_first, tmp_path, 2), range(4))) == [0, 1, 4, 9]
    assert len(list(tmp_path.glob("2-*"))) == 3
    assert len(list(tmp_path.glob("0-*"))) == 1  # only the lost call is made again


def test_three_deaths_end_it_and_name_the_cause(tmp_path: Path) -> None:
    with Processes(2) as on_workers, pytest.raises(WorkerLost, match="call 3 of 4 failed: killed by SIGKILL"):
        on_workers.map(functools.partial(die_first, tmp_path, 99), range(4))
    assert len(list(tmp_path.glob("2-*"))) == workers.ATTEMPTS


def test_the_time_of_lost_workers_is_counted(tmp_path: Path) -> None:
    with Processes(2) as on_workers:
        on_workers.map(functools.partial(die_first, tmp_path, 2), range(4))
        before = on_workers.cpu_seconds
        assert before > 0
        for worker in list(on_workers._workers):
            on_workers._end(worker)
        assert on_workers.cpu_seconds == before


def test_a_silent_worker_is_replaced(tmp_path: Path) -> None:
    with Processes(2, silence=2) as on_workers:
        assert list(on_workers.map(functools.partial(hang_first, tmp_path), range(3))) == [0, 1, 4]
    assert len(list(tmp_path.glob("1-*"))) == 2


def test_an_exception_comes_back_with_its_type() -> None:
    with Processes(2) as on_workers:
        with pytest.raises(ZeroDivisionError, match="the reason") as caught:
            on_workers.map(refuse, range(3))
        assert "in refuse" in caught.value.__notes__[0]
        assert list(on_workers.map(square, range(3))) == [0, 1, 4]  # the workers are still good
        with pytest.raises((AttributeError, TypeError), match=r"lambda|pickle"):
            on_workers.map(lambda x, tick: x, range(3))
        with pytest.raises(TypeError, match="cannot be sent"):
            on_workers.map(opened, [os.devnull])


def test_stopping_lets_the_workers_save(tmp_path: Path) -> None:
    begun = time.monotonic()

    def tick(done: float) -> None:
        if time.monotonic() - begun > 5:
            raise KeyboardInterrupt

    with Processes(2, tick=tick) as on_workers:
        with pytest.raises(KeyboardInterrupt):
            on_workers.map(functools.partial(step_until_stopped, tmp_path), range(2))
        assert time.monotonic() - begun < 5 + workers.PATIENCE - 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved-0", "saved-1"]


def test_the_tick_hears_how_far_the_calls_are() -> None:
    heard: list[float] = []
    with Processes(2, tick=heard.append) as on_workers:
        on_workers.map(quarter_by_quarter, range(2))
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    assert {0.25, 0.5} & set(heard), "the workers' own share, before any call is done"


def test_workers_leave_when_their_parent_dies(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from randpath.storage.lock import lock
        from randpath.engines.processes import Processes

        def wait(place, tick):
            Path(place, f"pid-{os.getpid()}").touch()
            time.sleep(100)

        if __name__ == "__main__":
            with lock(Path(sys.argv[1])), Processes(2) as on_workers:
                on_workers.map(wait, [sys.argv[1]] * 2)
        """)
    )
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    for _ in range(300):
        if len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) == 2:
            break
        time.sleep(0.1)
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    from randpath.storage.lock import lock

    with lock(tmp_path):  # the workers hold no lock, even before they are gone
        pass
    for _ in range(50):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            break
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_serial_tick_hears_the_share_of_all_calls() -> None:
    heard: list[float] = []

    def half(x: int, tick: Tick) -> None:
        tick(0.5)

    list(Serial(heard.append).map(half, range(2)))
    assert heard == [0.25, 0.75]
