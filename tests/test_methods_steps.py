"""One step, one loss and one task of each method, by hand: what a one-line slip would change (see tests/mutate.py)."""

import copy
import math
from dataclasses import replace
from pathlib import Path as Directory

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays, Joined
from randpath.data.stream import Task
from randpath.engines.serial import Serial, Tick, quiet
from randpath.errors import DataError, Diverged, UsageError
from randpath.learning.generated import pixels
from randpath.learning.memory import PerClass
from randpath.learning.method import NO_REPLAY, Setting, Work, check_task
from randpath.learning.train import Training, fit
from randpath.methods import METHODS
from randpath.methods.logistic import DECAYS, fitted
from randpath.methods.ranpac import RanPAC
from randpath.methods.rps import RPS
from randpath.methods.rwalk import _importance
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.seeded import seeded
from randpath.network.vae import Decoder, negative_elbo
from randpath.storage import checkpoint
from tests.checks import digest, setting, task, tasks

SMALL = {"rps": {"N": 2}, "anchored": {"N": 2}, "ranpac": {"width": 64}}
PLAIN = ("finetune", "joint", "fixedrep", "ewc", "online_ewc", "si", "mas", "rwalk", "lwf", "rehearsal", "gem", "dmc")


def still(lr: float, epochs: int = 1) -> Setting:
    """Plain gradient descent on all images at once, without augmentation."""
    return replace(
        setting(),
        training=Training(epochs=epochs, batch=1000, optimizer="sgd", lr=lr, momentum=0.0, halve_after=()),
        augment=Augment((0.3,), (0.3,), padding=0, degrees=0.0),
    )


def seen(s: Setting, *parts: Arrays) -> tuple[Tensor, Tensor]:
    """Images as the network takes them, and their labels."""
    data = Joined(list(parts))
    x, y = next(iter(data.batches([np.arange(len(data))])))
    return s.augment.plain(x), y


