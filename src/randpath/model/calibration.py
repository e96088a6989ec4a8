"""Confidence that can be believed, also where few pictures were held out, and when to say "unknown"."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import rankdata

from randpath.learning.gaussians import Gaussians
from randpath.metrics import class_weights

KNOWN_KEPT = 0.95  # of the held-out pictures of known classes are not called unknown
MOST_ALARMS = 0.10  # of them may be, where that finds more of the classes that were left out
PRIOR = 0.5  # log T is about 0, give or take this much, as long as nothing was held out
WEIGHTS = (0.5, 1.0, 2.0, 0.25, 4.0, 0.0)  # of the distance against the confidence; the others need evidence
RELATIVE_WEIGHTS = (0.5, 1.0, 2.0, 0.25, 4.0, 0.0)  # likewise, of a relative distance against the direction
FEW = 30  # held-out pictures: below this the calibration error is measured leaving out one at a time
BINS = 15
POWERS = (20.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0)  # by which the odds may fall more slowly than the softmax has it
FEW_FOR_A_POWER = 200  # held-out pictures: fewer cannot tell


def doubt(n: int) -> float:
    """How often the next picture may still be wrong after n held-out ones were right: 1 / (n + 2), Laplace's rule."""
    return 1 / (n + 2)


def probabilities(q: np.ndarray, temperature: float, e: float, power: float | None = None) -> np.ndarray:
    """(1 - e) p + e / C: never 1, however far apart the logits are. With z = (max q - q) / T, p is proportional to

        exp(-z), the softmax of q / T, or to (1 + z / k)^-k where there is a power k: a large lead tells less there.

    >>> probabilities(np.array([[900.0, 0.0]]), 1.0, doubt(8)).round(3).tolist()
    [[0.95, 0.05]]
    >>> probabilities(np.array([[6.0, 0.0]]), 1.0, 0.0, power=2.0).round(4).tolist()
    [[0.9412, 0.0588]]
    """
    z = (q.max(axis=1, keepdims=True) - q) / temperature
    z = z if power is None else power * np.log1p(z / power)
    return np.asarray((1 - e) * softmax(-z, axis=1) + e / q.shape[1])


def fit(q: np.ndarray, labels: np.ndarray) -> tuple[float, float | None]:
    """The temperature, and a power where it tells by two units of log-likelihood more how often the best name is right.

    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(size=(3000, 10)) * 3
    >>> p = probabilities(q, 1.0, 0.0, power=3.0)
    >>> fit(q, np.array([rng.choice(10, p=row) for row in p]))[1] in (2.0, 3.0, 4.0)
    True
    """
    n, T = len(labels), fit_temperature(q, labels)
    if n < FEW_FOR_A_POWER or q.shape[1] < 2:
        return T, None
    right, weights, e = q.argmax(axis=1) == labels, class_weights(labels), doubt(len(labels))
    supported = _supported(right, weights)

    def loss(log_t: float, power: float | None) -> float:
        best = probabilities(q, float(np.exp(log_t)), e, power).max(axis=1)
        told = n * float(weights @ np.where(right, np.log(best), np.log1p(-best)))
        return log_t**2 / (2 * PRIOR**2) - told if float(weights @ best) <= supported + 1e-6 else np.inf

    found: tuple[float, float | None] = (T, None)
    least = loss(float(np.log(T)), None) - 2
    for power in POWERS:
        grid = np.log(T) + np.linspace(-1, 0.5, 31)
        losses = [loss(log_t, power) for log_t in grid]
        if min(losses) < least:
            found, least = (float(np.exp(grid[int(np.argmin(losses))])), power), min(losses)
    return found


