"""Confidence that can be believed, also where few pictures were held out, and when to say "unknown"."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import rankdata

from randpath.metrics import class_weights

KNOWN_KEPT = 0.95  # of the held-out pictures of known classes are not called unknown
MOST_ALARMS = 0.10  # of them may be, where that finds more of the classes that were left out
PRIOR = 0.5  # log T is about 0, give or take this much, as long as nothing was held out
WEIGHTS = (0.5, 1.0, 2.0, 0.25, 4.0, 0.0)  # of the distance against the confidence; the others need evidence
FEW = 30  # held-out pictures: below this the calibration error is measured leaving out one at a time
BINS = 15


def doubt(n: int) -> float:
    """How often the next picture may still be wrong after n held-out ones were right: 1 / (n + 2), Laplace's rule."""
    return 1 / (n + 2)


def probabilities(q: np.ndarray, temperature: float, e: float) -> np.ndarray:
    """(1 - e) softmax(q / T) + e / C: never 1, however far apart the logits are.

    >>> probabilities(np.array([[900.0, 0.0]]), 1.0, doubt(8)).round(3).tolist()
    [[0.95, 0.05]]
    """
    return np.asarray((1 - e) * softmax(q / temperature, axis=1) + e / q.shape[1])


def fit_temperature(q: np.ndarray, labels: np.ndarray) -> float:
    """The most probable T, every class counting equally; never so low that the mean confidence would be above

        (right + 1) / (n + 2),

    what n held-out pictures can support. With few pictures, all right, the likelihood alone would have T go to 0.

    >>> fit_temperature(np.array([[4.0, 0.0]] * 4), np.array([0, 0, 0, 1])) > 2
    True
    >>> fit_temperature(np.array([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]]), np.array([0, 1])) > 3
    True
    """
    n = len(labels)
    if not n or q.shape[1] < 2:
        return 1.0
    weights, rows = class_weights(labels), np.arange(n)

    def loss(log_t: float) -> float:
        likelihood = n * float(weights @ log_softmax(q / np.exp(log_t), axis=1)[rows, labels])
        return log_t**2 / (2 * PRIOR**2) - likelihood

    def too_sure(log_t: float) -> float:
        return float(weights @ probabilities(q, float(np.exp(log_t)), doubt(n)).max(axis=1)) - supported

    supported = (n * float(weights @ (q.argmax(axis=1) == labels)) + 1) / (n + 2)
    best = float(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x)
    if too_sure(best) > 0:
        best = float(brentq(too_sure, best, 6.0)) if too_sure(6.0) < 0 else 3.0
    return float(np.exp(best))


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
    """The calibration error of each part of the held-out pictures at the temperature of the others: by two halves,
    or one by one where there are few."""
    n = len(labels)
    if n < 2:
        return None
    part = np.arange(n) % (n if n < FEW else 2)
    p = np.zeros(q.shape)
    for own in (part == i for i in np.unique(part)):
        p[own] = probabilities(q[own], fit_temperature(q[~own], labels[~own]), doubt(int(np.sum(~own))))
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


