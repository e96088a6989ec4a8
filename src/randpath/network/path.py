"""Paths through L layers of M modules, and the paper's algebra on them (section 3.1.1).

Where a path is chosen, trained and frozen: methods/rps.py.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Path:
    """P in {0,1}^(L x M): which modules of each layer are on.

    >>> P = Path.of([[1, 0], [0, 1]])
    >>> P_fixed = Path.of([[1, 0], [1, 0]])
    >>> (P ^ (P & P_fixed)).to_lists()  # P_tr: what no frozen path has trained
    [[0, 0], [0, 1]]
    >>> (P_fixed | P).to_lists()  # P_ts: what answers at inference
    [[1, 0], [1, 1]]
    """

    rows: tuple[tuple[bool, ...], ...]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int | bool]]) -> "Path":
        return cls(tuple(tuple(bool(on) for on in row) for row in lists))

    @classmethod
    def empty(cls, L: int, M: int) -> "Path":
        return cls(((False,) * M,) * L)

    @classmethod
    def full(cls, L: int, M: int) -> "Path":
        return cls(((True,) * M,) * L)

    @classmethod
    def random(cls, L: int, M: int, rng: np.random.Generator) -> "Path":
        """One module a layer, uniformly drawn.

        >>> [sum(row) for row in Path.random(3, 8, np.random.default_rng(0)).rows]
        [1, 1, 1]
        """
        chosen = rng.integers(M, size=L).tolist()
        return cls(tuple(tuple(m == i for m in range(M)) for i in chosen))

    def __or__(self, other: "Path") -> "Path":
        return Path(tuple(tuple(a or b for a, b in zip(x, y)) for x, y in self._pairs(other)))

    def __and__(self, other: "Path") -> "Path":
        return Path(tuple(tuple(a and b for a, b in zip(x, y)) for x, y in self._pairs(other)))

    def __xor__(self, other: "Path") -> "Path":
        return Path(tuple(tuple(a != b for a, b in zip(x, y)) for x, y in self._pairs(other)))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The (layer, module) pairs that are on, layer by layer."""
        return ((l, m) for l, row in enumerate(self.rows) for m, on in enumerate(row) if on)  # noqa: E741

    def __contains__(self, place: tuple[int, int]) -> bool:
        return self.rows[place[0]][place[1]]

    def __bool__(self) -> bool:
        return any(map(any, self.rows))

    def to_lists(self) -> list[list[int]]:
        return [[int(on) for on in row] for row in self.rows]

    def _pairs(self, other: "Path") -> Iterator[tuple[tuple[bool, ...], tuple[bool, ...]]]:
        if [len(row) for row in self.rows] != [len(row) for row in other.rows]:
            raise ValueError("paths of different networks")
        return zip(self.rows, other.rows)


def last_layers(N: int, layers: int, last: Path, P_fixed: Path, rng: np.random.Generator) -> list[Path]:
    """Up to N paths that turn on an unused module in each of the last `layers` layers and keep to `last` before them.

    A layer whose modules are all used keeps to `last` too.

    >>> last, P_fixed = Path.of([[1, 0], [1, 0]]), Path.of([[1, 0], [1, 0]])
    >>> [p.to_lists() for p in last_layers(8, 1, last, P_fixed, np.random.default_rng(0))]
    [[[1, 0], [0, 1]]]
    """
    L, M = len(last.rows), len(last.rows[0])
    choices = []
    for l, row in enumerate(last.rows):  # noqa: E741
        unused = [m for m in range(M) if not P_fixed.rows[l][m]]
        choices.append(unused if unused and l >= L - layers else [row.index(True)])
    found: dict[Path, None] = {}
    possible = math.prod(map(len, choices))
    while len(found) < min(N, possible):
        chosen = [unused[rng.integers(len(unused))] for unused in choices]
        found[Path(tuple(tuple(m == i for m in range(M)) for i in chosen))] = None
    return list(found)


def next_lane(P_fixed: Path, layers: int | None) -> Path:
    """The path of a new lane: the first unused module number, in the last `layers` layers (none: in all of them).

    In the layers before, and everywhere once no number is left, it keeps to the modules of the newest lane.

    >>> P_fixed = Path.of([[1, 0, 0], [1, 1, 0]])
    >>> next_lane(P_fixed, 1).to_lists(), next_lane(P_fixed, None).to_lists()
    ([[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]])
    """
    L, M = len(P_fixed.rows), len(P_fixed.rows[0])
    new = sum(P_fixed.rows[-1])
    chosen = []
    for l, row in enumerate(P_fixed.rows):  # noqa: E741
        used = [m for m, on in enumerate(row) if on]
        opens = new < M and (layers is None or l >= L - layers)
        chosen.append(new if opens or not used else used[-1])
    return Path(tuple(tuple(m == i for m in range(M)) for i in chosen))


def candidates(N: int, P_fixed: Path, rng: np.random.Generator) -> list[Path]:
    """Up to N random paths that differ in P_fixed | P, the network that each would make (section 3.3).

    Two paths with the same union are the same candidate and are trained once, so fewer than N come back when fewer than
    N different networks can be made, e.g. when all modules are exhausted.

    >>> [p.to_lists() for p in candidates(8, Path.full(2, 2), np.random.default_rng(0))]
    [[[0, 1], [0, 1]]]
    """
    L, M = len(P_fixed.rows), len(P_fixed.rows[0])
    # A layer gives as many different unions as it has unused modules, and one more if a used one may be chosen again.
    possible = 1
    for row in P_fixed.rows:
        unused = M - sum(row)
        possible *= unused + (1 if unused < M else 0)
    found: dict[Path, Path] = {}
    draws = 0
    while len(found) < min(N, possible) and draws < 1000 * N:  # a rare union is not waited for
        P = Path.random(L, M, rng)
        found.setdefault(P_fixed | P, P)
        draws += 1
    return list(found.values())
