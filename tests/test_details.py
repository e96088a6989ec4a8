"""Details of the method that a one-line slip would change without any crash: each has a test here that would notice."""

import math
from dataclasses import FrozenInstanceError, replace
from inspect import signature

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.data.stream import Task, hold_out
from randpath.learning.memory import Memory
from randpath.learning.method import Work
from randpath.learning.objective import distillation
from randpath.learning.saturation import relative_saturation, saturation
from randpath.learning.train import Training, _optimizer
from randpath.methods import METHODS
from randpath.metrics import accuracy, mean_class_accuracy
from randpath.network.backbones import Backbone
from randpath.network.layers import PathAttention, PathLayer
from randpath.network.path import Path
from tests.checks import pictures, setting, task, tasks

# ---- saturation and switching


def test_early_and_final_are_ten_tensors_each():
    traces = [1.0] * 5 + [3.0] * 5 + [50.0] * 3 + [4.0] * 5 + [12.0] * 5
    assert relative_saturation(traces) == pytest.approx(math.log(4))


def test_mu_sat_by_a_plain_loop_over_normalised_images():
    """On a network of 21 tensors, with one frozen module on: gradients, squares, maxima and traces by torch alone."""
    net = Backbone("compact", (8, 8, 1), M=2, attention="peak", width=8).build(0)
    net.grow_head(3)
    P, P_ts = Path.of([[1, 0]] * 4), Path.of([[1, 0], [1, 1], [1, 0], [1, 0]])
    exemplars = pictures(range(3), each=2)
    mean, std = 0.3, 0.2
    measured = saturation(net, P, P_ts, exemplars, Augment((mean,), (std,)))

    net.eval()
    tensors = [p for layer in net.layers for p in layer.parallel[0].parameters()]
    largest = [torch.zeros_like(p, dtype=torch.float64) for p in tensors]
    for item, label in zip(exemplars.items, exemplars.labels):
        x = (torch.from_numpy(item).float().permute(2, 0, 1)[None] / 255 - mean) / std
        log_f = torch.log_softmax(net(x, P_ts), dim=1)[0, int(label)]
        for present, g in zip(largest, torch.autograd.grad(log_f, tensors)):
            torch.maximum(present, g.double().square(), out=present)
    traces = [float(i.sum()) for i in largest]
    assert len(traces) == 21
    assert measured == pytest.approx(math.log(sum(traces[-10:]) / sum(traces[:10])), rel=1e-4)


def test_a_path_whose_mu_sat_is_just_the_threshold_is_switched():
    mu_sat = METHODS["rps"](setting(), N=1, threshold=1e9).learn(task(1, range(2)), Work()).saturation
    at = METHODS["rps"](setting(), N=1, threshold=mu_sat).learn(task(1, range(2)), Work())
    above = METHODS["rps"](setting(), N=1, threshold=math.nextafter(mu_sat, 1e9)).learn(task(1, range(2)), Work())
    assert (at.switched, above.switched) == (True, False)


def test_the_defaults_are_the_papers():
    options = signature(METHODS["rps"]).parameters
    assert options["N"].default == 8
    assert options["threshold"].default == 0
    assert options["temperature"].default == 2
    assert signature(distillation).parameters["temperature"].default == 2
    assert (Training().epochs, Training().batch, Training().optimizer, Training().lr) == (50, 128, "adam", 1e-3)
    assert Backbone("mlp", (4,), width=1).build(0).M == 8


def test_a_fit_has_one_thread_unless_more_are_asked_for():
    assert (setting().threads, setting().search_threads) == (1, 1)


def test_what_all_fits_of_a_task_share_cannot_be_changed_by_one():
    for shared, name in ((setting(), "budget"), (Work(), "place")):
        with pytest.raises(FrozenInstanceError):
            setattr(shared, name, None)


def test_the_first_task_draws_n_paths_like_a_switch():
    learned = METHODS["rps"](setting(), N=3).learn(task(1, range(2)), Work())
    assert {line["candidate"] for line in learned.epochs} == {0, 1, 2}


# ---- which candidate wins