def _supported(right: np.ndarray, weights: np.ndarray) -> float:
    """The mean confidence that n held-out pictures can support: (right + 1) / (n + 2)."""
    n = len(right)
    return (n * float(weights @ right) + 1) / (n + 2)


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

    supported = _supported(q.argmax(axis=1) == labels, weights)
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
        temperature, power = fit(q[~own], labels[~own])
        p[own] = probabilities(q[own], temperature, doubt(int(np.sum(~own))), power)
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
class Nearest:
    """How far features lie from the mean of each class, each dimension by its own measure."""

    centres: np.ndarray  # (classes, D): the mean features of the exemplars of each class
    scale: np.ndarray  # (D,): their spread about it

    def distances(self, f: np.ndarray) -> np.ndarray:
        """log |f - centre|, (n, classes)."""
        scaled, centres = f / self.scale, self.centres / self.scale
        square = np.square(scaled).sum(1)[:, None] - 2 * scaled @ centres.T + np.square(centres).sum(1)
        return np.asarray(0.5 * np.log(np.maximum(square, 1e-12)))

    def looks(self, q: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What tells of strangers: the network's answer, and the distances."""
        return q, self.distances(f)


@dataclass(frozen=True)
class Novelty:
    """How unlike all that is known a picture is:

        u = by_likeness (its unlikeness) + by_distance (distance of its features to the nearest class);

    unknown where u > limit. The unlikeness is log((1 - p) / p) by the network's answer; behind a start, -cos to the
    class in whose direction its features lie (learning/gaussians.py).
    """

    gauge: Nearest | Gaussians  # the latter of a model with a start
    temperature: float
    by_likeness: float = 1.0
    by_distance: float = 0.0
    limit: float = np.inf
    false_alarms: float = 1.0  # the share of pictures of known classes that will be called unknown, as expected
    found: float | None = None  # the share of pictures of classes left out that were called unknown

    def terms(self, likeness: np.ndarray, distances: np.ndarray, left_out: int | None = None) -> np.ndarray:
        """Unlikeness and distance, (2, n), of what `gauge.looks` says, as if `left_out` had never been learned."""
        known = [c for c in range(likeness.shape[1]) if c != left_out]
        z = np.sort(likeness[:, known], axis=1)
        if isinstance(self.gauge, Gaussians):
            unlike = -z[:, -1]
        elif len(known) > 1:
            unlike = logsumexp(z[:, :-1] / self.temperature, axis=1) - z[:, -1] / self.temperature
        else:
            unlike = np.zeros(len(z))
        return np.array([unlike, distances[:, known].min(axis=1)])

    def score(self, q: np.ndarray, f: np.ndarray) -> np.ndarray:
        """u of every item, from its q and its features."""
        return np.asarray((self.by_likeness, self.by_distance) @ self.terms(*self.gauge.looks(q, f)))


def spread(f: np.ndarray, labels: np.ndarray, num_classes: int) -> Nearest:
    """The mean feature of each class; the deviation from it, half its own in each dimension and half that of all.

    Both rounded as they will be stored, so that a model answers the same after it was loaded.
    """
    centres = np.array([f[labels == c].mean(axis=0) for c in range(num_classes)])
    variance = np.square(f - centres[labels]).mean(axis=0)
    deviation = np.sqrt((variance + variance.mean()) / 2 + 1e-6)
    return Nearest(*(x.astype(np.float32).astype(np.float64) for x in (centres, deviation)))


def fit_novelty(known: Novelty, likeness: np.ndarray, distances: np.ndarray, labels: np.ndarray) -> Novelty:
    """Weights and limit from held-out pictures: those of known classes, and the same with their class left out.

    The network has seen the classes that are left out here: what it has never seen is harder to find than `found` says.
    """
    terms = known.terms(likeness, distances)
    deviation = np.where(terms.std(axis=1) > 1e-9, terms.std(axis=1), 1.0)
    strange = np.zeros(terms.shape)
    for c in np.unique(labels).tolist():
        strange[:, labels == c] = known.terms(likeness[labels == c], distances[labels == c], c)
    can_leave_out = likeness.shape[1] > 2
    weights = RELATIVE_WEIGHTS if isinstance(known.gauge, Gaussians) else WEIGHTS
    pairs = [(float(1 / deviation[0]), float(weight / deviation[1])) for weight in weights]
    auroc = [_auroc(pair @ terms, pair @ strange) for pair in pairs[: len(pairs) if can_leave_out else 1]]
    error = 0.5 / np.sqrt(len(labels))  # about the standard error of an AUROC of so many
    by_likeness, by_distance = pairs[int(np.argmax(auroc)) if max(auroc) > auroc[0] + error else 0]
    u, v = (by_likeness, by_distance) @ terms, (by_likeness, by_distance) @ strange
    limit, false_alarms = _limit(u, v if can_leave_out else None, class_weights(labels))
    found = float(np.mean(v > limit)) if can_leave_out else None
    return Novelty(known.gauge, known.temperature, by_likeness, by_distance, limit, false_alarms, found)


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
