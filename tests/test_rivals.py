"""The comparison methods against cases computed by hand, or by another solver."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.data.stream import Task
from randpath.errors import UsageError
from randpath.learning.importance import fisher, penalty, sample, sensitivity
from randpath.learning.method import Setting, Work
from randpath.learning.objective import double_distillation, soft_cross_entropy
from randpath.learning.projection import non_negative_minimum, project
from randpath.learning.train import Training
from randpath.methods import METHODS
from randpath.network.backbones import Backbone
from randpath.network.columns import Columns
from randpath.network.fold import fold
from randpath.network.seeded import seeded
from randpath.network.vae import VAE, Decoder, negative_elbo
from tests.checks import pictures, setting, task, tasks

# ---- importance


def logistic_regression() -> tuple[nn.Linear, Tensor, Tensor]:
    net = nn.Linear(3, 2)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=g)
    with torch.no_grad():
        net.weight.copy_(torch.randn(2, 3, generator=g))
        net.bias.copy_(torch.randn(2, generator=g))
    return net, x, torch.arange(20) % 2


def test_the_fisher_information_of_a_logistic_regression_has_its_closed_form():
    """F of weight (c, j) is the mean of p_c (1 - p_c) x_j^2; with true labels, of ([y = c] - p_c)^2 x_j^2."""
    net, x, y = logistic_regression()
    p = net(x).softmax(dim=1).detach().double()
    spread = p * (1 - p)
    F_model = fisher(net, iter([(x[:7], y[:7]), (x[7:], y[7:])]), 2)
    torch.testing.assert_close(F_model["weight"].double(), spread.T @ x.double().square() / 20, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(F_model["bias"].double(), spread.mean(dim=0), rtol=1e-5, atol=1e-8)
    miss = (F.one_hot(y, 2) - p).square()
    F_true = fisher(net, iter([(x, y)]), 2, "true")
    torch.testing.assert_close(F_true["weight"].double(), miss.T @ x.double().square() / 20, rtol=1e-5, atol=1e-8)


def test_mas_measures_the_mean_size_of_each_images_own_gradient():
    """q = W x + b: d |q|^2 / d W_cj = 2 q_c x_j. The size of the mean gradient would be smaller."""
    net, x, y = logistic_regression()
    q = net(x).detach()
    omega = sensitivity(net, iter([(x, y)]))
    torch.testing.assert_close(omega["weight"], (2 * q.abs()).T @ x.abs() / 20)
    torch.testing.assert_close(omega["bias"], 2 * q.abs().mean(dim=0))


def test_the_mean_over_one_image_is_that_images():
    """q = 3 x, x = 2: d q^2 / d w = 2 * 6 * 2."""
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, 3.0)
    assert sensitivity(net, iter([(torch.tensor([[2.0]]), torch.tensor([0]))]))["weight"].item() == 24


def test_a_sample_has_no_image_twice():
    data = Arrays(np.arange(300, dtype=np.float32)[:, None], np.zeros(300, np.int64))
    plain = Augment((0.0,), (1.0,))
    for images, n in ((None, 300), (500, 300), (130, 130)):
        drawn = torch.cat([x for x, _ in sample(data, plain, "cpu", images, 0)]).flatten().tolist()
        assert len(drawn) == len(set(drawn)) == n
    first, second = (next(sample(data, plain, "cpu", 9, seed))[0] for seed in (0, 1))
    assert not torch.equal(first, second)


def vectors(classes: range, each: int = 6) -> Arrays:
    rng = np.random.default_rng(classes.start)
    return Arrays(rng.random((each * len(classes), 3), np.float32), np.repeat(list(classes), each))


def vector_task(k: int, classes: range) -> Task:
    data = vectors(classes)
    return Task(k, classes.stop, classes, data, data.take(np.array([], np.int64)))


def vector_setting(epochs: int, lr: float = 0.1) -> Setting:
    return Setting(
        backbone=Backbone("mlp", (3,), width=4),
        training=Training(epochs=epochs, batch=100, optimizer="sgd", lr=lr, momentum=0.0, halve_after=()),
        augment=Augment((0.0,), (1.0,)),
        budget=12,
    )


def weights(method) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in method.net.named_parameters()}


def gradient(method, net: nn.Module, data: Arrays) -> dict[str, Tensor]:
    """Of the mean cross-entropy, by torch alone."""
    loss = F.cross_entropy(net(torch.from_numpy(data.items)), torch.from_numpy(data.labels))
    return dict(zip(dict(net.named_parameters()), torch.autograd.grad(loss, list(net.parameters()))))


def test_ewc_adds_half_the_strength_times_the_fisher_weighted_distance():
    """The second step of task 2, by hand: the first leaves theta* along the cross-entropy's gradient alone."""
    strength, lr = 3.0, 0.1
    for name in ("ewc", "online_ewc"):
        one, two = (METHODS[name](vector_setting(1, lr), strength=strength) for _ in range(2))
        for method in (one, two):
            method.learn(vector_task(1, range(2)), Work())
        star = weights(one)
        files = one.carried
        importance = files["task-0001-fisher"] if name == "ewc" else files["fisher"]
        two.setting = replace(two.setting, training=vector_setting(2, lr).training)
        second = vector_task(2, range(2, 4))
        one.learn(second, Work())
        two.learn(second, Work())
        after_one, after_two = weights(one), weights(two)
        g = gradient(one, one.net, second.train)
        for key in ("layers.0.parallel.0.1.weight", "layers.1.parallel.0.weight"):
            pull = strength * importance[key] * (after_one[key] - star[key])
            assert pull.abs().max() > 0
            torch.testing.assert_close(after_two[key], after_one[key] - lr * (g[key] + pull), msg=f"{name} {key}")


