"""Devices: whether one is there, which GPU is a worker's own, the way of a tensor to it; the number of threads."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from randpath.engines import processes
from randpath.errors import DeviceMissing


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceMissing(f"device {device!r} is not there: {str(error).splitlines()[0]}") from error


BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")  # torch's names of what computes in it, on x86 and ARM
ONE_STEP = """
import torch
x, w = (torch.ones(16, 16, n, n, requires_grad=True) for n in (8, 3))
with torch.autocast("cpu", torch.bfloat16):
    torch.nn.functional.linear(torch.conv2d(x, w).flatten(1), torch.ones(2, 576)).sum().backward()
"""


@cache
def lacks_bfloat16() -> str:
    """Why this CPU should not train in bfloat16, or nothing. Some promise it and end with an illegal instruction.

    So one step is tried in a process of its own.
    """
    if not any(torch.cpu.get_capabilities().get(name) for name in BFLOAT16):
        return "this CPU does not compute in bfloat16, and would be many times slower in it"
    tried = subprocess.run([sys.executable, "-c", ONE_STEP], capture_output=True)
    if tried.returncode < 0:
        return f"bfloat16 ends with signal {-tried.returncode} on this CPU"
    return f"bfloat16 could not be tried: {tried.stderr.decode().strip()[-200:]}" if tried.returncode else ""


def own(device: str) -> str:
    """ "cuda", of no number, is another GPU in each worker as far as there are several: one candidate per GPU."""
    if device != "cuda" or torch.cuda.device_count() < 2:
        return device
    return f"cuda:{processes.worker % torch.cuda.device_count()}"


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """On the device; to a GPU from pinned memory, so that nobody waits for the copy, nor for the steps before it."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def deterministic_kernels() -> None:
    """Slower kernels that add up in a fixed order; torch warns of an operation that has none on this device."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)


_training: list[int] = []  # the number of threads before each learn that is under way in this process
_one_at_a_time = threading.Lock()


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Torch's number of threads belongs to the process: the last learn to end puts back what the first one found."""
    with _one_at_a_time:
        _training.append(torch.get_num_threads() if not _training else _training[0])
        torch.set_num_threads(number)
    try:
        yield
    finally:
        with _one_at_a_time:
            before = _training.pop()
            if not _training:
                torch.set_num_threads(before)
