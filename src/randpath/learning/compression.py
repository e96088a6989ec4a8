"""One path in place of many: the union of all paths teaches a single one (FOSTER's compression, Wang et al. 2022)."""

import copy
import pathlib
from typing import Any

import torch
from torch import Tensor

from randpath.data.dataset import Dataset
from randpath.engines.device import own
from randpath.engines.serial import Tick, quiet
from randpath.learning.method import Setting
from randpath.learning.objective import distillation
from randpath.learning.train import Key, Terms, Training, fit
from randpath.network.fold import fold
from randpath.network.layers import PathNetwork
from randpath.network.path import Path


def num_paths(P_ts: Path) -> int:
    """How many paths lie beside each other where they are most.

    >>> num_paths(Path.of([[1, 0, 0], [1, 1, 0]]))
    2
    """
    return max(sum(row) for row in P_ts.rows)


def single(net: PathNetwork, P: Path, P_ts: Path, setting: Setting, warm: bool) -> PathNetwork:
    """A network on P, a part of P_ts, alone: its skips and its part of the classifier; `warm`: its modules too."""
    student = setting.backbone.build(setting.seed)
    weights = net.weights(P_ts if warm else Path.empty(net.L, net.M))
    student.load_weights({name: tensor.cpu() for name, tensor in weights.items()})
    student.open(P, P_ts, P, "fresh")  # of a classifier that grows, the columns of P alone
    return student


def compressed(
    net: PathNetwork,
    P: Path,
    P_ts: Path,
    data: Dataset,
    training: Training,
    setting: Setting,
    temperature: float,
    *,
    warm: bool,
    key: Key,
    place: pathlib.Path | None,
    tick: Tick = quiet,
) -> tuple[PathNetwork, list[dict[str, Any]]]:
    """A network on P alone that answers as `net` on P_ts does: t^2 * KL(softmax(q' / t) || softmax(q / t)).

    q' are the union's logits, over all classes seen; t^2 keeps the gradient's size. Returns it and the lines of its
    epochs. The result depends on the arguments alone, `place` only shortens a retry.
    """
    device = own(setting.device)
    torch.set_num_threads(setting.threads)
    teacher = copy.deepcopy(fold(net, P_ts)).to(device)
    student = single(net, P, P_ts, setting, warm).to(device)
    params = student.train_only(P)

    def loss(x: Tensor, y: Tensor, step: int) -> Terms:
        with torch.no_grad():
            q_teacher = teacher(x)
        return {"dist": (temperature**2, distillation(student(x, P), q_teacher, temperature))}

    epochs = fit(student, params, data, loss, training, setting.augment, key=key, place=place, tick=tick)
    return student, [{"candidate": 0, "phi": None, "fit": "compress", **line} for line in epochs]
