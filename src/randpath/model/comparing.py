"""What a call changed for the old classes, on the same held-out pictures; chance is not called a drop."""

from typing import Any

import numpy as np
from scipy.stats import binom

from randpath.metrics import confusion

CHANCE = 0.05


def is_more_than_chance(lost: int, won: int) -> bool:
    """Whether so many answers turned wrong, and so few right, that it is no accident (a sign test, at 5 %).

    >>> is_more_than_chance(1, 0), is_more_than_chance(5, 0), is_more_than_chance(9, 5)
    (False, True, False)
    """
    return bool(lost > won and binom.sf(lost - 1, lost + won, 0.5) <= CHANCE)


def compared(labels: np.ndarray, was: np.ndarray, now: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Counts of right answers [before, now, of] in all and by class, what dropped by more than chance, confusions."""
    before, after = was == labels, now == labels
    found: dict[str, Any] = {"dropped": {}, "fewer_right": {}, "confusions": []}
    found["right_old"] = [int(before.sum()), int(after.sum()), len(labels)]
    found["old_dropped"] = is_more_than_chance(int(np.sum(before & ~after)), int(np.sum(after & ~before)))
    for c in np.unique(labels).tolist():
        own = labels == c
        lost, won = int(np.sum(own & before & ~after)), int(np.sum(own & after & ~before))
        if lost > won:
            found["fewer_right"][names[c]] = [int(before[own].sum()), int(after[own].sum()), int(own.sum())]
            if is_more_than_chance(lost, won):
                found["dropped"][names[c]] = (lost - won) / int(own.sum())
    grown = confusion(labels, now, len(names)) - confusion(labels, was, len(names))
    np.fill_diagonal(grown, 0)
    for pair in np.argsort(-grown, axis=None, kind="stable")[:5].tolist():
        if grown.flat[pair] > 0:
            true, seen_as = divmod(pair, len(names))
            found["confusions"].append([names[true], names[seen_as], int(grown.flat[pair])])
    return found
