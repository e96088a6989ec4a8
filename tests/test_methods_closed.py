"""Nearest mean, linear discriminants and ridge on a projection: by hand, on two features."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.data.stream import Task
from randpath.learning.closed import Sums, lda
from randpath.learning.method import Work
from randpath.methods import ranpac
from randpath.methods.ncm import NCM
from randpath.methods.ranpac import RanPAC
from randpath.methods.slda import SLDA
from randpath.network.backbones import Backbone
from tests.checks import setting

S = replace(setting(), backbone=Backbone("mlp", (2,), M=1, attention="none", width=4), augment=Augment((0.0,), (1.0,)))
X = np.array([[0, 1], [0, -1], [4, 1], [4, -1]], np.float32)
Y = np.array([0, 0, 1, 1])


def learn(method):
    """Class 0 about (0, 0), then class 1 about (4, 0)."""
    nothing = Arrays(X[:0], Y[:0])
    method.learn(Task(1, 1, range(1), Arrays(X[:2], Y[:2]), nothing), Work())
    method.learn(Task(2, 2, range(1, 2), Arrays(X[2:], Y[2:]), nothing), Work())
    return method.inference()


def test_nearest_mean():
    """q_0 = 0, q_1 = 2 (4, 0) f - 16: even at f = (2, y)."""
    q = learn(NCM(S))(torch.tensor([[2.0, 9.0], [3.0, 0.0]]))
    assert q.tolist() == [[0.0, 0.0], [0.0, 8.0]]


def test_linear_discriminants():
    """Sigma = diag(0, 4 / 2) about the means; tr / d = 1; e = 1/2: S = diag(1/2, 3/2), W_1 = (8, 0), b_1 = -16."""
    q = learn(SLDA(S, shrinkage=0.5))(torch.tensor([[2.0, 9.0], [3.0, 0.0]]))
    assert q.tolist() == [[0.0, 0.0], [0.0, 8.0]]
    sums = Sums.nothing(2).plus(torch.from_numpy(X[:2]), 0).plus(torch.from_numpy(X[2:]), 1)
    assert sums.within().tolist() == [[0.0, 0.0], [0.0, 2.0]]
    W, b = lda(sums, 0.5)
    assert W.tolist() == [[0.0, 0.0], [8.0, 0.0]] and b.tolist() == [0.0, -16.0]


def test_the_spread_along_the_line_of_the_means_is_shrunk():
    """Sigma_11 = 4 / 2, tr / d = 1, e = 1/4: S_11 = 3/4 * 2 + 1/4 = 1.75, W_1 = (4 / 1.75, 0), b_1 = -8 / 1.75."""
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [5.0, 0.0]])
    W, b = lda(Sums.nothing(2).plus(x[:2], 0).plus(x[2:], 1), 0.25)
    assert W.tolist() == [[0.0, 0.0], [pytest.approx(4 / 1.75), 0.0]]
    assert b.tolist() == [0.0, pytest.approx(-8 / 1.75)]


def test_ridge_on_a_projection(monkeypatch):
    """R = I: H = relu(X), H^T H = [[32, 4], [4, 2]], H^T Y = [[0, 8], [1, 1]], with lambda added to the diagonal."""
    monkeypatch.setattr(RanPAC, "projection", lambda self, d: torch.eye(2))
    monkeypatch.setattr("randpath.methods.ranpac.RIDGES", (4.0,))
    inference = learn(RanPAC(S))
    # (36 6 - 4 4) = 200: the inverse is [[6, -4], [-4, 36]] / 200
    wanted = np.array([[6, -4], [-4, 36]]) / 200 @ np.array([[0, 8], [1, 1]])
    assert inference.W.numpy() == pytest.approx(wanted.T)
    q = inference(torch.tensor([[1.0, -5.0]]))  # relu takes the second away
    assert q[0].tolist() == pytest.approx(wanted[0].tolist())


def test_without_held_out_items_the_ridge_is_the_middle_one(monkeypatch):
    monkeypatch.setattr("randpath.methods.ranpac.RIDGES", (1e-4, 4.0, 1e6))
    unchosen = learn(RanPAC(S, width=20)).W
    monkeypatch.setattr("randpath.methods.ranpac.RIDGES", (4.0,))
    assert torch.equal(unchosen, learn(RanPAC(S, width=20)).W)


def test_the_ridge_is_chosen_on_what_is_held_out(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    x = (rng.normal(size=(60, 2)) + 3 * y[:, None]).astype(np.float32)
    task = Task(1, 2, range(2), Arrays(x[::2], y[::2]), Arrays(x[1::2], y[1::2]))

    def score(*ridges):
        monkeypatch.setattr(ranpac, "RIDGES", ridges)
        method = RanPAC(S, width=20)
        method.learn(task, Work())
        return float((method.inference()(torch.from_numpy(x[1::2])).argmax(dim=1).numpy() == y[1::2]).mean())

    each = [score(ridge) for ridge in (1e-4, 1.0, 1e6)]
    assert score(1e-4, 1.0, 1e6) == max(each) > min(each)
