"""The exemplars' linear discriminant beside the classifier (`options.discriminant`)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from randpath.data.dataset import Joined
from randpath.errors import UsageError
from randpath.learning.discriminant import add_discriminant
from randpath.learning.method import Work
from randpath.learning.train import predict
from randpath.methods.rps import RPS
from randpath.network.fold import fold
from tests.checks import check_goes_on_bit_exactly_after_a_round_trip, digest, setting, tasks


def make(weight: float = 0.1, budget: int = 30, mirror: bool = False, **options: Any) -> RPS:
    s = setting(budget, "compact")
    s = replace(s, backbone=replace(s.backbone, attention="none"), augment=replace(s.augment, mirror=mirror))
    return RPS(s, **{"N": 1, "threshold": 99.0, "discriminant": weight, **options})


def learned(method: RPS) -> RPS:
    for task in tasks(method, (2, 2)):
        method.learn(task, Work())
    return method


@pytest.mark.parametrize("mirror", [False, True])
def test_the_logits_are_those_of_the_classifier_and_of_a_discriminant_by_hand(mirror):
    method = learned(make(0.5, mirror=mirror))
    exemplars = Joined(list(method.memory.train.values()))
    augment = method.setting.augment
    plain = fold(method.net, method.P_ts)
    f = predict(plain.features, exemplars, augment).double().numpy()
    items, labels = f, exemplars.labels
    if mirror:
        turned = predict(lambda x: plain.features(x.flip(-1)), exemplars, augment).double().numpy()
        items, labels = np.concatenate([f, turned]), np.concatenate([labels, labels])
    classes = np.unique(labels)
    mu = np.stack([items[labels == c].mean(axis=0) for c in classes])
    residue = items - mu[labels]
    n, d = len(exemplars), items.shape[1]
    sigma = residue.T @ residue / (len(items) - len(classes))
    e = d / (d + n)
    inverse = np.linalg.inv((1 - e) * sigma + e * np.trace(sigma) / d * np.eye(d))
    # log N(f; mu_c, S) up to what all classes have in common
    opinion = f @ inverse @ mu.T - 0.5 * np.einsum("cd,de,ce->c", mu, inverse, mu)
    opinion -= opinion.mean(axis=1, keepdims=True)  # what all classes have in common
    expected = predict(plain, exemplars, augment).numpy() + 0.5 * opinion
    found = predict(method.inference(), exemplars, augment).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(opinion).max())
    np.testing.assert_allclose(found.mean(axis=1), predict(plain, exemplars, augment).numpy().mean(axis=1), atol=0.02)


def test_nothing_that_learns_hears_of_it():
    assert digest(learned(make(0.0))) == digest(learned(make(0.5)))


def test_the_answer_is_the_same_each_time_and_the_network_is_left_alone():
    method = learned(make(0.5))
    before = method.net.head.weight.detach().clone()
    first, second = method.inference().state_dict(), method.inference().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(method.net.head.weight, before)
    assert not torch.equal(first["head.weight"], before)


def test_it_goes_on_after_a_round_trip(tmp_path):
    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path)


def test_lanes_have_one_discriminant_over_all_their_features():
    s = setting(30, "compact")
    s = replace(s, backbone=replace(s.backbone, attention="none", join="lanes"))
    method = learned(RPS(s, N=1, switch_every=1, start="copy", discriminant=0.5))
    plain = fold(method.net, method.P_ts)
    assert plain.head.num_features == 2 * method.net.num_features
    answer = fold(method.net, method.P_ts)
    add_discriminant(answer, Joined(list(method.memory.train.values())), 0.5, s.augment)
    moved = (answer.head.weight - plain.head.weight).abs().sum(dim=0)
    assert all(lane.any() for lane in moved.split(method.net.num_features))
    assert torch.equal(answer.head.weight, method.inference().head.weight)


def test_images_to_judge_by_have_no_part_in_it():
    method = learned(make(0.5))
    assert method.memory.val
    before = method.inference().state_dict()
    method.memory.val = {}
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.inference().state_dict().items())


def test_a_class_without_exemplars_keeps_its_logit():
    method = learned(make(0.5))
    plain, answer = fold(method.net, method.P_ts), fold(method.net, method.P_ts)
    known = Joined([data for c, data in method.memory.train.items() if c != 3])
    add_discriminant(answer, known, 0.5, method.setting.augment)
    moved = (answer.head.weight != plain.head.weight).any(dim=1)
    assert moved.tolist() == [True, True, True, False]
    assert answer.head.bias[3] == plain.head.bias[3]


def test_without_a_spread_there_is_no_second_opinion():
    method = learned(make(0.5))
    plain, answer = fold(method.net, method.P_ts), fold(method.net, method.P_ts)
    single = Joined([data.take(np.arange(1)) for data in method.memory.train.values()])
    add_discriminant(answer, single, 0.5, method.setting.augment)
    assert torch.equal(answer.head.weight, plain.head.weight)
    make().inference()  # before any task


def test_what_it_cannot_serve_is_refused():
    with pytest.raises(UsageError, match="memory"):
        make(budget=0)
    s = setting(30, "compact")
    with pytest.raises(UsageError, match="cosine"):
        RPS(replace(s, backbone=replace(s.backbone, head="cosine")), discriminant=0.1)
