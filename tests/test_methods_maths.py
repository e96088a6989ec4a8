"""What each comparison method computes, against cases worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from randpath.data.augment import Augment
from randpath.errors import UsageError
from randpath.learning.method import Work
from randpath.learning.plain import grown
from randpath.learning.train import Training
from randpath.methods.der import DER
from randpath.methods.gem import GEM
from randpath.methods.icarl import ICaRL, NearestMean, targets
from randpath.methods.lwf import LwF
from randpath.network.layers import PathNetwork
from tests.checks import setting, task, tasks


class Itself(nn.Module):
    """An extractor whose features are its input."""

    def features(self, x):
        return x


def test_icarl_answers_by_the_nearest_mean_of_unit_features():
    nearest = NearestMean(Itself(), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    q = nearest(torch.tensor([[5.0, 0.0], [3.0, 4.0]]))  # (1, 0) and (0.6, 0.8)
    wanted = [[0.0, -math.sqrt(2)], [-math.sqrt(0.16 + 0.64), -math.sqrt(0.36 + 0.04)]]
    torch.testing.assert_close(q, torch.tensor(wanted), atol=1e-4, rtol=0)


def test_icarl_old_outputs_are_held_at_the_teachers():
    wanted = targets(torch.tensor([0, 3]), 4, torch.tensor([[0.0, math.log(3.0)], [math.log(1 / 3), 0.0]]))
    torch.testing.assert_close(wanted, torch.tensor([[0.5, 0.75, 0.0, 0.0], [0.25, 0.5, 0.0, 1.0]]))
    assert targets(torch.tensor([1]), 2, None).tolist() == [[0.0, 1.0]]


def test_icarl_keeps_the_means_of_its_exemplars():
    method = ICaRL(setting())
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    means = method.carried["means"]["means"]
    assert means.shape == (4, 16)
    torch.testing.assert_close(means.norm(dim=1), torch.ones(4))
    with torch.no_grad():
        x = method.setting.augment.plain(torch.from_numpy(method.memory.train[2].items))
        f = nn.functional.normalize(method.net.eval().features(x))
    torch.testing.assert_close(means[2], nn.functional.normalize(f.mean(dim=0), dim=0), atol=1e-5, rtol=1e-4)


def test_icarl_without_a_memory_is_refused():
    with pytest.raises(UsageError, match="ICaRL needs exemplars"):
        ICaRL(setting(budget=0))


def test_lwf_holds_the_old_answers_more_with_a_larger_weight():
    moved = []
    for weight in (0.0, 100.0):
        method = LwF(replace(setting(), training=Training(epochs=20, batch=16, lr=5e-3)), weight=weight)
        first, second = tasks(method, (2, 2))
        method.learn(first, Work())
        x = method.setting.augment.plain(torch.from_numpy(second.train.items))
        before = torch.softmax(method.inference()(x) / 2, dim=1)
        method.learn(second, Work())
        after = torch.softmax(method.inference()(x)[:, :2] / 2, dim=1)
        moved.append((before - after).abs().mean().item())
    assert moved[1] < 0.5 * moved[0]


def test_der_freezes_every_earlier_extractor_and_keeps_its_classifier():
    method = DER(setting(backbone="compact"), balance_epochs=0)
    frozen = {}
    for k, one in enumerate(tasks(method), start=1):
        method.learn(one, Work())
        assert len(method.expanded.extractors) == k
        state = method.expanded.state_dict()
        for name, tensor in frozen.items():
            assert torch.equal(state[name], tensor), name
        frozen |= {name: t.clone() for name, t in state.items() if name.startswith(f"extractors.{k - 1}.layers.")}
    assert method.expanded.head.weight.shape == (6, 3 * method.net.num_features)


def test_der_balances_on_as_many_images_of_each_class():
    method = DER(setting(), balance_epochs=2)
    method.learn(task(1, range(2)), Work())
    lines = method.learn(task(2, range(2, 4)), Work()).epochs
    assert [line.get("fit") for line in lines] == [None, None, "balance", "balance"]
    least = min(len(part) for part in method.memory.train.values())
    assert lines[-1]["visits"] == 4 * max(least, 13), "two old and two new classes, as many as an old one has"


def test_what_is_kept_for_a_parameter_grows_with_it_and_keeps_its_memory_format():
    kept = torch.ones(2, 3, 2, 2)
    now = torch.zeros(3, 3, 2, 2).to(memory_format=torch.channels_last)
    more = grown({"w": kept}, {"w": now})["w"]
    assert more.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(more[:2], kept)
    assert not more[2].any()


@pytest.mark.parametrize("over", ["old", "all"])
def test_the_losses_of_lwf_by_hand(over):
    """With a learning rate of 0 and no augmentation, the loss of an epoch is that of the network as it stands."""
    s = replace(
        setting(),
        training=Training(epochs=1, batch=1000, optimizer="sgd", lr=0.0),
        augment=Augment((0.3,), (0.3,), padding=0, degrees=0.0),
    )
    method = LwF(s, weight=3.0, temperature=4.0, over=over)
    first, second = tasks(method, (2, 2))
    method.learn(first, Work())
    x = s.augment.plain(torch.from_numpy(second.train.items))
    teacher = torch.softmax(method.inference()(x).double() / 4, dim=1)
    line = method.learn(second, Work()).epochs[0]
    q = method.inference()(x).double()
    y = torch.from_numpy(second.train.labels)
    log_p = torch.log_softmax(q, dim=1)
    assert line["loss_ce"] == pytest.approx(-log_p[torch.arange(len(y)), y].mean().item(), rel=1e-5)
    if over == "old":
        student = torch.softmax(q[:, :2] / 4, dim=1)
        wanted = (teacher * (teacher / student).log()).sum(dim=1).mean()
    else:
        student = torch.softmax(q / 4, dim=1)[:, :2]  # of four classes
        wanted = -16 * (teacher * student.log()).sum(dim=1).mean()
    assert line["loss_dist"] == pytest.approx(wanted.item(), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("small_side", [None, 16])
def test_gem_normalises_old_tasks_together_with_the_batch(monkeypatch, small_side):
    """A forward pass of one task alone would tell a network with batch-norm, by its statistics, which task it is."""
    s = setting(30, "compact")
    s = replace(s, training=replace(s.training, small_side=small_side))
    method = GEM(s, exemplars=5)
    first, second, third = tasks(method)
    method.learn(first, Work())
    method.learn(second, Work())
    sizes, forward = [], PathNetwork.forward
    monkeypatch.setattr(
        PathNetwork, "forward", lambda net, x: (sizes.append(len(x)) if net.training else None, forward(net, x))[1]
    )
    method.learn(third, Work())
    assert sizes == ([16 + 2 * 5] * 2 + [len(third.train) - 32 + 2 * 5]) * 2  # each step of two epochs