def noisy(k: int, sizes: dict[int, int], seed: int) -> Task:
    """Pictures that are hard to tell apart, in classes of different sizes."""
    rng = np.random.default_rng([seed, k])
    labels = np.repeat(list(sizes), list(sizes.values()))
    items = rng.integers(0, 180, (len(labels), 8, 8, 1))
    for i, c in enumerate(labels):
        items[i, c, :, 0] += 35
    data = Arrays(items.astype(np.uint8), labels)
    train, val = hold_out(labels, 0)
    new = task(k, range(min(sizes), max(sizes) + 1))
    return replace(new, train=data.take(train), val=data.take(val))


def answers(method, data: Arrays) -> np.ndarray:
    q = method.inference()(method.setting.augment.plain(torch.from_numpy(data.items)))
    return q.argmax(dim=1).numpy()


def test_the_winner_is_the_candidate_that_ends_best_on_all_validation_images_class_by_class():
    """After a switch: on P_ts, at the last epoch, over old and new classes. No other rule gives the same scores."""
    others = {"training images": 0, "the new classes": 0, "plain accuracy": 0, "P alone": 0, "the best epoch": 0}
    for seed in range(24):  # with which of them the rules part depends on the machine's rounding
        s = replace(setting(60, seed=seed), training=Training(epochs=6, batch=16, lr=0.03))
        method = METHODS["rps"](s, N=4, switch_every=1)
        method.learn(noisy(1, {0: 60, 1: 60, 2: 20}, seed), Work())
        kept = method.state_dict().tensors["memory_val"]
        second = noisy(2, {3: 80, 4: 20}, seed)
        learned = method.learn(second, Work())

        val = Arrays(
            np.concatenate([kept["items"].numpy(), second.val.items]),
            np.concatenate([kept["labels"].numpy(), second.val.labels]),
        )
        lines = {i: [line["validation"] for line in learned.epochs if line["candidate"] == i] for i in range(4)}
        ends = [scores[-1] for scores in lines.values()]
        guess = answers(method, val)
        score = mean_class_accuracy(val.labels, guess)
        assert score == pytest.approx(max(ends))
        others["training images"] += score != mean_class_accuracy(second.train.labels, answers(method, second.train))
        others["the new classes"] += score != mean_class_accuracy(second.val.labels, answers(method, second.val))
        others["plain accuracy"] += score != accuracy(val.labels, guess)
        x = s.augment.plain(torch.from_numpy(val.items))
        with torch.no_grad():
            q = method.net(x, method.P)
        others["P alone"] += score != mean_class_accuracy(val.labels, q.argmax(dim=1).numpy())
        peaks = [max(scores) for scores in lines.values()]
        others["the best epoch"] += ends[int(np.argmax(peaks))] != max(ends)
        if seed >= 3 and all(others.values()):
            break
    assert all(others.values()), f"these tasks do not tell our rule from another: {others}"


# ---- what is trained


@pytest.mark.parametrize("attention", ["peak", "conv", "channel"])
def test_skips_and_the_parameters_of_the_attention_learn_in_every_task(attention):
    s = setting(backbone="compact")
    method = METHODS["rps"](replace(s, backbone=replace(s.backbone, attention=attention)), N=1, switch_every=1)
    before: dict[str, Tensor] = {}
    for one in tasks(method):
        method.learn(one, Work())
        weights = method.state_dict().tensors["weights"]
        learned = {n: t.clone() for n, t in weights.items() if (".skip." in n or ".attention." in n) and "num" not in n}
        assert any(".attention." in name for name in learned) == (attention != "peak")
        for name in before:
            assert not torch.equal(before[name], learned[name]), name
        before = learned


@pytest.mark.parametrize(("kind", "tau"), [("peak", 6.0), ("mean", 4.0)])
def test_the_weight_tau_of_a_module_has_a_gradient_too(kind, tau):
    """y = sum(tau T), T = w (1, 3) with w = 2: tau = 3 w or 2 w, so dy/dw = 2 * (3 or 2) * (1 + 3) * w."""
    module = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(module.weight, 2.0)
    layer = PathLayer([module], None, attention=PathAttention(kind, 1, 1, 2))
    y = layer(torch.tensor([[[[1.0, 3.0]]]]), (True,))
    assert y.flatten().tolist() == [tau * 2, tau * 6]
    y.sum().backward()
    assert module.weight.grad.item() == 2 * (tau / 2) * 4 * 2


