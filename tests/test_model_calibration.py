"""Confidence and "unknown" where few pictures were held out."""

import numpy as np
import pytest

from randpath.model import calibration
from randpath.model.calibration import Novelty, doubt, fit_novelty, fit_temperature, probabilities, spread
from randpath.model.comparing import compared


def sure(n: int, classes: int = 7, apart: float = 40.0) -> tuple[np.ndarray, np.ndarray]:
    """n held-out pictures, all right, with logits as far apart as an overfitted network has them."""
    labels = np.arange(n) % classes
    return apart * np.eye(classes)[labels], labels


@pytest.mark.parametrize("n", [1, 7, 30, 1000])
def test_confidence_is_never_more_than_the_held_out_pictures_support(n):
    q, labels = sure(n)
    p = probabilities(q, fit_temperature(q, labels), doubt(n))
    assert p.max(axis=1).mean() <= (n + 1) / (n + 2) + 1e-9
    stranger = probabilities(np.array([[1e6, 0, 0, 0, 0, 0, 0]]), fit_temperature(q, labels), doubt(n))
    assert stranger.max() < 1 - 0.5 / (n + 2)
    assert np.allclose(p.sum(axis=1), 1)


def test_a_temperature_that_many_pictures_speak_for_is_found_all_the_same():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(5000, 10)) * 3
    labels = np.array([rng.choice(10, p=row) for row in probabilities(q, 2.0, 0.0)])
    assert fit_temperature(q, labels) == pytest.approx(2.0, rel=0.1)
    error = calibration.held_out_error(q, labels)
    assert error is not None
    assert error < 0.03


def blobs(n: int, classes: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features about the corners of a cube, and logits that only see how far out they lie."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    f = 6 * np.eye(classes, 8)[labels] + rng.normal(size=(n, 8))
    return f, f[:, :classes], labels


def test_what_lies_far_from_all_classes_is_unknown_although_the_confidence_is_high():
    f, _, labels = blobs(600)
    known = Novelty(spread(f, labels, 6), temperature=1.0)
    held, q_held, y_held = blobs(300, seed=1)
    fitted = fit_novelty(known, q_held, known.gauge.distances(held), y_held)
    assert 0 < fitted.false_alarms <= 0.11
    fresh, q_fresh, _ = blobs(2000, seed=2)
    assert np.mean(fitted.score(q_fresh, fresh) > fitted.limit) == pytest.approx(fitted.false_alarms, abs=0.03)
    strange, q_strange = fresh.copy(), q_fresh.copy()
    strange[:, 7] += 100  # as sure as before of their class, but nowhere near it
    assert np.mean(fitted.score(q_strange, strange) > fitted.limit) > 0.99
    assert fitted.found is not None
    assert fitted.found > 0.9


@pytest.mark.parametrize(("n", "classes"), [(1, 2), (2, 2), (7, 7), (3, 3)])
def test_with_few_pictures_the_expected_rate_of_false_alarms_says_so(n, classes):
    f, _, labels = blobs(60, classes)
    known = Novelty(spread(f, labels, classes), temperature=1.0)
    held, q_held, y_held = blobs(n, classes, seed=1)
    fitted = fit_novelty(known, q_held, known.gauge.distances(held), y_held)
    assert fitted.false_alarms == pytest.approx(1 / (n + 1))  # none of n was above: one in n + 1 may be
    assert not (fitted.score(q_held, held) > fitted.limit).any()


def test_chance_is_not_called_a_drop():
    labels = np.repeat([0, 1, 2], 6)
    was, now = labels.copy(), labels.copy()
    now[0] = 1  # one of six
    now[6:12] = 2  # all six
    found = compared(labels, was, now, ["a", "b", "c"])
    assert found["fewer_right"] == {"a": [6, 5, 6], "b": [6, 0, 6]}
    assert found["dropped"] == {"b": 1.0}
    assert found["right_old"] == [18, 11, 18]
    assert found["old_dropped"]
    assert not compared(labels[:6], was[:6], now[:6], ["a", "b", "c"])["old_dropped"]