def test_si_adds_up_minus_gradient_times_change():
    """With SGD a step changes theta by -lr g, so omega = lr (g_1^2 + g_2^2), and Omega divides by the distance."""
    lr, damping = 0.1, 0.01
    si = METHODS["si"](vector_setting(2, lr), damping=damping)
    first = vector_task(1, range(2))
    start = si.begin(first)
    theta_0 = {name: p.detach().clone() for name, p in start.named_parameters()}
    g_1 = gradient(si, start, first.train)
    with torch.no_grad():
        for name, p in start.named_parameters():
            p -= lr * g_1[name]
    g_2 = gradient(si, start, first.train)
    si.learn(first, Work())
    for name, theta in weights(si).items():
        omega = lr * (g_1[name].square() + g_2[name].square())
        distance = (theta - theta_0[name]).square()
        torch.testing.assert_close(si.carried["omega"][name], omega / (distance + damping), rtol=1e-4, atol=1e-7)


def test_si_measures_the_gradient_of_the_cross_entropy_alone():
    """A huge penalty changes where the parameters go, but not what counts as the loss that they took off."""
    lr = 1e-4
    weak, strong = (METHODS["si"](vector_setting(2, lr), strength=c, damping=1.0) for c in (0.0, 100.0))
    for method in (weak, strong):
        method.learn(vector_task(1, range(2)), Work())
        method.learn(vector_task(2, range(2, 4)), Work())
    for name in weights(weak):
        torch.testing.assert_close(weak.carried["omega"][name], strong.carried["omega"][name], rtol=0.01, atol=1e-9)


def test_rwalks_score_is_loss_taken_off_per_distance():
    """One step per interval, two of them: F <- alpha F_batch + (1 - alpha) F, s += lr g^2 / (F (lr g)^2 / 2 + eps)."""
    lr, alpha, epsilon = 0.1, 0.7, 0.01
    rwalk = METHODS["rwalk"](vector_setting(2, lr), alpha=alpha, epsilon=epsilon, interval=1)
    first = vector_task(1, range(2))
    net = rwalk.begin(first)
    names = [name for name, _ in net.named_parameters()]
    F_running = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    score = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    x, y = torch.from_numpy(first.train.items), torch.from_numpy(first.train.labels)
    for _ in range(2):
        g = gradient(rwalk, net, first.train)
        with torch.no_grad():
            for name, p in net.named_parameters():
                p -= lr * g[name]
        squares = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
        for xi, yi in zip(x, y):
            log_p = torch.log_softmax(net(xi[None]), dim=1)[0, yi]
            for name, gi in zip(names, torch.autograd.grad(log_p, list(net.parameters()))):
                squares[name] += gi.square() / len(x)
        for name in names:
            F_running[name] = alpha * squares[name] + (1 - alpha) * F_running[name]
            score[name] += lr * g[name].square() / (F_running[name] * (lr * g[name]).square() / 2 + epsilon)
    rwalk.learn(first, Work())
    for name in names:
        torch.testing.assert_close(rwalk.carried["fisher"][name], F_running[name], rtol=1e-4, atol=1e-8)
        torch.testing.assert_close(rwalk.carried["score"][name], score[name], rtol=1e-3, atol=1e-7)


