"""Memory that a step frees is kept for the next one, instead of being given back to the system and asked for again."""

import ctypes
import functools
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST = 32 * 2**20  # bytes: glibc takes no larger threshold for blocks of their own


@functools.cache
def keep_freed_memory() -> bool:
    """For a process that trains: on Linux with glibc, whose pages cost a fault each time they come anew.

    The same numbers in less time (benchmarks/allocation.py); the process stays as large as it once was. False where
    there is no such allocator.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
