"""The closed form beside the path network: what it sees, how the two are mixed, and what held-out items choose."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from randpath.data.dataset import Arrays
from randpath.learning.anchor import Anchored, Mix, choose, shrinkage, with_items
from randpath.learning.closed import lda

VECTORS = Arrays(np.array([[3, 4], [4, 3], [1, 0], [2, 1]], np.float32), np.array([0, 0, 1, 1]))


def anchored(mix: Mix) -> Anchored:
    path = nn.Linear(2, 2).double()
    nn.init.eye_(path.weight)
    nn.init.zeros_(path.bias)
    return Anchored(path, with_items(None, VECTORS, 1.0), (0.5,), (0.25,), mix, 1.0)


def test_it_sees_unit_vectors_of_what_was_normalised():
    """Normalised (-2, 2) with mean 0.5 and deviation 0.25 was (0, 1); (14, 10) was (4, 3), of length 5."""
    x = torch.tensor([[-2.0, 2.0], [14.0, 10.0]], dtype=torch.float64)
    torch.testing.assert_close(anchored(Mix()).features(x), torch.tensor([[0.0, 1.0], [0.8, 0.6]], dtype=torch.float64))


def test_sums_and_answers_are_of_the_same_power_of_the_features():
    items = Arrays(np.array([[4.0, -9.0], [1.0, 0.0]], np.float32), np.array([0, 1]))
    sums = with_items(None, items, 0.5)
    torch.testing.assert_close(sums.totals[0], torch.tensor([2.0, -3.0]).double() / 13**0.5)
    net = Anchored(torch.nn.Identity(), sums, (1.0, 1.0), (2.0, 2.0), Mix(), 0.5)
    raw = torch.tensor([[4.0, -9.0]]).double()
    torch.testing.assert_close(net.features((raw - 1) / 2)[0], sums.totals[0])


def test_the_answer_is_a_mix_of_two_log_softmaxes():
    x = torch.tensor([[-2.0, 2.0], [14.0, 10.0]], dtype=torch.float64)
    sums = with_items(None, VECTORS, 1.0)
    W, b = lda(sums, shrinkage(sums))
    q_lda = torch.tensor([[0.0, 1.0], [0.8, 0.6]], dtype=torch.float64) @ W.T + b
    torch.testing.assert_close(anchored(Mix())(x), F.log_softmax(q_lda, dim=1))
    both = anchored(Mix(0.25, 3.0, 5.0))
    wanted = 0.75 * F.log_softmax(q_lda / 3, dim=1) + 0.25 * F.log_softmax(x / 5, dim=1)  # the path network says x
    torch.testing.assert_close(both(x), wanted)
    torch.testing.assert_close(both.with_share(0.0)(x), F.log_softmax(q_lda / 3, dim=1))


def test_pictures_are_added_up_channel_by_channel_as_the_network_sees_them():
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    totals = with_items(None, Arrays(pixels, np.array([0])), 1.0).totals[0]
    channels_first = np.array([0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11], float)
    assert totals.tolist() == pytest.approx(channels_first / np.linalg.norm(channels_first))


def test_a_share_needs_forty_held_out_items_and_the_smallest_that_is_best_is_taken():
    y = np.arange(40) % 2
    right, wrong = np.eye(2)[y], np.eye(2)[1 - y]
    assert choose(wrong, right, y).share == 0.25
    assert choose(right, wrong, y).share == 0.0
    assert choose(wrong[:39], right[:39], y[:39]).share == 0.0


@pytest.mark.parametrize(("better", "share"), [(3, 0.0), (5, 0.75)])
def test_a_share_that_may_be_chance_is_not_taken(better, share):
    """The path network has so many of 40 right where the closed form has not: 3 < 2 sqrt(3), 5 > 2 sqrt(5).

    It is a quarter as sure of those as of the others, so that they need three quarters: of five, the closed form is
    wrong by log(0.87 / 0.13) = 1.9, and the path network right by 1.1 or more.
    """
    y = np.arange(40) % 2
    missed = np.arange(40) < better
    closed = np.eye(2)[np.where(missed, 1 - y, y)]
    assert choose(closed, np.eye(2)[y] * np.where(missed, 0.25, 1.0)[:, None], y).share == share


def test_nothing_held_out_leaves_both_as_they_are():
    assert choose(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, int)) == Mix(0.0, 1.0, 1.0)
    assert choose(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3, int)) == Mix(0.0, 1.0, 1.0)


def test_a_temperature_leaves_the_doubt_of_few_items():
    """Two items, both right by a logit of 1: with a doubt of 1/3 the best p is 5/6, so 1 / t = log 5, t = 0.62."""
    assert choose(np.eye(2), 4 * np.eye(2), np.arange(2)).t_lda == pytest.approx(10**-0.2)
    assert choose(np.eye(2), 4 * np.eye(2), np.arange(2)).t_path == pytest.approx(10**0.4)