def test_the_penalty_leaves_new_rows_of_the_classifier_free():
    for name in ("ewc", "online_ewc", "si", "mas", "rwalk"):
        method = METHODS[name](setting())
        for one in tasks(method)[:2]:
            method.learn(one, Work())
        grown = {file: t["head.bias"] for file, t in method.carried.items()}
        if name == "ewc":
            assert grown["task-0001-fisher"].shape == (2,) or grown["task-0001-fisher"][2:].eq(0).all()
            assert grown["task-0002-fisher"].shape == (4,)
        else:
            assert all(len(t) == 4 for t in grown.values())


def test_fixed_representation_moves_the_new_rows_of_the_classifier_alone():
    s = setting(backbone="compact")
    s = replace(s, training=replace(s.training, optimizer="adamw", weight_decay=0.1))
    method = METHODS["fixedrep"](s)
    method.learn(task(1, range(2)), Work())
    before = {name: t.clone() for name, t in method.net.state_dict().items()}
    learned = method.learn(task(2, range(2, 4)), Work())
    after = method.net.state_dict()
    for name, tensor in before.items():
        if name.startswith("head."):
            assert torch.equal(after[name][:2], tensor), name
        else:
            assert torch.equal(after[name], tensor), f"{name}, batch-norm statistics included"
    assert learned.parameters_trained == 2 * (method.net.head.weight.shape[1] + 1)


# ---- GEM


def test_gems_projection_is_that_of_another_solver_on_100_random_cases():
    """The dual as non-negative least squares: |A v + b|^2 with A = G^T (v >= 0), b = g. Then v >= margin."""
    turned = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        rows, d, margin = int(draw.integers(1, 9)), int(draw.integers(3, 40)), float(draw.choice([0.0, 0.5]))
        G = draw.normal(size=(rows, d)) * draw.choice([1e-4, 1.0, 1e3])
        g = draw.normal(size=d)
        ours = project(torch.from_numpy(g), torch.from_numpy(G), margin).numpy()
        if (G @ g >= 0).all():
            assert np.array_equal(ours, g)
            continue
        turned += 1
        w, _ = nnls(G.T, -(g + margin * G.sum(axis=0)))
        np.testing.assert_allclose(ours, g + G.T @ (w + margin), rtol=1e-6, atol=1e-8 * np.abs(G).max())
        if margin == 0:
            assert (G @ ours >= -1e-7 * np.abs(G).max()).all()
    assert turned > 60


def test_two_constraints_by_hand():
    """Against g_1 = (1, 0) and g_2 = (0, 1) nothing is left of (-1, -2), and the second half of (-1, 2)."""
    g = torch.tensor([-1.0, -2.0])
    assert project(g, torch.eye(2)).tolist() == [0.0, 0.0]
    assert project(torch.tensor([-1.0, 2.0]), torch.eye(2)).tolist() == [0.0, 2.0]
    assert non_negative_minimum(np.eye(2), np.array([1.0, -3.0])).tolist() == [0.0, 3.0]


def test_the_minimum_is_found_however_small_the_gradients():
    """1/2 w^T Q w + c^T w has its minimum where w_1 = 2 / 2, and w_2 = 0 because it would be negative."""
    tiny = 1e-20
    w = non_negative_minimum(tiny * np.diag([2.0, 4.0]), tiny * np.array([-2.0, 3.0]))
    np.testing.assert_allclose(w, [1.0, 0.0], rtol=1e-9)


@pytest.mark.parametrize("r", [3.0, 1.1, 1.3, 1.7])
def test_what_rounding_leaves_of_a_slope_lets_nothing_in(r):
    """Two parallel constraints: r w_2 = 1000 takes all of the slope, and w_1 stays where it was."""
    w = non_negative_minimum(np.array([[1.0, r], [r, r * r]]), np.array([-1000.0, -1000.0 * r]))
    np.testing.assert_allclose(w, [0.0, 1000 / r], rtol=1e-9)


def test_a_step_back_to_the_boundary_by_hand_however_small():
    """A enters first (slope 1), then B (0.4); together they want A = -3, so that A leaves; B alone is 0.9 / 0.3."""
    Q, c = np.array([[1.0, 0.5], [0.5, 0.3]]), np.array([-1.0, -0.9])
    for size in (1.0, 1e-6):
        np.testing.assert_allclose(non_negative_minimum(Q, size * c), [0.0, 3.0 * size], rtol=1e-9, atol=1e-15)


