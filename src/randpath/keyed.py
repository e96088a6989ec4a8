"""Random numbers as a function of a key, never of saved generator state: resuming, retrying and the number of workers
cannot change them."""

import hashlib

import numpy as np


def seed_of(*key: int | str) -> int:
    """A 63-bit seed for a key such as (seed, version, "batches", k, epoch).

    >>> seed_of(0, "init", 1, 2) == seed_of(0, "init", 1, 2), seed_of(0, "init", 1, 2) == seed_of(0, "init", 2, 1)
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1


def rng(*key: int | str) -> np.random.Generator:
    """A counter-based generator for a key.

    >>> float(rng(0, "shuffle").random()) == float(rng(0, "shuffle").random())
    True
    """
    return np.random.Generator(np.random.Philox(key=seed_of(*key)))
