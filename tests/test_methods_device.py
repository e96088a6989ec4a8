"""Every tensor of a loss lies on the device of the setting: torch's `meta` device, which no CPU tensor joins."""

import pytest
import torch

from randpath.learning import plain
from randpath.learning.method import Work
from randpath.methods import METHODS
from tests.checks import setting, task


class Enough(Exception):
    """The loss was made; nothing can be trained on this device."""


@pytest.mark.parametrize("balanced", [False, True])
def test_the_loss_of_rehearsal_is_made_on_the_device(monkeypatch, balanced):
    method = METHODS["rehearsal"](setting(device="meta"), balanced=balanced)
    monkeypatch.setattr(method, "begin", lambda task: on_meta(method, task))

    def one_loss(net, params, data, loss, *rest, **more):
        x, y = torch.zeros(4, 1, 8, 8, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
        assert all(value.is_meta for _, value in loss(x, y, 0).values())
        raise Enough

    monkeypatch.setattr(plain, "fit", one_loss)
    with pytest.raises(Enough):
        method.learn(task(1, range(2)), Work())


def on_meta(method, task):
    with torch.device("meta"):
        net = method.setting.backbone.build(0)
        net.grow_head(task.num_classes)
    return net.to("meta")


def test_a_tensor_left_on_the_cpu_would_be_noticed():
    with pytest.raises(RuntimeError, match="meta"):
        torch.zeros(2, 3, device="meta") + torch.zeros(3)
