"""Modules whose initial weights depend on a key alone."""

import threading
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from randpath.keyed import seed_of

Built = TypeVar("Built", bound=nn.Module)

_one_at_a_time = threading.Lock()  # torch's layers draw from the global generator, which all threads share


def seeded(build: Callable[[], Built], *key: int | str) -> Built:
    """Build a module whose weights depend on the key alone; the global generator is left as it was.

    >>> one, other = (seeded(lambda: nn.Linear(2, 2), 0, "vae") for _ in range(2))
    >>> torch.equal(one.weight, other.weight)
    True
    """
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(*key))  # torch.manual_seed would reseed the user's GPU, too
        return build()
