"""Progressive networks: a new network per task, fed by the earlier ones, which stay as they are.

Rusu et al., Progressive neural networks, 2016. The original is told the task of each picture; here nobody is, so the
logits of all columns are compared.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from randpath.data.stream import Task
from randpath.learning.method import Learned, State, Work, check_task
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.learning.whitening import fit_stem
from randpath.network.columns import Columns


@dataclass(eq=False)
class Progressive(Plain):
    """L = L_ce over all classes seen, on the images of task k; only the new column and its lateral maps are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = Columns(self.setting.backbone, self.setting.seed).to(self.setting.device)

    def learn(self, task: Task, work: Work) -> Learned:
        s = self.setting
        check_task(task, s.backbone.shape, sum(self.columns.sizes), self.k)
        columns = copy.deepcopy(self.columns)
        column = columns.add(len(task.new))
        columns.to(s.device)
        fit_stem(column.net, task.train, s.augment)
        params = {name: p for name, p in columns.named_parameters() if name.startswith(f"columns.{task.k - 1}.")}

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(columns(x), y, smoothing=s.training.smoothing))}

        epochs = self.fit(columns, task, task.train, work, loss, params=params)
        self.columns, self.k = columns, task.k
        trained = sum(p.numel() for p in params.values())
        return Learned(epochs, trained, sum(p.numel() for p in columns.parameters()))

    def inference(self) -> nn.Module:
        return copy.deepcopy(self.columns).eval().requires_grad_(False)

    def state_dict(self) -> State:
        return State({"weights": dict(self.columns.state_dict())}, {"k": self.k, "sizes": self.columns.sizes})

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        s = self.setting
        self.k = state.document["k"]
        self.columns = Columns(s.backbone, s.seed, state.document["sizes"]).to(s.device)
        present = self.columns.state_dict()
        for name, tensor in state.tensors["weights"].items():
            present[name].copy_(tensor)
