"""How torch's threads wait for each other: spinning, which is quickest alone, or asleep, where others want the cores.

The choice is OpenMP's (OMP_WAIT_POLICY). It is read once, when torch is loaded, and changes no result. No torch here.
"""

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # with one of these set, the user has chosen
THREADS = 4  # as many as `learn` takes at most: with so many cores left over, nobody is disturbed


def choose() -> None:
    """For a command, before it loads torch: its threads sleep while they wait if others use the cores they need."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if "torch" not in sys.modules and not chosen_by_user() and busy_cores() > max(0, cores - THREADS):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def chosen_by_user() -> bool:
    return any(name in os.environ for name in OWN)


@contextlib.contextmanager
def asleep() -> Iterator[None]:
    """Processes started in this context wait asleep: they are several, so that each disturbs the others."""
    if chosen_by_user():
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # read by those that load torch from now on, not by this process
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


def busy_cores() -> float:
    """How many threads of other processes want a core just now: the median of five looks in 20 ms.

    Not the load average where it can be helped: that remembers for minutes a run that has ended.
    """
    try:
        looks = [_runnable()]
        for _ in range(4):
            time.sleep(0.005)
            looks.append(_runnable())
    except (OSError, ValueError, IndexError):
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return statistics.median(looks) - 1  # this one


def _runnable() -> int:
    """Linux: `0.20 0.18 0.12 1/80 11206` says that 1 of 80 threads runs or could."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