# ---- every method


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_equal_to_itself_alone(name):
    """Two with the same settings may have learned different things."""
    one, other = (METHODS[name](setting(), **SMALL.get(name, {})) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize("name", METHODS)
def test_progress_rises_to_the_end_of_a_task_and_answers_have_no_gradient(name):
    method = METHODS[name](setting(), **SMALL.get(name, {}))
    first, second, _ = tasks(method)
    method.learn(first, Work())
    shares: list[float] = []
    method.learn(second, Work(Serial(shares.append)))
    assert 0 < shares[0] <= shares[-1]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert not any(p.requires_grad for p in method.inference().parameters())


@pytest.mark.parametrize("name", [*PLAIN, "progressive"])
def test_the_first_step_goes_down_the_gradient_of_the_mean_cross_entropy(name):
    s = still(0.1)
    method = METHODS[name](s)
    first = tasks(method)[0]
    x, y = seen(s, first.train)
    if name == "progressive":
        before = copy.deepcopy(method.columns)
        before.add(2)
    else:
        before = method.begin(first)
    g = torch.autograd.grad(F.cross_entropy(before(x), y), list(before.parameters()))
    method.learn(first, Work())
    after = dict((method.columns if name == "progressive" else method.net).named_parameters())
    for (key, p), slope in zip(before.named_parameters(), g):
        torch.testing.assert_close(after[key], p - 0.1 * slope, msg=key)


@pytest.mark.parametrize("name", ["finetune", "ncm"])
def test_classes_that_do_not_follow_those_known_are_refused(name):
    method = METHODS[name](setting())
    method.learn(task(1, range(2)), Work())
    gap = task(2, range(3, 5))
    with pytest.raises(DataError, match=r"classes 3\.\.4 of 5, but 2 classes are known"):
        method.learn(gap, Work())
    more = Task(2, 5, range(2, 4), task(2, range(2, 4)).train, task(2, range(2, 4)).val)
    with pytest.raises(DataError, match="known so far"):
        method.learn(more, Work())


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_label_one_above_the_last_class_is_refused_and_the_first_one_is_told(part):
    wrong = replace(task(1, range(2)), **{part: Arrays(np.zeros((3, 8, 8, 1), np.uint8), np.array([1, 2, 3]))})
    with pytest.raises(DataError, match=r"label 2 of (training|validation) item 1 is outside"):
        check_task(wrong, (8, 8, 1), 0, 0)


def test_a_line_of_an_epoch_has_the_learning_rate_of_its_last_step():
    s = setting()
    s = replace(s, training=replace(s.training, epochs=4, batch=10, lr=0.1, optimizer="sgd", halve_after=(0.5,)))
    lines = METHODS["finetune"](s).learn(task(1, range(2)), Work()).epochs
    assert [line["lr"] for line in lines] == [0.1, 0.1, 0.05, 0.05]


def test_a_divergence_tells_the_last_losses_as_they_were_weighed():
    net = nn.Linear(1, 1)
    data = Arrays(np.zeros((6, 1), np.float32), np.zeros(6, np.int64))

    def loss(x, y, step):
        return {"a": (2.0, net(x).sum() * 0 + (3.0 + step if step < 2 else math.inf)), "b": (1.0, net(x).sum() * 0)}

    with pytest.raises(Diverged) as refused:
        fit(
            net,
            dict(net.named_parameters()),
            data,
            loss,
            Training(epochs=1, batch=2),
            Augment((0.0,), (1.0,)),
            key=(0,),
        )
    assert refused.value.step == 2
    assert refused.value.losses == [6.0, 8.0, math.inf]


def test_on_a_cpu_a_step_that_is_not_finite_is_not_taken():
    net = nn.Linear(1, 1)
    before = net.weight.item()
    data = Arrays(np.ones((2, 1), np.float32), np.zeros(2, np.int64))

    def loss(x, y, step):
        return {"ce": (1.0, net(x).sum() * math.inf)}

    with pytest.raises(Diverged):
        fit(net, dict(net.named_parameters()), data, loss, Training(epochs=1), Augment((0.0,), (1.0,)), key=(0,))
    assert net.weight.item() == before


def fitted_norms(place: Directory, tick: Tick = quiet, **changes: float) -> None:
    """Two batch-norms in a row, two epochs of one step; only the scale of the second learns."""
    net = nn.Sequential(nn.BatchNorm1d(1), nn.BatchNorm1d(1))
    data = Arrays(np.array([[1.0], [2.0]], np.float32), np.zeros(2, np.int64))

    def loss(x, y, step):
        return {"ce": (1.0, net(x).square().sum())}

    training = Training(epochs=2, batch=2, **changes)
    params = {"1.weight": net[1].weight}
    fit(net, params, data, loss, training, Augment((0.0,), (1.0,)), key=(0,), place=place, tick=tick)


def test_a_fit_keeps_the_statistics_of_the_modules_that_learn_and_no_others(tmp_path):
    fitted_norms(tmp_path)
    _, saved = checkpoint.latest(tmp_path)
    kept = {name for name in saved.tensors["state"] if name.startswith("buffers.")}
    assert kept == {f"buffers.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, [False, True]), (30.0, [False, False])])
def test_an_unfinished_fit_is_saved_after_so_many_seconds_and_not_before(tmp_path, seconds, saved):
    found: list[bool] = []
    place = tmp_path / "fit"
    fitted_norms(place, lambda done: found.append(place.exists()), save_seconds=seconds)
    assert found == saved


# ---- exemplars


def test_a_method_that_needs_no_exemplars_takes_a_memory_of_none():
    for name in METHODS.keys() - {"gem", "icarl", "logistic"}:
        METHODS[name](setting(0), **SMALL.get(name, {}))


@pytest.mark.parametrize("name", ["gem", "icarl", "logistic"])
def test_a_method_that_needs_exemplars_refuses_a_memory_of_none(name):
    with pytest.raises(UsageError, match="needs exemplars"):
        METHODS[name](setting(0))


def test_a_method_that_replays_says_once_that_it_has_nothing_to_replay():
    method = METHODS["rehearsal"](setting(0))
    assert [method.learn(one, Work()).notes for one in tasks(method)[:2]] == [[NO_REPLAY], []]


def test_exemplars_are_herded_by_icarl_alone(monkeypatch):
    """Nearest to the class mean of unit features: first one image, then two, and so on (iCaRL, algorithm 4)."""
    s = setting()
    icarl = METHODS["icarl"](s)
    first = task(1, range(2))
    icarl.learn(first, Work())
    own = first.train.take(np.flatnonzero(first.train.labels == 1))
    with torch.no_grad():
        f = F.normalize(icarl.net.eval().features(seen(s, own)[0])).double().numpy()
    chosen: list[int] = []
    for n in range(1, len(icarl.memory.train[1]) + 1):
        away = [
            np.linalg.norm(f.mean(axis=0) - (f[chosen].sum(axis=0) + f[i]) / n) if i not in chosen else math.inf
            for i in range(len(f))
        ]
        chosen.append(int(np.argmin(away)))
    assert np.array_equal(icarl.memory.train[1].items, own.items[chosen])

    def fails(*_, **__):
        raise AssertionError("features were asked for")

    monkeypatch.setattr("randpath.learning.plain.unit_features", fails)
    METHODS["rehearsal"](s).learn(first, Work())


def test_the_loss_of_icarl_by_hand():
    """In task 2, with a learning rate of 0: old classes are held at the old network's answers, exemplars included."""
    s = still(0.0)
    method = METHODS["icarl"](s)
    first, second, _ = tasks(method)
    method.learn(first, Work())
    x, y = seen(s, *method.memory.train.values(), second.train)
    wanted = F.one_hot(y, 4).double()
    wanted[:, :2] = torch.sigmoid(fold(method.net, method.path)(x).double())
    line = method.learn(second, Work()).epochs[0]
    g = torch.sigmoid(fold(method.net, method.path)(x).double())
    each = -(wanted * g.log() + (1 - wanted) * (1 - g).log()).sum(dim=1)
    assert line["loss_ce"] == pytest.approx(each.mean().item(), rel=1e-5)


def test_the_constraints_of_gem_are_of_whole_tasks():
    method = METHODS["gem"](setting())
    for one in tasks(method)[:2]:
        method.learn(one, Work())
    assert [set(data.labels.tolist()) for data in method._exemplars_by_task([2, 4])] == [{0, 1}, {2, 3}]


def test_joint_training_begins_anew_with_every_task():
    one, other = (METHODS["joint"](setting()) for _ in range(2))
    other.setting = replace(one.setting, training=replace(one.setting.training, lr=0.1))
    first, second, _ = tasks(one)
    for method in (one, other):
        method.learn(first, Work())
    assert digest(one) != digest(other)
    other.setting = one.setting
    for method in (one, other):
        method.learn(second, Work())
    assert digest(one) == digest(other), "the first task leaves no trace"


# ---- DER


def test_the_auxiliary_loss_of_der_by_hand():
    """The newest extractor tells class 0 for any old class, 1 and 2 for the new ones. Sizes: width 16, 64 pixels."""
    s = still(0.0)
    method = METHODS["der"](s, balance_epochs=0)
    first, second, _ = tasks(method)
    method.learn(first, Work())
    x, y = seen(s, *method.memory.train.values(), second.train)
    auxiliary = seeded(lambda: nn.Linear(16, 3), 0, "auxiliary", 2)
    label = torch.where(y < 2, 0, y - 1)
    wanted = F.cross_entropy(auxiliary(method.net.features(x)), label).item()
    learned = method.learn(second, Work())
    assert learned.epochs[0]["loss_auxiliary"] == pytest.approx(wanted, rel=1e-5)
    extractor, classifier = (64 * 16 + 16) + (16 * 16 + 16), 4 * 32 + 4
    assert learned.parameters == 2 * extractor + classifier
    assert learned.parameters_trained == extractor + classifier + (16 * 3 + 3)


def test_der_classifies_by_all_extractors_side_by_side():
    """The loss of task 3 by hand, with a learning rate of 0: the answer afterwards is the one that it was taken of."""
    s = still(0.0)
    method = METHODS["der"](s, balance_epochs=0)
    first, second, third = tasks(method)
    for one in (first, second):
        method.learn(one, Work())
    with torch.no_grad():  # two extractors that differ, and none is a copy of the other
        for p in method.net.layers.parameters():
            p.mul_(1.5)
    x, y = seen(s, *method.memory.train.values(), third.train)
    learned = method.learn(third, Work())
    f = [extractor.features(x) for extractor in method.expanded.extractors]
    assert not torch.equal(f[0], f[1])
    q = method.expanded.head(torch.cat(f, dim=1))
    assert learned.epochs[0]["loss_ce"] == pytest.approx(F.cross_entropy(q, y).item(), rel=1e-5)
    assert learned.epochs[0]["loss_ce"] != pytest.approx(
        F.cross_entropy(method.expanded.head(torch.cat([f[1], f[0], f[2]], dim=1)), y).item(), rel=1e-3
    )


@pytest.mark.parametrize(("budget", "fits"), [(PerClass(1), [None, None, "balance"]), (0, [None, None])])
def test_der_balances_for_one_epoch_and_with_one_exemplar_but_not_without_any(budget, fits):
    method = METHODS["der"](setting(budget), balance_epochs=1)
    first, second = tasks(method, (1, 1))
    method.learn(first, Work())
    assert [line.get("fit") for line in method.learn(second, Work()).epochs] == fits


# ---- generative replay


@pytest.mark.parametrize("name", ["dgr", "rtf"])
def test_new_pictures_weigh_one_kth_and_replayed_ones_the_rest(name, monkeypatch):
    weights: list[tuple[str, float]] = []

    def watched(net, params, data, loss, *rest, **more):
        def noted(x, y, step):
            terms = loss(x, y, step)
            weights.extend((term, weight) for term, (weight, _) in terms.items())
            return terms

        return fit(net, params, data, noted, *rest, **more)

    monkeypatch.setattr("randpath.learning.plain.fit", watched)
    method = METHODS[name](setting())
    for one in tasks(method):
        weights.clear()
        method.learn(one, Work())
        terms = {"ce", "elbo"} | ({"replay"} if name == "dgr" else {"soft", "replay"} if one.k > 1 else set())
        assert {term for term, _ in weights} == (terms if one.k > 1 else {"ce", "elbo"})
        for term, weight in weights:
            assert weight == pytest.approx(1 / one.k if term in ("ce", "elbo") else 1 - 1 / one.k), term


def test_z_is_the_mean_and_the_deviation_times_noise():
    """A decoder that says logit z: one pixel of 1 costs log(1 + e^-z), z = 0.5 + 2 n, n the generator's own number."""
    decoder = Decoder((1, 1, 1), 1, 1)
    for step, (weight, bias) in zip(decoder.layers[::2], ((1.0, 50.0), (1.0, 0.0), (1.0, -50.0))):
        nn.init.constant_(step.weight, weight)
        nn.init.constant_(step.bias, bias)
    z = 0.5 + 2 * np.random.default_rng(3).standard_normal((1, 1), np.float32).item()
    got = negative_elbo(
        torch.ones(1, 1, 1, 1), torch.tensor([[0.5, math.log(4.0)]]), decoder, np.random.default_rng(3)
    ).item()
    assert got == pytest.approx(math.log(1 + math.exp(-z)) + (0.25 + 4 - 1 - math.log(4)) / 2, rel=1e-4)


def test_pixels_lie_between_0_and_1():
    augment = Augment((0.5,), (0.25,))
    assert pixels(torch.tensor([[[[-10.0, 0.0, 10.0]]]]), augment).flatten().tolist() == [0.0, 0.5, 1.0]


# ---- RWalk


def test_the_importance_of_rwalk_is_a_sum_of_two_shares_of_the_largest():
    """The largest Fisher information is 4, the largest score 10."""
    F = {"a": torch.tensor([2.0, 4.0]), "b": torch.tensor([1.0])}
    score = {"a": torch.tensor([5.0, 0.0]), "b": torch.tensor([10.0])}
    found = _importance({"fisher": F, "score": score})
    assert {name: t.tolist() for name, t in found.items()} == {"a": [0.5 + 0.5, 1.0], "b": [0.25 + 1.0]}


def test_rwalk_updates_after_every_so_many_steps_and_halves_the_old_score():
    early = METHODS["rwalk"](still(0.1, epochs=2), interval=3)
    early.learn(task(1, range(2)), Work())
    assert not any(t.any() for t in early.carried["fisher"].values()), "two steps are fewer than three"
    method = METHODS["rwalk"](still(0.1, epochs=3), interval=3)
    method.learn(task(1, range(2)), Work())
    before = {name: t.clone() for name, t in method.carried["score"].items()}
    assert any(t.any() for t in before.values())
    method.setting = replace(method.setting, training=still(0.0).training)
    method.learn(task(2, range(2, 4)), Work())  # nothing moves: its own score is 0
    for name, old in before.items():
        now = method.carried["score"][name][tuple(slice(n) for n in old.shape)]
        torch.testing.assert_close(now, old / 2)


def test_rwalk_measures_the_gradient_of_the_cross_entropy_alone():
    weak, strong = (METHODS["rwalk"](still(1e-4, epochs=2), strength=c, interval=1, epsilon=1.0) for c in (0.0, 100.0))
    for method in (weak, strong):
        for one in tasks(method)[:2]:
            method.learn(one, Work())
    for name, score in weak.carried["score"].items():
        torch.testing.assert_close(strong.carried["score"][name], score, rtol=0.02, atol=1e-9)


# ---- Adaptive RPS-Net


def test_a_lone_candidate_for_want_of_validation_images_is_told_where_several_were_asked_for():
    empty = task(1, range(2)).val.take(np.array([], np.int64))
    for N, told in ((4, [1, 0, 1]), (1, [0, 0, 0])):
        method = RPS(setting(), N=N, switch_every=2)
        notes = [method.learn(replace(one, val=empty), Work()).notes for one in tasks(method)]
        assert [sum("no validation images" in note for note in task) for task in notes] == told


def test_two_paths_can_meet_in_a_tournament_and_one_cannot(monkeypatch):
    met = []

    def never(job, paths, *_):
        met.append(len(paths))
        raise KeyboardInterrupt

    monkeypatch.setattr("randpath.methods.rps.tournament", never)
    with pytest.raises(KeyboardInterrupt):
        RPS(setting(), N=2, search="tournament").learn(task(1, range(2)), Work())
    RPS(setting(), N=1, search="tournament").learn(task(1, range(2)), Work())
    assert met == [2]


def test_a_path_that_learns_is_not_said_to_lie_in_frozen_modules():
    method = RPS(setting(), N=1, switch_every=1)
    assert [method.learn(one, Work()).remarks for one in tasks(method)[:2]] == [[], []]


def test_layers_before_those_that_open_keep_to_the_path():
    method = RPS(setting(), N=1, switch_every=1, open_layers=1)
    first, second, _ = tasks(method)
    method.learn(first, Work())
    before = method.P
    assert [sum(row) for row in before.rows] == [1, 1], "the first task draws a whole path"
    method.learn(second, Work())
    assert method.P.rows[0] == before.rows[0]
    assert not any(a and b for a, b in zip(method.P.rows[1], before.rows[1])), "an unused module"


def test_calls_that_go_on_with_a_task_are_counted():
    method = RPS(setting(), N=1)
    method.learn(task(1, range(2)), Work())
    again = replace(task(1, range(2)), new=range(2, 2))
    counts = []
    for _ in range(2):
        method.go_on(again, Work(), None)
        counts.append(method.again)
    assert counts == [1, 2]


# ---- closed forms and logistic regression


def test_what_a_closed_form_stores_and_counts():
    """64 pixels, 2 classes: the nearest mean needs no Gram matrix; a projection counts as parameters."""
    ncm = METHODS["ncm"](setting())
    assert ncm.learn(task(1, range(2)), Work()).parameters == 2 * 64 + 2
    assert ncm.state_dict().tensors["sums"]["gram"].numel() == 0
    learned = METHODS["ranpac"](setting(), width=50).learn(task(1, range(2)), Work())
    assert (learned.parameters_trained, learned.parameters) == (2 * 50 + 2, 2 * 50 + 2 + 64 * 50)


def test_ridge_regression_has_weak_ridges_to_choose(monkeypatch):
    """The second feature alone tells the classes, by 0.2, beside one from 5 to 16: a strong ridge is blind to it."""
    monkeypatch.setattr(RanPAC, "projection", lambda self, d: torch.eye(3))
    s = replace(setting(), backbone=Backbone("mlp", (3,), M=1, attention="none", width=4))
    s = replace(s, augment=Augment((0.0,), (1.0,)))
    data = Arrays(np.array([[5, 1, 1], [15, 1, 1], [6, 1.2, 1], [16, 1.2, 1]], np.float32), np.array([0, 0, 1, 1]))
    method = RanPAC(s)
    method.learn(Task(1, 2, range(2), data, data), Work())
    assert method.inference()(torch.from_numpy(data.items)).argmax(dim=1).tolist() == [0, 0, 1, 1]


def test_without_held_out_items_logistic_regression_takes_the_middle_decay():
    """At its minimum decay * W is minus the gradient of the cross-entropy."""
    s = replace(
        setting(), backbone=Backbone("mlp", (2,), M=1, attention="none", width=4), augment=Augment((0.0,), (1.0,))
    )
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    data = Arrays((rng.normal(size=(60, 2)) + y[:, None]).astype(np.float32), y)
    method = METHODS["joint_logistic"](s)
    method.learn(Task(1, 2, range(2), data, data.take(np.array([], np.int64))), Work())
    W, b = (t.clone().requires_grad_() for t in (method.solution.W, method.solution.b))
    loss = F.cross_entropy(torch.from_numpy(data.items) @ W.T + b, torch.from_numpy(y))
    (slope,) = torch.autograd.grad(loss, W)
    torch.testing.assert_close(sorted(DECAYS)[1] * W.detach(), -slope, rtol=0.05, atol=1e-4)


def test_logistic_regression_learns_where_the_boundary_lies():
    f, y = torch.tensor([[3.0], [5.0]]), torch.tensor([0, 1])
    W, b = fitted(f, y, torch.zeros(2, 1), torch.zeros(2), 0.001)
    q = torch.tensor([[3.9], [4.1]]) @ W.T + b
    assert q.argmax(dim=1).tolist() == [0, 1]
