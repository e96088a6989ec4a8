"""Distances from the sums of the closed form, and vectors that are left out of them without solving anew."""

import json

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from randpath.data.dataset import Arrays
from randpath.learning.anchor import shrinkage
from randpath.learning.closed import Sums, lda
from randpath.learning.gaussians import Gaussians
from randpath.model import calibration
from randpath.model.calibration import Nearest
from randpath.model.editing import forget, merge
from randpath.model.model import Model
from randpath.model.sizing import plan_for
from randpath.storage.checkpoint import Saved


def blobs(
    n: int, classes: int = 4, d: int = 30, apart: float = 1.0, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(100, d))
    return torch.from_numpy(apart * centres[y] + rng.normal(size=(n, d))), torch.from_numpy(y)


def summed(f: torch.Tensor, y: torch.Tensor) -> Sums:
    sums = Sums.nothing(f.shape[1])
    for c in range(int(y.max()) + 1):
        sums = sums.plus(f[y == c], c)
    return sums


def distances(known: Gaussians, f: torch.Tensor) -> np.ndarray:
    return known.looks(np.zeros(0), f.numpy())[1]


def test_distances_are_the_closed_form_but_for_what_all_classes_share():
    f, y = blobs(60)
    sums = summed(f, y)
    W, b = lda(sums, shrinkage(sums))
    r = distances(Gaussians(sums, shrinkage(sums)), f)
    q = (f @ W.T + b).numpy()
    np.testing.assert_allclose(log_softmax(-r / 2, axis=1), log_softmax(q, axis=1), atol=1e-8)


