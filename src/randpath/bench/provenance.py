"""Where a result comes from: the libraries, the machine and the commit it was made with."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """What may change the last bits of a result."""
    libraries = ("torch", "numpy", "pillow", "scikit-learn", "scipy", "safetensors")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
        "randpath": version("randpath"),
        "machine": machine(),
    }


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (x.partition(":")[2].strip() for x in info.read_text().splitlines() if x.startswith("model name")), cpu
        )
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()}"


def commit() -> str | None:
    """The commit of this package's checkout, marked when files differ from it; none outside of a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "src"], cwd=here.parents[2], capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")
