"""Whether a claim of the paper holds in what was measured: rules that are written down before anything is run.

A rule measures a margin, with its spread over seeds: clearly above zero, the claim holds; clearly below, it does not;
else it cannot be told at this scale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Measured = Mapping[str, Sequence[Mapping[str, Any]]]  # arm -> its results, one for each seed
Margin = tuple[float, float]  # its mean, and its standard error over seeds

HOLDS, FAILS, OPEN = "it holds", "it does not hold", "it cannot be told at this scale"


@dataclass(frozen=True)
class Rule:
    """What must be so if the claim is right, in words and as margins that must all be above zero."""

    words: str
    margins: Callable[[Measured], list[Margin]]
    noise: float = 0.01  # a margin nearer to zero than this tells nothing, however small its spread; twice it, one seed


def decide(rule: Rule, measured: Measured) -> str:
    """The verdict; one margin clearly below zero is enough to refute.

    >>> rule = Rule("a is above b", lambda found: [higher(found, "a", "b")])
    >>> decide(rule, {"a": [{"accuracy": [0.9]}], "b": [{"accuracy": [0.8]}]})
    'it holds'
    >>> decide(rule, {"a": [{"accuracy": [0.9]}], "b": [{"accuracy": [0.885]}]})
    'it cannot be told at this scale'
    """
    margins = rule.margins(measured)
    noise = rule.noise if all(len(results) > 1 for results in measured.values()) else 2 * rule.noise
    if any(mean < -max(noise, 2 * error) for mean, error in margins):
        return FAILS
    if margins and all(mean > max(noise, 2 * error) for mean, error in margins):
        return HOLDS
    return OPEN


def compare(found: Measured, better: str, worse: str, value: Callable[[Mapping[str, Any]], float | None]) -> Margin:
    """Mean difference of a value between two arms, and its standard error.

    >>> mean, error = compare({"a": [{"x": 3.0}, {"x": 5.0}], "b": [{"x": 1.0}]}, "a", "b", lambda r: r["x"])
    >>> mean, error
    (3.0, 1.0)
    """
    a, b = ([x for r in found[arm] if (x := value(r)) is not None] for arm in (better, worse))
    if not a or not b:
        return 0.0, float("inf")
    return float(np.mean(a) - np.mean(b)), float(np.sqrt(_error(a) ** 2 + _error(b) ** 2))


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def higher(found: Measured, better: str, worse: str, by: float = 0.0) -> Margin:
    """By how much, beyond `by`, the final accuracy of one arm is above that of another."""
    mean, error = compare(found, better, worse, lambda r: float(r["accuracy"][-1]))
    return mean - by, error


def above_all(found: Measured, best: str, *others: str) -> list[Margin]:
    """Of those other arms that there are: methods may be missing."""
    return [higher(found, best, other) for other in others or found if other != best and other in found]


def of_each(found: Measured, arm: str, value: Callable[[Mapping[str, Any]], float | None]) -> Margin:
    """Mean of a value over the seeds of an arm, and its standard error."""
    values = [x for r in found[arm] if (x := value(r)) is not None]
    return (float(np.mean(values)), _error(values)) if values else (0.0, float("inf"))


def slowing(values: Sequence[float]) -> float:
    """How much less a quantity grew in the second half of the tasks than in the first, as a share of all its growth.

    >>> slowing([0, 3, 4]), slowing([0, 1, 4]), slowing([1, 1, 1])
    (0.5, -0.5, 0.0)
    >>> slowing([0, 1, 2, 3])  # the middle lies between two tasks
    0.0
    """
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    grown = values[-1] - values[0]
    return ((middle - values[0]) - (values[-1] - middle)) / grown if grown else 0.0


def epochs_to(curve: Sequence[float | None], share: float = 0.95) -> float | None:
    """Epochs until a validation curve has reached a share of its end.

    >>> epochs_to([0.5, 0.8, 0.98, 1.0])
    3
    """
    known = [v for v in curve if v is not None]
    return next((i for i, v in enumerate(known, start=1) if v >= share * known[-1]), None)


def adaptive(found: Measured) -> str:
    """The arm that the claim on adaptive switching is about."""
    return "th = 2" if "th = 2" in found else "th = 0"


def fall_after_switch(r: Mapping[str, Sequence[float | None]]) -> float | None:
    """How much mu_sat falls from the task after which a path was switched to the next, on average."""
    pairs = zip(r["saturation"], r["saturation"][1:], r["switched"])
    falls = [now - then for now, then, switched in pairs if switched and now is not None and then is not None]
    return sum(falls) / len(falls) if falls else None


def epochs_saved(r: Mapping[str, Sequence[Sequence[float | None]]]) -> float | None:
    second, last = epochs_to(r["validation"][1]), epochs_to(r["validation"][-1])
    return None if second is None or last is None else second - last


def gained(r: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """Mean over tasks but the last of (accuracy at the end - accuracy just after learning)."""
    matrix = r["matrix"]
    return sum(matrix[-1][k] - matrix[k][k] for k in range(len(matrix) - 1)) / (len(matrix) - 1)
