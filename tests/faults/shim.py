"""Faults from outside: the five file functions of `checkpoint`, replaced.

`src` has no fault code; a test, or a child process, installs these.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from randpath.storage import checkpoint

OPERATIONS = ("write_file", "sync_directory", "rename", "remove", "make_directory")
Before = Callable[[str, tuple[Any, ...]], None]  # told the operation and its arguments; may raise, or never return


def install(before: Before) -> Callable[[], None]:
    """Call `before` at the start of each file operation; the result undoes it."""
    originals = {name: getattr(checkpoint, name) for name in OPERATIONS}

    def wrapped(name: str) -> Callable[..., None]:
        def operation(*args: Any) -> None:
            before(name, args)
            originals[name](*args)

        return operation

    for name in OPERATIONS:
        setattr(checkpoint, name, wrapped(name))

    def undo() -> None:
        for name, original in originals.items():
            setattr(checkpoint, name, original)

    return undo


@contextlib.contextmanager
def installed(before: Before) -> Iterator[None]:
    undo = install(before)
    try:
        yield
    finally:
        undo()


class Counter:
    """Counts the operations, and lets the n-th one fail: once, or from then on."""

    def __init__(self, n: int = 0, code: int = 0, sticky: bool = False) -> None:
        self.n, self.code, self.sticky, self.count = n, code, sticky, 0

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        self.count += 1
        if self.n and (self.count == self.n or (self.sticky and self.count > self.n)):
            if name == "write_file":
                half_written(args[0], args[1])
            raise OSError(self.code, os.strerror(self.code), str(args[0]))


def half_written(path: Path, data: bytes) -> None:
    """A write that fails leaves half a file."""
    with contextlib.suppress(OSError):
        path.write_bytes(data[: len(data) // 2])
