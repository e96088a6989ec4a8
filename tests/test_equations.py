"""Every equation of the paper against a case computed by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.engines.serial import quiet
from randpath.errors import NotFinite
from randpath.learning.fisher import fisher_max, fisher_mean
from randpath.learning.method import Setting
from randpath.learning.objective import cross_entropy, distillation, log_counts, phi
from randpath.learning.saturation import relative_saturation, saturation
from randpath.learning.selection import Job, train_candidate
from randpath.learning.train import Training
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.layers import PathAttention, PathLayer, PathNetwork
from randpath.network.path import Path


def test_training_path_leaves_out_what_is_fixed():
    P = Path.of([[1, 0], [0, 1]])
    P_fixed = Path.of([[1, 0], [1, 0]])
    assert P ^ (P & P_fixed) == Path.of([[0, 0], [0, 1]])  # P_tr
    nothing_fixed = Path.empty(2, 2)
    assert P ^ (P & nothing_fixed) == P  # a path that is reused is trained whole again


def test_inference_path_is_the_union():
    assert Path.of([[1, 0], [1, 0]]) | Path.of([[1, 0], [0, 1]]) == Path.of([[1, 0], [1, 1]])


# Two modules' outputs for one image: one channel of 2 x 2 each.
T0 = torch.tensor([[[[1.0, -2.0], [0.5, 0.5]]]])
T1 = torch.tensor([[[[3.0, 0.0], [-1.0, 2.0]]]])


def test_tau_peak_is_the_maximum_of_each_module():
    tau = PathAttention("peak", 2, 1, 4)({0: T0, 1: T1})
    assert tau[0].item() == 1.0
    assert tau[1].item() == 3.0


def test_tau_mean():
    tau = PathAttention("mean", 2, 1, 4)({0: T0, 1: T1})
    assert tau[0].item() == 0.0
    assert tau[1].item() == 1.0


def test_tau_conv_maps_each_module_and_takes_zeros_for_those_that_are_off():
    attention = PathAttention("conv", 2, 1, 4)
    with torch.no_grad():
        attention.to_map.weight.fill_(2.0)
        attention.to_map.bias.fill_(1.0)
        attention.to_weights.weight.copy_(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0, 0, 0, 1.0]]))
        attention.to_weights.bias.copy_(torch.tensor([0.5, 0.0]))
    both = attention({0: T0, 1: T1})
    assert both[0].item() == (2 * 1 + 1) + 0.5  # the first position of module 0's map
    assert both[1].item() == (2 * 3 + 1) + (2 * 2 + 1)  # the first and last position of module 1's map
    alone = attention({1: T1})
    assert set(alone) == {1}
    assert alone[1].item() == 12.0


def test_tau_channel_takes_each_channels_maximum():
    attention = PathAttention("channel", 2, 2, 4)
    T = torch.cat([T0, T1], dim=1)  # two channels with maxima 1 and 3
    with torch.no_grad():
        attention.to_weights.weight.copy_(torch.tensor([[1.0, 10, 0, 0], [0, 0, 0, 0]]))
        attention.to_weights.bias.zero_()
    assert attention({0: T})[0].item() == 31.0


def test_layer_adds_the_skip_and_the_weighted_modules():
    layer = PathLayer([nn.Identity(), nn.Identity()], nn.Identity(), attention=PathAttention("peak", 2, 1, 4))
    out = layer(T1, (True, False))
    assert torch.equal(out, torch.relu(T1 + 3.0 * T1))  # tau = 3
    assert torch.equal(layer(T1, (True, True)), torch.relu(T1 + 2 * 3.0 * T1))
    assert torch.equal(layer(T1, (False, False)), torch.relu(T1))


def two_layer_net() -> PathNetwork:
    """Two scalar layers: q = W relu(a2 * relu(a1 * x)); all numbers positive, so that the relus do nothing."""
    layers = [PathLayer([nn.Linear(1, 1, bias=False) for _ in range(2)], None) for _ in range(2)]
    net = PathNetwork(layers, nn.Identity(), 1, seed=0)
    net.grow_head(2)
    with torch.no_grad():
        net.layers[0].parallel[0].weight.fill_(2.0)
        net.layers[1].parallel[0].weight.fill_(3.0)
        net.head.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.head.bias.zero_()
    return net


def hand_computed_squares(x: float, label: int) -> tuple[float, float]:
    """(d log f / d a1)^2 and (d log f / d a2)^2: q = (6x, 0), d log f / d q_0 = [label = 0] - softmax_0."""
    p0 = math.exp(6 * x) / (math.exp(6 * x) + 1)
    slope = (1 if label == 0 else 0) - p0
    return (slope * 3 * x) ** 2, (slope * 2 * x) ** 2


@pytest.mark.parametrize("limit", [0, 10**9], ids=["loop", "vmap"])
def test_fisher_information_is_the_maximum_over_images_not_a_batch_mean(limit, monkeypatch):
    monkeypatch.setattr("randpath.learning.fisher.VMAP_LIMIT", limit)
    net = two_layer_net()
    P = Path.of([[1, 0], [1, 0]])
    images = [(0.1, 0), (0.1, 1), (0.2, 1)]
    x = torch.tensor([[i[0]] for i in images])
    y = torch.tensor([i[1] for i in images])
    parameters = net.parameters_of_path(P)
    by_hand = np.array([hand_computed_squares(*i) for i in images])

    I = fisher_max(net, P, parameters, [(x[:2], y[:2]), (x[2:], y[2:])])  # noqa: E741
    assert [i.item() for i in I] == pytest.approx(by_hand.max(axis=0).tolist(), rel=1e-5)
    F = fisher_mean(net, P, parameters, [(x, y)])
    assert [f.item() for f in F] == pytest.approx(by_hand.mean(axis=0).tolist(), rel=1e-5)

    loss = nn.functional.cross_entropy(net(x, P), y)
    batch_mean_squared = [g.square().item() for g in torch.autograd.grad(loss, parameters)]
    assert batch_mean_squared[0] < 0.5 * by_hand[:, 0].max()  # another quantity


def test_mu_sat_is_the_log_of_final_over_early():
    assert relative_saturation([1.0, 3.0, 4.0, 12.0]) == pytest.approx(math.log(8.0 / 2.0))
    ten_and_ten = [2.0] * 10 + [99.0] * 5 + [6.0] * 10  # what lies between the first and last ten does not count
    assert relative_saturation(ten_and_ten) == pytest.approx(math.log(3.0))


def test_mu_sat_without_any_gradient_is_none_and_half_of_it_is_an_error():
    assert relative_saturation([0.0, 0.0]) is None
    for traces in ([0.0, 1.0], [1.0, 0.0], [math.nan, 1.0], [1.0, math.inf]):
        with pytest.raises(NotFinite, match="mu_sat"):
            relative_saturation(traces)


def saturation_of(net: PathNetwork, labels: list[int]) -> float | None:
    """mu_sat of the path through modules 0, with module 1 of the first layer, frozen, also on."""
    exemplars = Arrays(np.linspace(0.1, 0.3, len(labels), dtype=np.float32)[:, None], np.array(labels))
    return saturation(net, Path.of([[1, 0], [1, 0]]), Path.of([[1, 1], [1, 0]]), exemplars, Augment((0.0,), (1.0,)))


def test_mu_sat_reads_the_modules_of_P_and_runs_forward_on_P_ts():
    net = two_layer_net()
    with torch.no_grad():
        net.layers[0].parallel[1].weight.fill_(2.5)
    # q_0 = a2 (a1 + b) x = 3 (2 + 2.5) x: the gradient to a1 has the factor a2 = 3, that to a2 the factor a1 + b = 4.5.
    assert saturation_of(net, [0, 1, 1]) == pytest.approx(2 * math.log(4.5 / 3), rel=1e-5)


@pytest.mark.parametrize("margin", [30.0, 45.0, 48.5, 49.3, 60.0, 1000.0])
def test_mu_sat_of_perfectly_fitted_exemplars_is_a_number_or_none_and_no_error(margin):
    """The squares of such gradients are too small for float32."""
    net = two_layer_net()
    with torch.no_grad():
        net.layers[0].parallel[1].weight.fill_(2.5)
        net.head.weight.copy_(torch.tensor([[1.0], [2.0]]))
        net.head.bias.copy_(torch.tensor([margin, 0.0]))
    mu_sat = saturation_of(net, [0, 0, 0])
    assert mu_sat is None if margin == 1000 else mu_sat == pytest.approx(2 * math.log(4.5 / 3), rel=1e-3)


@pytest.mark.parametrize("weight", [0.0, 1.0, 4.5])
def test_a_step_goes_down_the_gradient_of_cross_entropy_plus_phi_times_distillation(weight):
    """One step of plain SGD of `train_candidate`, with a frozen module on, against a gradient made by torch alone."""
    net = Backbone("mlp", (3,), M=2, attention="none", width=4).build(0)
    net.grow_head(2)
    P_fixed, P = Path.of([[1, 0], [1, 0]]), Path.of([[0, 1], [0, 1]])
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 3, generator=generator), torch.tensor([0, 1, 2, 2, 2, 2])
    training = Training(epochs=1, batch=6, optimizer="sgd", lr=0.1, momentum=0.0, schedule="cosine")
    backbone = Backbone("mlp", (3,), M=2, attention="none", width=4)
    job = Job(
        setting=Setting(backbone, training, Augment((0.0,), (1.0,))), training=training,
        weights=dict(net.weights(P_fixed)), P_fixed=P_fixed, P_before=P_fixed, P_last=P_fixed, start="fresh",
        num_classes=3, data=Arrays(x.numpy(), y.numpy()), val=Arrays(x.numpy()[:0], y.numpy()[:0]),
        teacher=fold(net, P_fixed), phi=weight, temperature=2.0, log_counts=None, key=(0,), place=None,
    )  # fmt: skip
    stepped = train_candidate(job, 1, (0, P), quiet).weights

    with torch.no_grad():
        q_teacher = net(x, P_fixed)
    net.grow_head(3)
    q = net(x, P_fixed | P)
    log_p = torch.log_softmax(q, dim=1)
    L_ce = -(log_p[0, 0] + log_p[1, 1] + log_p[2:, 2].sum()) / 6
    old, teacher = torch.softmax(q[:, :2] / 2, dim=1), torch.softmax(q_teacher / 2, dim=1)
    L_dist = (teacher * (teacher.log() - old.log())).sum() / 6
    (L_ce + weight * L_dist).backward()
    for name in ("layers.0.parallel.1.1.weight", "layers.1.parallel.1.weight", "head.weight", "head.bias"):
        p = net.get_parameter(name)
        torch.testing.assert_close(stepped[name], p.detach() - 0.1 * p.grad, msg=name)


def test_cross_entropy():
    q = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    expected = (-math.log(3 / 4) - math.log(1 / 2)) / 2
    assert cross_entropy(q, torch.tensor([1, 0])).item() == pytest.approx(expected)


def test_balanced_softmax_adds_log_counts():
    counts = log_counts(np.array([0, 1, 1, 1]), 2)
    got = cross_entropy(torch.zeros(1, 2), torch.tensor([0]), counts).item()
    assert got == pytest.approx(-math.log(1 / 4))  # softmax(0 + log 1, 0 + log 3)


def test_smoothing_is_in_equal_parts_and_under_the_balanced_softmax_by_counts():
    log_p = [math.log(1 / 4), math.log(3 / 4)]
    q, label = torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([0])
    expected = -(0.9 * log_p[0] + 0.05 * log_p[0] + 0.05 * log_p[1])
    assert cross_entropy(q, label, smoothing=0.1).item() == pytest.approx(expected)
    counts = log_counts(np.array([0, 1, 1, 1]), 2)  # softmax(0 + log 1, 0 + log 3) is the same
    expected = -(0.9 * log_p[0] + 0.1 * (1 / 4 * log_p[0] + 3 / 4 * log_p[1]))
    assert cross_entropy(torch.zeros(1, 2), label, counts, 0.1).item() == pytest.approx(expected)
    # An answer that knows only how frequent the classes are has the least loss that such an answer can have.
    frequent = torch.zeros(4, 2, requires_grad=True)
    cross_entropy(frequent, torch.tensor([0, 1, 1, 1]), counts, 0.1).backward()
    assert frequent.grad.sum(dim=0).tolist() == pytest.approx([0, 0], abs=1e-7)


def test_distillation_is_over_old_classes_at_temperature_two():
    q = torch.tensor([[2 * math.log(3.0), 0.0, 50.0]])  # the third class is new and does not count
    q_teacher = torch.tensor([[0.0, 0.0]])
    student, teacher = (3 / 4, 1 / 4), (1 / 2, 1 / 2)
    expected = sum(t * math.log(t / s) for s, t in zip(student, teacher))
    assert distillation(q, q_teacher, 2.0).item() == pytest.approx(expected, rel=1e-5)
    twice = distillation(q.repeat(2, 1), q_teacher.repeat(2, 1), 2.0).item()
    assert twice == pytest.approx(expected, rel=1e-5)  # the mean over the batch


def test_controller():
    assert phi(5, 2.5, []) == 1  # no switch yet
    assert phi(2, 2.5, [3]) == 1  # before S_0
    assert phi(3, 2.5, [3]) == 1  # at S_0
    assert phi(4, 2.5, [3]) == 2.5
    assert phi(7, 2.5, [3, 5]) == 10  # counted from the first switch
