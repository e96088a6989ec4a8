"""Thousands of synced writes: in memory where the system has a place for that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # two beside another busy process can be many times slower

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="randpath-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)
