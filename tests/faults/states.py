"""What the state machines share: commands typed in this process and killed at a file operation, and how many to try."""

import json
import os
import shlex
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, note, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from shim import installed
from tests.commands import ran

PHASES = [Phase.generate] + [Phase.shrink] * (not os.environ.get("RANDPATH_QUICK"))  # to shrink takes its minutes
MEMORY = Path("/dev/shm")


class Killed(BaseException):
    """The process ends here; nothing may catch it."""


def directory() -> Path:
    """A new one, in memory where the system has a place for that."""
    return Path(tempfile.mkdtemp(prefix="states-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))


def say(*typed: object, how: str = "randpath") -> None:
    """Show a command, should the sequence fail."""
    note(f"{how} {shlex.join(map(str, typed))}")


def in_this_process(*typed: object, killed_at: int = 0) -> tuple[int, str, str]:
    """Type a command and have it end at its n-th file operation, if it comes so far; code -9 if it does."""
    left = killed_at

    def strike(name: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    with installed(strike):
        try:
            done = ran(*typed)
        except Killed:
            return -signal.SIGKILL, "", ""
    return done.returncode, done.stdout, done.stderr


def answer(out: str) -> dict[str, Any]:
    """The one JSON object that a command printed, or nothing."""
    found: dict[str, Any] = json.loads(next((line for line in out.splitlines() if line.startswith("{")), "{}"))
    return found


def try_sequences(machine: Callable[[], RuleBasedStateMachine], number: int, steps: int = 12, **more: Any) -> None:
    ours = settings(
        max_examples=number, stateful_step_count=steps, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=PHASES, **more,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=ours)


def wanted(number: int) -> int:
    """How many sequences: RANDPATH_STATES percent of what `make test-states` tries."""
    return max(1, number * int(os.environ.get("RANDPATH_STATES", "100")) // 100)