def test_a_step_of_gem_does_not_raise_the_loss_on_old_exemplars_to_first_order():
    lr = 1e-3
    steps = {}
    for name, options in (("gem", {"margin": 0.0, "exemplars": None}), ("finetune", {})):
        method = METHODS[name](
            replace(vector_setting(30), training=replace(vector_setting(30).training, lr=0.3)), **options
        )
        method.learn(vector_task(1, range(2)), Work())
        if name == "gem":
            start = {n: t.clone() for n, t in method.net.state_dict().items()}
            kept = list(method.memory.train.values())
            old = Arrays(np.concatenate([d.items for d in kept]), np.concatenate([d.labels for d in kept]))
        else:
            method.net.load_weights(start)
        method.setting = replace(method.setting, training=vector_setting(1, lr).training)
        second = vector_task(2, range(2, 4))
        begun = method.begin(second)
        g_old = gradient(method, begun, old)
        before = {n: p.detach().clone() for n, p in begun.named_parameters()}
        method.learn(second, Work())
        steps[name] = sum(float(((p.detach() - before[n]) * g_old[n]).sum()) for n, p in method.net.named_parameters())
    assert steps["finetune"] > 1e-6, "fine-tuning goes up the old loss"
    assert steps["gem"] <= 1e-7 + 1e-3 * steps["finetune"]