@pytest.mark.parametrize("n", [12, 60, 400])
def test_a_vector_is_left_out_as_if_it_had_never_been_summed(n):
    f, y = blobs(n)
    e = shrinkage(summed(f, y))
    cos, r = (found.numpy() for found in Gaussians(summed(f, y), e).left_out(f, y))
    for i in range(0, n, max(1, n // 5)):
        others = torch.arange(n) != i
        wanted = Gaussians(summed(f[others], y[others]), e).looks(np.zeros(0), f[i : i + 1].numpy())
        np.testing.assert_allclose(r[i], wanted[1][0], rtol=0.1 if n == 12 else 0.03, atol=1.5 if n == 12 else 0.3)
        np.testing.assert_allclose(cos[i], wanted[0][0], atol=0.03 if n == 12 else 0.003)


def test_directions_by_hand():
    """Two classes on one axis of a plane: S_0 is diagonal, and what lies beside both has no direction in common."""
    f = torch.tensor([[3.0, 1.0], [1.0, -1.0], [-3.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    known = Gaussians(summed(f, torch.tensor([0, 0, 1, 1])), 0.0)
    cos, _ = known.looks(np.zeros(0), np.array([[5.0, 0.0], [0.0, 7.0], [5**0.5, 1.0]]))
    # S_0 = diag(20 / 3, 4 / 3): of the last one the squares 5 / (20 / 3) and 1 / (4 / 3) are equal
    np.testing.assert_allclose(cos, [[1, -1], [0, 0], [0.5**0.5, -(0.5**0.5)]], atol=1e-9)


def test_what_was_learned_by_heart_is_not_known_when_it_is_left_out():
    f, y = blobs(80, apart=0.0, d=100)  # labels that nothing tells
    known = Gaussians(summed(f, y), shrinkage(summed(f, y)))
    assert np.mean(distances(known, f).argmin(axis=1) == y.numpy()) > 0.9
    assert np.mean(known.left_out(f, y)[1].numpy().argmin(axis=1) == y.numpy()) < 0.4


def test_the_only_vector_of_a_class_is_far_from_it():
    f, y = blobs(9, classes=3)
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2])
    cos, found = Gaussians(summed(f, y), 0.5).left_out(f, y)
    assert torch.isinf(found[8, 2])
    assert cos[8, 2] == -1
    assert torch.isfinite(found[:8]).all()
    assert cos.abs().max() <= 1


def test_leaving_one_of_two_out_by_hand():
    """Of 0, 2 and 10, 12 on a line, 2 is left out: means 0 and 11, variance (1 + 1) / (3 - 2), of all 124 / 3."""
    f = torch.tensor([[0.0], [2.0], [10.0], [12.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1])
    cos, r = Gaussians(summed(f, y), 0.0).left_out(f, y)
    from_all = (2 - 22 / 3) ** 2 / (124 / 3)
    np.testing.assert_allclose(r[1], [2**2 / 2 - from_all, 9**2 / 2 - from_all])
    np.testing.assert_allclose(cos[1], [1, -1])


def test_strangers_are_farther_than_the_known():
    f, y = blobs(400, classes=8)
    known = Gaussians(summed(f, y), shrinkage(summed(f, y)))
    fresh, _ = blobs(400, classes=8, seed=1)
    strange = blobs(1600, classes=16, seed=2)
    strange = strange[0][strange[1] >= 8]
    near, far = (distances(known, x).min(axis=1) for x in (fresh, strange))
    assert np.mean(far > np.quantile(near, 0.95)) > 0.9


def taught() -> Model:
    """Six classes behind a start, in two calls, from vectors."""
    f, y = blobs(240, classes=6, d=24)
    items, labels = f.numpy().astype(np.float16), y.numpy()
    first, later = np.flatnonzero(labels < 4), np.flatnonzero(labels >= 4)
    data = Arrays(items[first], labels[first])
    model = Model(plan_for(data, start="0" * 64, start_name="small", threads=1, epochs=1))
    model.learn(data, list("abcd"))
    model.learn(Arrays(items[later], labels[later] - 4), list("ef"))
    return model


def test_a_model_with_a_start_is_calibrated_by_all_that_it_stores():
    model = taught()
    assert model.mix.share == 0
    assert model.doubt == pytest.approx(calibration.doubt(240))  # 216 stored ones left out, and 24 held out
    assert model.novelty is not None and isinstance(model.novelty.gauge, Gaussians)
    fresh, labels = blobs(600, classes=6, d=24, seed=5)
    data = Arrays(fresh.numpy().astype(np.float16), labels.numpy())
    p, unknown = model.answers(data)
    assert calibration.expected_calibration_error(p, data.labels) < 0.05
    assert np.mean(unknown) == pytest.approx(model.novelty.false_alarms, abs=0.05)
    state, document = model.state()
    assert "known" not in state.tensors  # the sums tell
    again = Model.restore(Saved({**state.tensors}, {"model": json.loads(json.dumps(document))}))
    assert np.array_equal(again.answers(data)[0], p) and np.array_equal(again.answers(data)[1], unknown)


def test_distances_that_earlier_code_stored_with_a_start_are_read():
    model = taught()
    state, document = model.state()
    known = {"centres": torch.zeros(6, 24), "scale": torch.ones(24)}
    old = Model.restore(Saved({**state.tensors, "known": known}, {"model": json.loads(json.dumps(document))}))
    assert old.novelty is not None and isinstance(old.novelty.gauge, Nearest)


def test_a_limit_of_earlier_code_is_not_taken_for_another_measure():
    model = taught()
    state, document = model.state()
    document = json.loads(json.dumps(document))
    document["novelty"]["by_odds"] = document["novelty"].pop("by_likeness")
    old = Model.restore(Saved({**state.tensors}, {"model": document}))
    assert old.novelty is None  # by confidence alone, until it learns again
    assert old.threshold == model.threshold
    known = {"centres": torch.zeros(6, 24), "scale": torch.ones(24)}
    older = Model.restore(Saved({**state.tensors, "known": known}, {"model": document}))
    assert older.novelty is not None and older.novelty.by_likeness == document["novelty"]["by_odds"]


def test_forgetting_and_merging_calibrate_anew():
    model = taught()
    assert forget(model, 0).doubt == pytest.approx(calibration.doubt(200))
    assert merge(model, 0, 1).doubt == pytest.approx(calibration.doubt(240))


@pytest.mark.parametrize("power", calibration.POWERS)
def test_a_power_keeps_the_order_and_sums_to_one(power):
    q = np.random.default_rng(0).normal(size=(50, 7)) * 5
    p, plain = calibration.probabilities(q, 0.8, 0.01, power), calibration.probabilities(q, 0.8, 0.01)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.array_equal(np.argsort(p, axis=1), np.argsort(q, axis=1))
    assert np.all(p.max(axis=1) <= plain.max(axis=1) + 1e-12)  # a large lead tells less


def test_a_power_is_found_where_the_softmax_is_wrong_and_only_there():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(4000, 20)) * 4
    for power, wanted in ((3.0, (2.0, 3.0, 4.0)), (None, (None, 20.0, 12.0))):
        labels = np.array([rng.choice(20, p=row) for row in calibration.probabilities(q, 1.0, 0.0, power)])
        T, found = calibration.fit(q, labels)
        assert found in wanted
        p = calibration.probabilities(q, T, calibration.doubt(4000), found)
        assert calibration.expected_calibration_error(p, labels) < 0.02
    assert calibration.fit(q[:100], labels[:100])[1] is None  # so few cannot tell