@dataclass(frozen=True)
class Novelty:
    """How unlike all that is known a picture is:

        u = by_odds log((1 - p) / p) + by_distance log(distance of its features to the nearest class);

    unknown where u > limit.
    """

    centres: np.ndarray  # (classes, D): the mean features of the exemplars of each class
    scale: np.ndarray  # (D,): their spread about it
    temperature: float
    by_odds: float = 1.0
    by_distance: float = 0.0
    limit: float = np.inf
    false_alarms: float = 1.0  # the share of pictures of known classes that will be called unknown, as expected
    found: float | None = None  # the share of pictures of classes left out that were called unknown

    def terms(self, q: np.ndarray, f: np.ndarray, left_out: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The two logarithms, as if the class `left_out` had never been learned."""
        known = [c for c in range(len(self.centres)) if c != left_out]
        z = np.sort(q[:, known] / self.temperature, axis=1)
        odds = logsumexp(z[:, :-1], axis=1) - z[:, -1] if len(known) > 1 else np.zeros(len(q))
        scaled, centres = f / self.scale, self.centres[known] / self.scale
        square = np.square(scaled).sum(1)[:, None] - 2 * scaled @ centres.T + np.square(centres).sum(1)
        return np.asarray(odds), 0.5 * np.log(np.maximum(square.min(axis=1), 1e-12))

    def score(self, q: np.ndarray, f: np.ndarray, left_out: int | None = None) -> np.ndarray:
        odds, distance = self.terms(q, f, left_out)
        return np.asarray(self.by_odds * odds + self.by_distance * distance)


def spread(f: np.ndarray, labels: np.ndarray, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean feature of each class; the deviation from it, half its own in each dimension and half that of all.

    Both rounded as they will be stored, so that a model answers the same after it was loaded.
    """
    centres = np.array([f[labels == c].mean(axis=0) for c in range(num_classes)])
    variance = np.square(f - centres[labels]).mean(axis=0)
    deviation = np.sqrt((variance + variance.mean()) / 2 + 1e-6)
    return centres.astype(np.float32).astype(np.float64), deviation.astype(np.float32).astype(np.float64)


def fit_novelty(known: Novelty, q: np.ndarray, f: np.ndarray, labels: np.ndarray) -> Novelty:
    """Weights and limit from held-out pictures: those of known classes, and the same with their class left out.

    The network has seen the classes that are left out here: what it has never seen is harder to find than `found` says.
    """
    terms = np.array(known.terms(q, f))
    deviation = np.where(terms.std(axis=1) > 1e-9, terms.std(axis=1), 1.0)
    strange = np.zeros(terms.shape)
    for c in np.unique(labels).tolist():
        strange[:, labels == c] = known.terms(q[labels == c], f[labels == c], c)
    can_leave_out = len(known.centres) > 2
    weights = WEIGHTS if can_leave_out else WEIGHTS[:1]
    pairs = [(float(1 / deviation[0]), float(weight / deviation[1])) for weight in weights]
    auroc = [_auroc(pair @ terms, pair @ strange) for pair in pairs]
    error = 0.5 / np.sqrt(len(labels))  # about the standard error of an AUROC of so many
    by_odds, by_distance = pairs[int(np.argmax(auroc)) if max(auroc) > auroc[0] + error else 0]
    u, v = (by_odds, by_distance) @ terms, (by_odds, by_distance) @ strange
    limit, false_alarms = _limit(u, v if can_leave_out else None, class_weights(labels))
    found = float(np.mean(v > limit)) if can_leave_out else None
    return Novelty(known.centres, known.scale, known.temperature, by_odds, by_distance, limit, false_alarms, found)


def _limit(u: np.ndarray, v: np.ndarray | None, weights: np.ndarray) -> tuple[float, float]:
    """Of the limits that call 1 to 10 % of the known unknown (5 % where nothing can be left out) the one that finds
    the most beyond that, and its expected rate of false alarms (above + 1) / (n + 1)."""
    order, n = np.argsort(u, kind="stable"), len(u)
    above = 1 - np.cumsum(weights[order])  # the share of the known above each one of them
    rate = (n * np.maximum(above, 0) + 1) / (n + 1)
    allowed = np.flatnonzero(above <= (MOST_ALARMS if v is not None else 1 - KNOWN_KEPT) + 1e-9)
    if v is not None:
        gain = [float(np.mean(v > u[order][i])) - float(above[i]) for i in allowed]
        chosen = int(allowed[int(np.argmax(gain))])
    else:
        chosen = int(allowed[0])
    return float(u[order][chosen]), float(rate[chosen])


def _auroc(known: np.ndarray, strange: np.ndarray) -> float:
    """The chance that a strange one has the higher score."""
    ranks = rankdata(np.concatenate([known, strange]))
    n, m = len(known), len(strange)
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))
