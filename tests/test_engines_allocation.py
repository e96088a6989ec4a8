"""Freed memory is kept for the next step: no page is asked for twice."""

import subprocess
import sys

import pytest

from randpath.engines import allocation

FAULTS = """
import resource
from randpath.engines.allocation import keep_freed_memory
if {keep}: assert keep_freed_memory()
def step():  # as one of training: several blocks of some megabytes, all free at its end
    blocks = [b"x" * n for n in (8 << 20, 8 << 20, 8 << 20, 8 << 20)]
for _ in range(3): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    code = FAULTS.format(keep=keep)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not allocation.keep_freed_memory(), reason="this C library has no mallopt")
def test_pages_are_not_asked_for_again():
    assert faults(keep=False) > 10_000  # else there is nothing to be gained any more, and the file can go
    assert faults(keep=True) < 100


def test_where_there_is_no_such_allocator_nothing_is_done(monkeypatch):
    def no_library(_name: None) -> object:
        return object()

    monkeypatch.setattr(allocation.ctypes, "CDLL", no_library)
    assert allocation.keep_freed_memory.__wrapped__() is False
    monkeypatch.setattr(allocation.sys, "platform", "darwin")
    assert allocation.keep_freed_memory.__wrapped__() is False
