"""Confidence that can be believed: a temperature, the expected calibration error, and when to say "unknown"."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

KNOWN_KEPT = 0.95  # of the held-out pictures of known classes are not called unknown
BINS = 15


def class_weights(labels: np.ndarray) -> np.ndarray:
    """A weight for each item so that all classes together weigh the same: old classes have few held-out pictures.

    >>> class_weights(np.array([0, 0, 1])).tolist()
    [0.25, 0.25, 0.5]
    """
    counts = np.bincount(labels)
    return np.asarray(1 / (counts[labels] * np.count_nonzero(counts)))


def fit_temperature(q: np.ndarray, labels: np.ndarray) -> float:
    """T > 0 that makes softmax(q / T) the most likely, every class counting equally; 1 where nothing was held out.

    >>> fit_temperature(np.array([[4.0, 0.0]] * 4), np.array([0, 0, 0, 1])) > 2
    True
    """
    if not len(labels) or q.shape[1] < 2:
        return 1.0
    weights, rows = class_weights(labels), np.arange(len(labels))

    def loss(log_t: float) -> float:
        return float(-weights @ log_softmax(q / np.exp(log_t), axis=1)[rows, labels])

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))


def expected_calibration_error(p: np.ndarray, labels: np.ndarray) -> float:
    """Mean over 15 bins of confidence of |accuracy - confidence|, weighted by what lies in the bin.

    >>> expected_calibration_error(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]))
    0.0
    """
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(right[bins == b] - confidence[bins == b])) for b in range(BINS)]
    return float(np.sum(gaps) / len(labels))


def held_out_error(q: np.ndarray, labels: np.ndarray) -> float | None:
    """The calibration error of each half of the held-out pictures at the temperature fitted on the other half."""
    halves = [np.arange(len(labels)) % 2 == half for half in (0, 1)]
    if min(half.sum() for half in halves) == 0:
        return None
    p = np.zeros(q.shape)
    for half in halves:
        p[half] = softmax(q[half] / fit_temperature(q[~half], labels[~half]), axis=1)
    return expected_calibration_error(p, labels)


def choose_threshold(p: np.ndarray, labels: np.ndarray) -> float:
    """The confidence that 95 % of the held-out pictures reach, every class counting equally; 0 without any.

    >>> choose_threshold(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
    0.6
    """
    if not len(labels):
        return 0.0
    order = np.argsort(p.max(axis=1), kind="stable")
    share = np.cumsum(class_weights(labels)[order])
    return float(p.max(axis=1)[order][np.searchsorted(share, 1 - KNOWN_KEPT, side="right")])
