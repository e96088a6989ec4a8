"""One writer at a time in a directory. No torch: the lock is taken before it is imported."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import filelock

from randpath.errors import Damaged, DiskTrouble, Locked
from randpath.storage import inside

NAMES = ("lock", "lock.json")


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Be the one writer in a directory, and hold it; raises Locked, naming who is. Freed by death, however sudden."""
    with contextlib.ExitStack() as stack:
        try:
            made = [place for place in (directory, *directory.parents) if not place.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(inside.held(directory, writing=True))
            _take(directory, stack)
        except OSError as error:
            raise DiskTrouble(f"cannot lock {directory}: {error.strerror or error}") from error
        if made:
            stack.callback(_leave_nothing, made)
        inside.refuse_links_below(directory / "work")  # worker processes write there
        yield


def _take(directory: Path, stack: contextlib.ExitStack) -> None:
    file, holder = (directory / name for name in NAMES)
    if inside.kind(file) not in ("file", None):
        raise Damaged(f"{file} is not a regular file", where=str(file), next=f"look at {file}")
    file_lock = filelock.FileLock(file, timeout=0.5)
    try:
        file_lock.acquire(poll_interval=0.05)
    except filelock.Timeout:
        who = "another process"
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, Damaged):  # it may be writing it just now
            note = json.loads(inside.read(holder, 10_000))
            who = f"process {note['pid']} on {note['host']}, since {note['since']},"
        raise Locked(f"{who} is working in {directory}") from None
    stack.callback(file_lock.release)
    note = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    inside.write(holder, json.dumps(note).encode())


def _leave_nothing(made: list[Path]) -> None:
    """Remove the directories that were made for this lock, if nothing came into them; still locked."""
    directory = made[0]
    with contextlib.suppress(OSError, DiskTrouble):
        if set(inside.listing(directory)) <= set(NAMES):
            for name in reversed(NAMES):
                inside.remove(directory / name)
            for place in made:
                place.rmdir()
