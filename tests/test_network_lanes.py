"""Lanes: paths that hear themselves alone and stand side by side before the classifier."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.engines.device import lacks_bfloat16
from randpath.engines.serial import quiet
from randpath.errors import Stopped, UsageError
from randpath.learning import selection
from randpath.learning.fisher import fisher_max
from randpath.learning.method import Work, unit_features
from randpath.learning.saturation import relative_saturation, saturation
from randpath.learning.selection import train_candidate
from randpath.learning.train import Training, rounded_once
from randpath.learning.views import Views
from randpath.methods.rps import RPS
from randpath.network.backbones import Backbone
from randpath.network.fold import Folded, fold
from randpath.network.layers import PathLayer, PathNetwork, Whole
from randpath.network.path import Path, next_lane
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    pictures,
    setting,
    tasks,
)

SHAPES = {"mlp": (8, 8, 3), "compact": (16, 16, 3), "resnet18_cifar": (16, 16, 3), "resnet32": (16, 16, 3)}


def images(name: str, n: int = 6) -> Tensor:
    h, w, c = SHAPES[name]
    return torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(0))


def opened(name: str, start: str = "copy", layers: int | None = None) -> tuple[PathNetwork, Path, Path]:
    """A network that has learned in one lane, batch-norm included, and has just opened a second one."""
    net = Backbone(name, SHAPES[name], 3, "none", 8, join="lanes").build(0)
    empty = Path.empty(net.L, 3)
    P = next_lane(empty, layers)
    net.open(P, empty, empty, start)  # type: ignore[arg-type]
    net.grow_head(4)
    net.train_only(P)
    net.train()
    net(images(name), P)
    P_ts = P | next_lane(P, layers)
    net.open(P_ts, P, P, start)  # type: ignore[arg-type]
    net.eval()
    return net, P, P_ts


def make(backbone: str = "mlp", **options: Any) -> RPS:
    s = setting(30, backbone)
    s = replace(s, backbone=replace(s.backbone, join="lanes", attention="none"))
    return RPS(s, **{"switch_every": 1, "start": "copy", **options})


def test_two_lanes_by_hand():
    """Layer 1 has no skip, layer 2 has the identity: q is written out; lane 2 never hears lane 1."""
    net = Backbone("mlp", (2,), 2, "none", 2, join="lanes").build(0)
    P_ts = Path.full(2, 2)
    net.open(P_ts, Path.empty(2, 2), Path.empty(2, 2), "fresh")
    net.grow_head(3)
    x = torch.tensor([[0.3, -1.2]])
    (A, B), (C, D) = [module[1] for module in net.layers[0].parallel], [one.module for one in net.layers[1].parallel]
    a, b = torch.relu(A(x)), torch.relu(B(x))
    expected = net.head(torch.cat([torch.relu(C(a) + a), torch.relu(D(b) + b)], dim=1))
    assert torch.equal(net(x, P_ts), expected)


def test_lanes_that_share_their_first_layer_by_hand():
    net = Backbone("mlp", (2,), 2, "none", 2, join="lanes").build(0)
    P_ts = Path.of([[1, 0], [1, 1]])
    net.open(P_ts, Path.empty(2, 2), Path.empty(2, 2), "fresh")
    net.grow_head(3)
    x = torch.tensor([[0.3, -1.2]])
    C, D = [one.module for one in net.layers[1].parallel]
    a = torch.relu(net.layers[0].parallel[0](x))
    expected = net.head(torch.cat([torch.relu(C(a) + a), torch.relu(D(a) + a)], dim=1))
    assert torch.equal(net(x, P_ts), expected)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("start", ["fresh", "copy", "zero"])
@pytest.mark.parametrize("layers", [None, 1])
def test_a_new_lane_changes_no_answer_before_the_first_step(name, start, layers):
    net, P, P_ts = opened(name, start, layers)
    f = net.num_features
    with torch.no_grad():
        before = net.features(images(name), P) @ net.head.weight[:, :f].T + net.head.bias
        assert torch.allclose(net(images(name), P_ts), before, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_a_copied_lane_begins_with_the_features_of_the_one_trained_last(name):
    net, _, P_ts = opened(name)
    with torch.no_grad():
        first, second = net.features(images(name), P_ts).chunk(2, dim=1)
    assert torch.equal(first, second) and first.any()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("layers", [None, 1])
def test_folding_changes_nothing(name, layers):
    net, _, P_ts = opened(name, "fresh", layers)
    with torch.no_grad():
        net.head.weight.normal_(generator=torch.Generator().manual_seed(2))
        assert torch.allclose(net(images(name), P_ts), fold(net, P_ts)(images(name)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", [None, 1])
@pytest.mark.parametrize("backbone", ["mlp", "compact"])
def test_a_frozen_lane_gives_the_same_features_ever_after(backbone, layers):
    """Skips included: in a network that sums, the skips and the other modules of a layer go on learning."""
    method = make(backbone, open_layers=layers, views=2)
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    frozen = None
    for one in tasks(method):
        learned = method.learn(one, Work())
        assert learned.saturation is not None and learned.switched
        with torch.no_grad():
            features = method.net.eval().features(x, method.P_ts)
        if frozen is not None:
            assert torch.equal(features[:, : frozen.shape[1]], frozen)
        frozen = features
    assert [sum(row) for row in method.P_ts.rows] == [3 if layers is None else 1] * (method.net.L - 1) + [3]
    assert method.inference()(x).shape == (4, 6)


@pytest.mark.parametrize("rule", [{"switch_every": 1}, {"switch_every": None, "threshold": -1e9}])
def test_the_first_path_is_kept_as_long_as_asked(rule):
    method = make("mlp", views=2, first_switch=3, **rule)
    learned = [method.learn(one, Work()) for one in tasks(method, (2, 2, 2, 2))]
    assert [one.switched for one in learned] == [False, False, True, True]
    assert method.P_ts.to_lists()[-1] == [1, 1, 0]


def test_no_lane_is_left():
    method = make("mlp", views=2)
    for one in tasks(method, (2, 2, 2, 2)):
        before = {name: t.clone() for name, t in method.net.state_dict().items() if name.startswith("layers.")}
        learned = method.learn(one, Work())
    assert any("wholly in frozen modules" in remark for remark in learned.remarks)
    assert all(torch.equal(method.net.state_dict()[name], tensor) for name, tensor in before.items())
    assert method.inference()(torch.rand(4, 1, 8, 8)).shape == (4, 8)


@pytest.mark.parametrize("paste", [0.0, 0.5])
@pytest.mark.parametrize("switch_every", [1, 2])  # 2: in task 4 a lane goes on learning beside a frozen one
@pytest.mark.parametrize(
    ("backbone", "layers"), [("mlp", None), ("mlp", 1), ("compact", None), ("compact", 2), ("compact", 3)]
)
def test_shortcuts_of_frozen_lanes_change_nothing(backbone, layers, switch_every, paste, monkeypatch):
    """Losses and weights over 20 steps or more: all lanes as one network and the teacher by itself at each visit;
    frozen lanes folded, what they share with the lane that learns run once, and the teacher by their features; and
    these once a task, where all views are equal."""
    found, shortcut = [], selection._frozen
    for views, frozen in ((None, lambda *_: None), (None, shortcut), (3, shortcut))[: 2 if paste else 3]:
        monkeypatch.setattr(selection, "_frozen", frozen)
        s = setting(30, backbone)
        s = replace(s, backbone=replace(s.backbone, join="lanes", attention="none"), augment=PLAIN)
        s = replace(s, training=replace(s.training, epochs=7, optimizer="sgd", lr=0.02, schedule="cosine"))
        method = RPS(
            s, switch_every=switch_every, start="copy", open_layers=layers, views=views, paste=paste, gamma=1.0,
            balanced=True,
        )  # fmt: skip
        learned = [method.learn(one, Work()) for one in tasks(method, (2, 2, 2, 2))]
        losses = [e["loss_ce"] + e.get("loss_dist", 0.0) for one in learned for e in one.epochs]
        found.append((losses, method.net.weights(method.P_ts)))
    (plain, weights), *others = found
    for losses, same in others:
        assert losses == pytest.approx(plain, rel=1e-5, abs=1e-5)
        assert all(torch.allclose(tensor, same[name], rtol=1e-4, atol=1e-5) for name, tensor in weights.items())


PLAIN = Augment((0.3,), (0.3,), padding=0, degrees=0.0)


def test_a_visit_draws_one_of_the_views_of_its_own_image():
    method = make("mlp")
    first, *_ = tasks(method)
    method.learn(first, Work())
    frozen, data = fold(method.net, method.P_ts), pictures(range(3), each=4)
    views = Views(frozen, data, 2, method.setting.training, method.setting.augment, (0,))
    assert views.features.shape == (2, 12, 16)
    assert not torch.equal(views.features[0], views.features[1])
    numbers = torch.tensor([3, 0, 11])
    seen = [views.visit(torch.zeros(3, 1, 8, 8), numbers, step) for step in range(8)]
    assert all(x.eq(0).all() and y.tolist() == [0, 0, 2] and not share.any() for x, y, share, _ in seen)
    drawn = [f for *_, f in seen]
    for f in drawn:
        assert all(any(torch.equal(f[i], views.features[v, n]) for v in range(2)) for i, n in enumerate(numbers))
    assert len({f.numpy().tobytes() for f in drawn}) > 1
    (x, y), (plain, labels) = (next(iter(d.batches([np.arange(12)]))) for d in (views.data, data))
    assert torch.equal(x, plain) and y.tolist() == list(range(12))
    assert torch.equal(views.labels[y], labels)


def second_job(method: RPS) -> selection.Job:
    """That of the task after the first switch, without images to choose by."""
    first, second, _ = tasks(method)
    method.learn(first, Work())
    job = method._job(second, method._begin(second, 2, 0, method.S, fold(method.net, method.P_ts)), Work())
    return replace(job, val=second.val.take(np.arange(0)))


def test_frozen_lanes_and_the_teacher_are_not_computed_at_each_visit(monkeypatch):
    """With views the network runs forward on the lane that learns alone, and what is frozen once for each view."""
    method = make("compact", views=2)
    job = second_job(method)
    seen, images_seen = [], []
    of_lane, of_frozen = PathNetwork.features, Folded.features
    monkeypatch.setattr(PathNetwork, "features", lambda net, x, *at: (seen.append(at[0]), of_lane(net, x, *at))[1])
    monkeypatch.setattr(Folded, "features", lambda net, x: (images_seen.append(len(x)), of_frozen(net, x))[1])
    train_candidate(job, 1, (0, next_lane(method.P_ts, None)), quiet)
    assert set(seen) == {next_lane(method.P_ts, None)}
    assert sum(images_seen) == 2 * len(job.data)


def test_what_lanes_share_runs_once_a_visit(monkeypatch):
    method = make("compact", open_layers=2)
    job = second_job(method)
    run, plain = [], PathLayer.forward
    monkeypatch.setattr(PathLayer, "forward", lambda layer, *given: (run.append(layer), plain(layer, *given))[1])
    train_candidate(job, 1, (0, next_lane(method.P_ts, 2)), quiet)
    assert method.net.L == 4 and len(set(run)) == 2  # of the network that learns; the others are folded


@pytest.mark.parametrize("switch_every", [1, 9])
def test_what_stands_still_is_rounded_once_in_mixed_precision_to_the_same_bits(monkeypatch, switch_every):
    if reason := lacks_bfloat16():
        pytest.skip(reason)
    method = make("compact", switch_every=switch_every)
    job = second_job(method)
    job = replace(job, training=replace(job.training, mixed=True))
    P = next_lane(method.P_ts, None) if switch_every == 1 else method.P
    rounded = []
    monkeypatch.setattr(selection, "rounded_once", lambda *a: (rounded.append(rounded_once(*a)), rounded[-1])[1])
    once = train_candidate(job, 1, (0, P), quiet)
    weights = [p for net in rounded for name, p in net.named_parameters() if not name.startswith("head.")]
    assert len(rounded) == (2 if switch_every == 1 else 1) and {p.dtype for p in weights} == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in job.teacher.parameters())
    monkeypatch.setattr(selection, "rounded_once", lambda net, training: net)
    anew = train_candidate(job, 1, (0, P), quiet)
    assert once.epochs == anew.epochs
    assert all(torch.equal(once.weights[name], anew.weights[name]) for name in anew.weights)


def test_in_full_precision_and_in_ones_own_networks_nothing_is_rounded():
    half = Training(mixed=True)
    own = torch.nn.Sequential(Whole(torch.nn.Linear(2, 2)))
    assert {p.dtype for p in rounded_once(own, half).parameters()} == {torch.float32}
    assert {p.dtype for p in rounded_once(torch.nn.Linear(2, 2), Training()).parameters()} == {torch.float32}
    assert {p.dtype for p in rounded_once(torch.nn.Linear(2, 2), half).parameters()} == {torch.bfloat16}


def test_a_stop_is_heard_while_views_are_computed():
    method = make("mlp")
    method.learn(tasks(method)[0], Work())

    def stop(share: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        Views(
            fold(method.net, method.P_ts), pictures(range(2)), 2, method.setting.training, method.setting.augment, (0,),
            stop,
        )  # fmt: skip


def test_herding_looks_at_the_newest_lane(monkeypatch):
    s = setting(30, herding=True)
    s = replace(s, backbone=replace(s.backbone, join="lanes", attention="none"))
    method = RPS(s, switch_every=1)
    seen = []
    monkeypatch.setattr(
        "randpath.methods.rps.unit_features",
        lambda net, path, data, setting: (seen.append(path), unit_features(net, path, data, setting))[1],
    )
    for one in tasks(method):
        method.learn(one, Work())
        assert set(seen) == {method.P}
        seen.clear()


def test_saturation_leaves_skips_out():
    net, P, _ = opened("compact")
    names = {id(p): name for name, p in net.named_parameters()}
    assert not [p for p in net.parameters_of_path(P) if ".skip." in names[id(p)]]
    plain = Backbone("compact", SHAPES["compact"], 3, "none", 8).build(0)
    assert len(net.parameters_of_path(P)) == len(plain.parameters_of_path(P))


@pytest.mark.parametrize("m", [0, 1])
@pytest.mark.parametrize("name", ["mlp", "compact"])
def test_saturation_of_a_lane_is_that_of_the_whole_network(name, m):
    """The constant of the other lanes against gradients through all of them."""
    net, _, P_ts = opened(name, "fresh")
    with torch.no_grad():
        net.head.weight.normal_(generator=torch.Generator().manual_seed(2))
    P = Path.of([[int(i == m) for i in range(3)]] * net.L)
    h, w, c = SHAPES[name]
    drawn = np.random.default_rng(0)
    data = Arrays(drawn.integers(0, 255, (12, h, w, c)).astype(np.uint8), drawn.integers(0, 4, 12))
    augment = Augment((0.5,) * 3, (0.25,) * 3)
    tensors = net.parameters_of_path(P)
    n = min(10, len(tensors) // 2)
    x, y = next(iter(data.batches([np.arange(12)])))
    I = fisher_max(net, P_ts, [*tensors[:n], *tensors[-n:]], [(augment.plain(x), y)])  # noqa: E741
    expected = relative_saturation([i.sum().item() for i in I])
    assert net.adds_lanes(P_ts) and not net.adds_lanes(P)
    assert saturation(net, P, P_ts, data, augment) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("backbone", "options"),
    [("mlp", {"views": 2}), ("compact", {"views": 2}), ("compact", {"paste": 0.5, "open_layers": 2})],
)
def test_resume_is_exact(backbone, options, tmp_path):
    check_goes_on_bit_exactly_after_a_round_trip(lambda: make(backbone, **options), tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(lambda: make(backbone, **options), tmp_path / "steps")


def test_what_lanes_cannot_have_is_refused():
    with pytest.raises(UsageError, match="--set attention=none"):
        Backbone("mlp", (8, 8, 1), 3, "peak", join="lanes").build(0)
    with pytest.raises(UsageError, match="--set join=lanes"):
        RPS(setting(), views=2)
    with pytest.raises(UsageError, match="compress is for paths"):
        make(compress=2)
