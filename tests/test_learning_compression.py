"""Distilling the union of all paths back into one, when a switch is due and the network is wide enough."""

from dataclasses import replace

import pytest
import torch

from randpath.engines.serial import Serial
from randpath.errors import Stopped
from randpath.learning.compression import compressed, single
from randpath.learning.method import Work
from randpath.learning.train import Training
from randpath.methods.rps import RPS
from randpath.network.fold import fold
from randpath.network.path import Path
from tests.checks import (
    check_goes_on_bit_exactly_after_a_round_trip,
    check_same_seed_gives_the_same_bits,
    digest,
    pictures,
    setting,
    tasks,
)

CASES = [("mlp", "sum", "fresh"), ("compact", "concat", "copy")]


def make(backbone: str = "mlp", join: str = "sum", start: str = "fresh", compress: int | None = 2) -> RPS:
    s = setting(backbone=backbone)
    s = replace(s, backbone=replace(s.backbone, join=join, attention="none"))
    return RPS(s, N=1, switch_every=1, start=start, open_layers=1, compress=compress)  # type: ignore[arg-type]


@pytest.mark.parametrize(("backbone", "join", "start"), CASES)
def test_two_paths_become_one_and_parameters_fall(backbone, join, start):
    method, wide = make(backbone, join, start), make(backbone, join, start, compress=None)
    sizes = []
    for one in tasks(method):
        learned, other = method.learn(one, Work()), wide.learn(one, Work())
        assert [sum(row) for row in method.P_ts.rows] == [1] * method.net.L
        assert learned.saturation is not None  # of the one path that is left
        sizes.append((learned.parameters, other.parameters))
        fits = [line.get("fit") for line in learned.epochs]
        assert fits == [None, None] + ["compress"] * (2 if one.k > 1 else 0)
        assert [remark for remark in learned.remarks if "2 paths were distilled into one" in remark] or one.k == 1
    # The classifier grows by the new classes' rows, and nothing else does.
    rows = 2 * (method.net.num_features + 1)
    assert [own for own, _ in sizes] == [sizes[0][0] + i * rows for i in range(3)]
    assert sizes[2][1] > sizes[2][0]
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    method.net.eval()
    with torch.no_grad():
        assert torch.allclose(method.inference()(x), method.net(x, method.P_ts), rtol=1e-4, atol=1e-4)
    assert method.net.head.num_features == method.net.num_features


def test_it_waits_for_as_many_paths_as_were_asked_for_and_for_a_switch():
    method = make(compress=3)
    widths = []
    for one in tasks(method, (1, 1, 1, 1, 1)):
        method.learn(one, Work())
        widths.append(max(sum(row) for row in method.P_ts.rows))
    assert widths == [1, 2, 1, 2, 1]
    full = make(compress=64)  # more than there are modules: when the network is full
    for one in tasks(full, (1, 1, 1)):
        full.learn(one, Work())
    assert [sum(row) for row in full.P_ts.rows] == [1, 1]
    never = RPS(setting(), N=1, threshold=1e9, compress=2)
    assert all("fit" not in line for one in tasks(never) for line in never.learn(one, Work()).epochs)


def test_a_warm_student_begins_with_the_weights_and_the_columns_of_its_path():
    s = replace(setting(backbone="compact"), backbone=replace(setting(backbone="compact").backbone, join="concat"))
    net = s.backbone.build(0)
    P = Path.of([[0, 1, 0]] * net.L)
    net.open(P, Path.empty(net.L, 3), Path.empty(net.L, 3), "fresh")
    net.grow_head(4)
    P_ts = P | Path.of([[1, 0, 0]] * net.L)
    net.open(P_ts, P, P, "fresh")
    net.eval()
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    student = single(net, P, P_ts, s, warm=True)
    student.eval()
    assert torch.equal(student.head.weight, net.head.weight[:, net.num_features :])
    for name, tensor in student.weights(P).items():
        assert name.startswith("head.") or torch.equal(tensor, net.state_dict()[name]), name
    assert student(x, P).shape == (5, 4)


@pytest.mark.parametrize("start", ["copy", "fresh"])
def test_a_student_is_warm_where_new_modules_are_copies(start):
    """With a learning rate of 0 it stays as it begins; the first layer is that of the first task."""
    method = make(start=start)
    first, second, _ = tasks(method)
    method.learn(first, Work())
    name = f"layers.0.parallel.{method.P.rows[0].index(True)}.1.weight"
    learned = method.net.get_parameter(name).detach().clone()
    drawn = method.setting.backbone.build(0).get_parameter(name)
    assert not torch.equal(learned, drawn)
    method.setting = replace(method.setting, training=replace(method.setting.training, lr=0.0))
    assert method.learn(second, Work()).epochs[-1]["fit"] == "compress"
    assert torch.equal(method.net.get_parameter(name), learned if start == "copy" else drawn)


def test_progress_rises_through_the_search_and_the_distillation():
    method = make()
    first, second, _ = tasks(method)
    method.learn(first, Work())
    shares: list[float] = []
    assert method.learn(second, Work(Serial(shares.append))).epochs[-1]["fit"] == "compress"
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_the_student_comes_near_to_the_union():
    s = setting()
    method = RPS(s, N=1, switch_every=1)
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    data = pictures(range(4))
    training = Training(epochs=30, batch=16, lr=3e-3)
    before = {name: tensor.clone() for name, tensor in method.net.state_dict().items()}
    student, epochs = compressed(
        method.net, method.P, method.P_ts, data, training, s, 2.0, warm=False, key=(0, "test"), place=None
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.net.state_dict().items())
    assert epochs[-1]["loss_dist"] < 0.2 * epochs[0]["loss_dist"]
    x = s.augment.plain(torch.from_numpy(data.items))
    agreed = fold(student, method.P)(x).argmax(dim=1) == method.inference()(x).argmax(dim=1)
    assert agreed.float().mean() > 0.9


@pytest.mark.parametrize(("backbone", "join", "start"), CASES)
def test_the_same_bits_for_the_same_seed_and_after_a_round_trip(backbone, join, start, tmp_path):
    check_same_seed_gives_the_same_bits(lambda: make(backbone, join, start))
    check_goes_on_bit_exactly_after_a_round_trip(lambda: make(backbone, join, start), tmp_path)


def test_a_distillation_that_was_stopped_goes_on_exactly(tmp_path):
    """Stopped at every step of the task in turn, search and distillation alike; all ends as if it had not been."""
    straight, stopped = make(), make()
    first, second = tasks(straight)[:2]
    straight.learn(first, Work())
    stopped.learn(first, Work())
    learned = straight.learn(second, Work())
    stops = 0
    while True:
        told: list[float] = []

        def tick(done: float, told: list[float] = told) -> None:
            told.append(done)
            if len(told) == 2:
                raise Stopped()

        try:
            again = stopped.learn(second, Work(Serial(tick), tmp_path))
            break
        except Stopped:
            stops += 1
            assert told[0] < 1
    assert stops > 4
    assert (tmp_path / "compress").exists() and (tmp_path / "search").exists()
    assert again == learned
    assert digest(stopped) == digest(straight)