def test_the_penalty_by_hand():
    params = {"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([[2.0]])}
    anchor = {"a": torch.tensor([0.0, 1.0]), "b": torch.tensor([[2.0]])}
    importance = {"a": torch.tensor([2.0, 0.25]), "b": torch.tensor([[9.0]])}
    assert math.isclose(penalty(params, anchor, importance).item(), 2 * 1 + 0.25 * 4)


# ---- generative replay


def test_the_elbo_by_hand():
    """One pixel of 1 and a decoder that always says logit 0: log 2 nats, and the divergence of q(z) from N(0, 1)."""
    decoder = Decoder((1, 1, 1), 2, 1)
    for p in decoder.parameters():
        nn.init.zeros_(p)
    latent = torch.tensor([[0.5, math.log(4.0)]])  # mu, log sigma^2
    got = negative_elbo(torch.ones(1, 1, 1, 1), latent, decoder, np.random.default_rng(0)).item()
    assert math.isclose(got, math.log(2) + (0.25 + 4 - 1 - math.log(4)) / 2, rel_tol=1e-6)


def test_a_vae_learns_to_draw_what_it_was_shown():
    """Two pictures, black left or black right: what it draws is near the one or the other."""
    vae = seeded(lambda: VAE((4, 4, 1), hidden=32, latent=4), 0)
    x = torch.zeros(16, 1, 4, 4)
    x[:8, :, :, :2], x[8:, :, :, 2:] = 1, 1
    optimizer = torch.optim.Adam(vae.parameters(), 5e-3)
    for step in range(300):
        optimizer.zero_grad()
        vae(x, np.random.default_rng(step)).backward()
        optimizer.step()
    drawn = vae.decoder.sample(50, np.random.default_rng(1))
    away = torch.stack([(drawn - x[i]).abs().mean(dim=(1, 2, 3)) for i in (0, 8)])
    assert away.min(dim=0).values.mean() < 0.1
    assert (away.argmin(dim=0) == 0).float().mean().item() == pytest.approx(0.5, abs=0.3)


def test_soft_cross_entropy_and_double_distillation_by_hand():
    q, q_teacher = torch.tensor([[2 * math.log(3.0), 0.0, 0.0]]), torch.tensor([[2 * math.log(4.0), 0.0]])
    target, student = (0.8, 0.2), (3 / 5, 1 / 5)  # softmax of q / 2 over three classes
    expected = -4 * sum(t * math.log(s) for t, s in zip(target, student))
    assert soft_cross_entropy(q, q_teacher, 2.0).item() == pytest.approx(expected, rel=1e-6)
    got = double_distillation(torch.zeros(2, 3), torch.tensor([[4.0, 2.0], [1.0, 1.0]]), torch.tensor([[7.0], [3.0]]))
    assert got.item() == pytest.approx((1 + 1 + 0 + 0 + 0 + 0) / 6)


@pytest.mark.parametrize("name", ["dgr", "rtf"])
def test_a_generative_method_refuses_pictures_it_cannot_draw(name):
    s = setting()
    for shape in ((32, 32, 3), (64, 64, 1), (64,)):
        with pytest.raises(UsageError, match="one channel and at most 32 x 32"):
            METHODS[name](replace(s, backbone=replace(s.backbone, shape=shape)))
    with pytest.raises(UsageError, match=f"{name} draws them in one size") as refused:
        METHODS[name](replace(s, training=replace(s.training, small_side=4)))
    assert refused.value.next == "--set training.small_side=null"


@pytest.mark.parametrize("name", ["dgr", "rtf"])
def test_replayed_pictures_keep_an_old_task_alive(name):
    """Nothing but weights is kept, and yet the classes of the first task are known after the second."""
    still = Augment((0.3,), (0.3,), padding=0, degrees=0.0)
    s = replace(setting(0), training=Training(epochs=120, batch=16, lr=3e-3), augment=still)
    method = METHODS[name](s, hidden=64, latent=8)
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    test = pictures(range(2), seed=1)
    q = method.inference()(s.augment.plain(torch.from_numpy(test.items)))
    assert (q.argmax(1).numpy() == test.labels).mean() > 0.7


def test_rtf_takes_pixels_where_others_take_normalised_pictures():
    method = METHODS["rtf"](setting(0))
    method.learn(tasks(method)[0], Work())
    x = method.setting.augment.plain(torch.from_numpy(pictures(range(2)).items))
    answer, bare = method.inference(), fold(method.net, method.path)
    x01 = torch.from_numpy(pictures(range(2)).items).movedim(-1, 1) / 255
    torch.testing.assert_close(answer(x), bare(x01))
    torch.testing.assert_close(answer.features(x), bare.features(x01))
    assert not torch.allclose(answer(x), bare(x), atol=1e-3)


def test_a_method_that_cannot_work_says_so_before_it_starts():
    with pytest.raises(UsageError, match="pictures of other things"):
        METHODS["dmc"](replace(setting(), auxiliary=None))
    with pytest.raises(UsageError, match="needs exemplars"):
        METHODS["gem"](setting(0))


@pytest.mark.parametrize("name", ["finetune", "lwf", "ewc", "online_ewc", "si", "mas", "rwalk"])
def test_a_method_that_keeps_no_images_says_once_that_it_forgets(name):
    method = METHODS[name](setting())
    notes = [method.learn(one, Work()).notes for one in tasks(method)]
    assert [len(told) for told in notes] == [1, 0, 0]
    assert "known to forget" in notes[0][0]
    assert "95.59 %" in notes[0][0]


# ---- progressive networks


@pytest.mark.parametrize("backbone", ["mlp", "compact"])
def test_earlier_columns_stand_still_and_feed_the_new_one(backbone):
    method = METHODS["progressive"](setting(backbone=backbone))
    first, second, _ = tasks(method)
    method.learn(first, Work())
    before = {name: t.clone() for name, t in method.columns.state_dict().items()}
    method.learn(second, Work())
    after = method.columns.state_dict()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), f"{name}, batch-norm statistics included"
    lateral = [t for name, t in after.items() if "columns.1.lateral" in name]
    assert len(lateral) == method.columns.columns[0].net.L - 1
    assert all(t.abs().max() > 0 for t in lateral)


def test_two_columns_by_hand():
    """MLP of width 4, vectors of 3: h2 of column 2 takes U h1 of column 1 on top of its own h1."""
    columns = Columns(Backbone("mlp", (3,), M=1, attention="none", width=4), 0, [2, 1])
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        columns.columns[1].lateral[0][0].weight.copy_(torch.randn(4, 4, generator=g))
    x = torch.randn(5, 3, generator=g)
    first, second = (c.net for c in columns.columns)

    def layer(net, l, h):  # noqa: E741
        module = net.layers[l].parallel[0]
        linear = module[1] if l == 0 else module
        return torch.relu(h @ linear.weight.T + linear.bias + (h if l else 0))

    h1, g1 = layer(first, 0, x), layer(second, 0, x)
    h2, g2 = layer(first, 1, h1), layer(second, 1, g1 + h1 @ columns.columns[1].lateral[0][0].weight.T)
    torch.testing.assert_close(columns(x), torch.cat([first.head(h2), second.head(g2)], dim=1))
    torch.testing.assert_close(columns.features(x), torch.cat([h2, g2], dim=1))
