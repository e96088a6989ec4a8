"""What all tests share: one thread that waits without spinning, and the real data where there is some."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# Read once, when torch is loaded: tests run side by side.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Where the published datasets lie: $RANDPATH_DATA or its default; a test of one that is not there is skipped."""
    from randpath.data.named import default_root

    root = default_root()

    def with_dataset(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"{name} is not on this machine: randpath data {name}   (or RANDPATH_DATA=FOLDER)")
        return root

    return with_dataset