# ---- the networks


def test_the_mlp_has_two_layers_of_400_neurons_and_a_skip_around_the_second():
    net = Backbone("mlp", (4, 4, 1), M=1, attention="none").build(0)
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    W1, b1, W2, b2 = net.parameters_of_path(Path.full(2, 1))
    assert W1.shape == (400, 16)
    assert W2.shape == (400, 400)
    h = torch.relu(x.flatten(1) @ W1.T + b1)
    torch.testing.assert_close(net.features(x), torch.relu(h @ W2.T + b2 + h))


def test_the_cifar_network_has_the_papers_widths():
    net = Backbone("resnet18_cifar", (32, 32, 3), M=1).build(0)
    widths = [layer.parallel[0][0].out_channels for layer in net.layers]
    assert widths == [64, 64, 64, 128, 128, 256, 256, 512, 512]


def test_the_imagenet_network_is_the_standard_resnet18():
    """Stem 7 x 7 and max pooling, four stages of two blocks, average pooling: by torch's functions alone."""
    net = Backbone("resnet18_imagenet", (64, 64, 3), M=1, attention="none", width=8).build(0).eval()
    weights = net.state_dict()

    def conv_bn(x: Tensor, name: str, at: int, stride: int, padding: int) -> Tensor:
        bn = [weights[f"{name}.{at + 1}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(F.conv2d(x, weights[f"{name}.{at}.weight"], stride=stride, padding=padding), *bn)

    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    h = F.max_pool2d(torch.relu(conv_bn(x, "layers.0.parallel.0", 0, 2, 3)), 3, 2, 1)
    for l in range(1, 9):  # noqa: E741
        stride = 2 if l in (3, 5, 7) else 1
        inner = torch.relu(conv_bn(h, f"layers.{l}.parallel.0", 0, stride, 1))
        skip = h if stride == 1 else conv_bn(h, f"layers.{l}.skip", 0, stride, 0)
        h = torch.relu(conv_bn(inner, f"layers.{l}.parallel.0", 3, 1, 1) + skip)
    with torch.no_grad():
        torch.testing.assert_close(net.features(x), h.mean(dim=(2, 3)), atol=1e-5, rtol=1e-4)
    assert Backbone("resnet18_imagenet", (64, 64, 3), M=1).build(0).head.num_features == 512


def test_resnet32_is_the_fields():
    """463,504 parameters before the classifier, and skips that learn nothing; by torch's functions alone."""
    net = Backbone("resnet32", (8, 8, 3), M=1, attention="none").build(0).eval()
    assert sum(p.numel() for p in net.parameters()) == 463_504
    weights = net.state_dict()

    def conv_bn(x: Tensor, name: str, at: int, stride: int) -> Tensor:
        bn = [weights[f"{name}.{at + 1}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(F.conv2d(x, weights[f"{name}.{at}.weight"], stride=stride, padding=1), *bn)

    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    h = torch.relu(conv_bn(x, "layers.0.parallel.0", 0, 1))
    for l in range(1, 16):  # noqa: E741
        stride = 2 if l in (6, 11) else 1
        skip = h if stride == 1 else torch.cat([h[:, :, ::2, ::2], torch.zeros_like(h[:, :, ::2, ::2])], dim=1)
        inner = torch.relu(conv_bn(h, f"layers.{l}.parallel.0", 0, stride))
        h = torch.relu(conv_bn(inner, f"layers.{l}.parallel.0", 3, 1) + skip)
    with torch.no_grad():
        torch.testing.assert_close(net.features(x), h.mean(dim=(2, 3)), atol=1e-5, rtol=1e-4)


def test_the_fields_schedule_and_momentum_can_be_set():
    """Divided by ten after 80 and 120 of 160 epochs, momentum without Nesterov."""
    training = Training(epochs=160, lr=0.1, optimizer="sgd", halve_after=(0.5, 0.75), divide_by=10.0, nesterov=False)
    assert [round(training.lr_at(epoch, 1), 6) for epoch in (0, 79, 80, 119, 120)] == [0.1, 0.1, 0.01, 0.01, 0.001]
    (plain,), (nesterov,) = (
        [
            g["nesterov"]
            for g in _optimizer(
                nn.Identity(), [nn.Parameter(torch.ones(2, 2))], replace(training, nesterov=on)
            ).param_groups
        ][:1]
        for on in (False, True)
    )
    assert (plain, nesterov) == (False, True)


@pytest.mark.parametrize(("head_decay", "expected"), [(None, 0.75), (0.1, 0.95), (0.0, 1.0)])
def test_the_classifier_may_have_a_weight_decay_of_its_own(head_decay, expected):
    """One step without a gradient, rate 0.5: what has no decay of its own becomes 1 - 0.5 * 0.5 = 0.75 of itself."""
    net = Backbone("compact", (8, 8, 3), M=1, width=4).build(0)
    net.grow_head(2)
    params = net.train_only(Path.full(net.L, 1))
    before = {name: p.detach().clone() for name, p in params.items()}
    training = Training(optimizer="sgd", lr=0.5, momentum=0.0, weight_decay=0.5, head_decay=head_decay)
    for p in params.values():
        p.grad = torch.zeros_like(p)
    _optimizer(net, list(params.values()), training).step()
    for name, p in params.items():
        factor = expected if name == "head.weight" else 0.75 if p.ndim > 1 else 1.0
        torch.testing.assert_close(p.detach(), factor * before[name], msg=name)


def test_one_cycle_rises_and_falls_by_hand():
    """Ten steps, of which two rise: 1/3 and 2/3 of the way to the highest rate; the other eight fall to 1/8 of it."""
    training = Training(epochs=5, lr=0.5, schedule="one_cycle", warm_up=0.2)
    wanted = [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert [training.lr_at(step, 2) for step in range(10)] == pytest.approx([0.5 * share for share in wanted])


# ---- the memory and the loss


def test_exemplars_are_drawn_at_random():
    """Each of 20 images is kept about as often as any other, over 200 seeds of 5 draws: 50 times on average."""
    items = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1)
    data = Arrays(items, np.zeros(20, np.int64))
    counts = np.zeros(20, int)
    for seed in range(200):
        memory = Memory(5)
        memory.update(data, data.take(np.array([], np.int64)), (seed, 1))
        counts[memory.train[0].tensors()["items"].ravel()] += 1
    assert counts.sum() == 1000
    assert counts.min() >= 25
    assert counts.max() <= 75


@pytest.mark.parametrize("name", ["rps", "rehearsal"])
@pytest.mark.parametrize("balanced", [False, True])
def test_the_balanced_loss_counts_old_and_new_images(name, balanced):
    """With a learning rate of 0 and no augmentation, the loss of an epoch is that of the network as it stands."""
    s = replace(
        setting(20),
        training=Training(epochs=1, batch=1000, optimizer="sgd", lr=0.0),
        augment=Augment((0.3,), (0.3,), padding=0, degrees=0.0),
    )
    method = METHODS[name](s, balanced=balanced, **({"N": 1} if name == "rps" else {}))
    first, second = task(1, range(2)), task(2, range(2, 4))
    method.learn(first, Work())
    kept = method.state_dict().tensors["memory_train"]
    line = method.learn(second, Work()).epochs[0]

    x = torch.cat([kept["items"], torch.from_numpy(second.train.items)])
    y = torch.cat([kept["labels"], torch.from_numpy(second.train.labels)])
    counts = torch.bincount(y, minlength=4)
    assert counts.tolist() == [9, 9, 18, 18]
    q = method.inference()(s.augment.plain(x)) + (counts.float().log() if balanced else 0)
    assert line["loss_ce"] == pytest.approx(F.cross_entropy(q, y).item(), rel=1e-5)


def test_the_compact_network_has_its_widths():
    net = Backbone("compact", (32, 32, 3), M=1).build(0)
    assert [layer.parallel[0][0].out_channels for layer in net.layers] == [24, 48, 128, 192]
    assert net.head.num_features == 192
