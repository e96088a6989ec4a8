"""Calls in threads of this process, side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

A = TypeVar("A")
R = TypeVar("R")


def in_threads(at_once: int, call: Callable[[A], R], arguments: Iterable[A]) -> list[R]:
    """call(argument) for each argument, in their order; so many at once, each as it would be alone.

    Each thread has as many of torch's own threads as the caller, whom a new one would not ask for all that it does.

    >>> in_threads(2, lambda n: n + 1, [1, 2, 3])
    [2, 3, 4]
    """
    if at_once == 1:
        return [call(argument) for argument in arguments]
    with ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        return list(pool.map(call, arguments))  # waited for here, so that an error or Ctrl-C gives up the rest
