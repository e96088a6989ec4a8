"""One writer at a time in a directory. No torch: the lock is taken before it is imported."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import filelock

from randpath.errors import DiskTrouble, Locked


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Be the one writer in a directory; raises Locked, naming who is. Freed by death, however sudden."""
    holder = directory / "lock.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file_lock = filelock.FileLock(directory / "lock", timeout=0.5)
        try:
            file_lock.acquire(poll_interval=0.05)
        except filelock.Timeout:
            who = "another process"
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # it may be writing it just now
                note = json.loads(holder.read_text())
                who = f"process {note['pid']} on {note['host']}, since {note['since']},"
            raise Locked(f"{who} is working in {directory}") from None
        try:
            note = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            holder.write_text(json.dumps(note))
        except BaseException:
            file_lock.release()
            raise
    except OSError as error:
        raise DiskTrouble(f"cannot lock {directory}: {error.strerror or error}") from error
    try:
        yield
    finally:
        file_lock.release()
