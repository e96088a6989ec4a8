"""DER, dynamically expandable representation (Yan et al., 2021), without its pruning.

Each task adds a feature extractor; the earlier ones are frozen, and all their features, side by side, are classified.
An auxiliary classifier makes the new extractor tell the new classes apart, and from all old ones together. Then the
classifier alone is trained again, on as many images of each class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset
from randpath.data.stream import Task
from randpath.keyed import rng
from randpath.learning.method import Learned, State, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms, rounded_once
from randpath.network.fold import fold
from randpath.network.heads import Head
from randpath.network.layers import PathNetwork
from randpath.network.seeded import seeded
from randpath.settings import above, at_least


class Expanded(nn.Module):
    """q = W [f_1(x), .., f_k(x)] + b; f_j is the extractor of task j."""

    def __init__(self, extractors: Sequence[nn.Module], head: Head):
        super().__init__()
        self.extractors, self.head = nn.ModuleList(extractors), head

    def features(self, x: Tensor) -> Tensor:  # (b, k D)
        return torch.cat([extractor.features(x) for extractor in self.extractors], dim=1)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        q: Tensor = self.head(self.features(x))
        return q


@dataclass(eq=False)
class DER(Plain):
    """L = L_ce(W [f_1 .. f_k]) + weight * L_ce(auxiliary(f_k)); the auxiliary classes are the new ones and "old"."""

    replays: ClassVar[bool] = True

    _: KW_ONLY
    weight: Annotated[float, at_least(0), "of the auxiliary loss (lambda_a, 1 in the paper)"] = 1.0
    balance_epochs: Annotated[int, at_least(0), "of the balanced training of the classifier alone; 0: none"] = 4
    temperature: Annotated[float, above(0), "of the softmax in that training (5 in the paper)"] = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expanded: Expanded | None = None

    def learn(self, task: Task, work: Work) -> Learned:
        newest = self.begin(task)  # begins as a copy of the last extractor
        net = self._grown(task, newest)
        old = task.new.start
        auxiliary = seeded(
            lambda: nn.Linear(newest.num_features, len(task.new) + (old > 0)), self.setting.seed, "auxiliary", task.k
        ).to(self.setting.device)
        both = nn.ModuleDict({"net": net, "auxiliary": auxiliary})
        training = self.setting.training
        smoothing = training.smoothing
        frozen = [rounded_once(fold(extractor, self.path), training) for extractor in self._extractors()]

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            with torch.no_grad():
                f_frozen = [extractor.features(x) for extractor in frozen]
            f = torch.cat([*f_frozen, newest.features(x)], dim=1)
            terms = {"ce": (1.0, cross_entropy(net.head(f), y, smoothing=smoothing))}
            if old:
                new = (y - old + 1).clamp(min=0)  # 0: any old class
                q = auxiliary(f[:, -newest.num_features :])
                terms["auxiliary"] = (self.weight, cross_entropy(q, new, smoothing=smoothing))
            return terms

        params = {name: p for name, p in both.named_parameters() if name.startswith(self._trained(net, old))}
        parts = 2 if self._balances() else 1
        epochs = self.fit(both, task, self.replayed(task), work.part(0, parts), loss, params=params)
        if parts == 2:
            epochs += self._balance(net, task, work.part(1, parts))
        learned = self.commit(task, newest, epochs, memory=self.remember(task, newest))
        self.expanded = net
        size = sum(p.numel() for name, p in net.named_parameters() if ".head." not in name)
        return replace(learned, parameters=size, parameters_trained=sum(p.numel() for p in params.values()))

    def _grown(self, task: Task, newest: PathNetwork) -> Expanded:
        """The extractors so far and the newest one; the classifier keeps its rows and columns, new ones are fresh."""
        s, before, extractors = self.setting, self.expanded, self._extractors()
        head = Head("linear", newest.num_features * (len(extractors) + 1), s.seed)
        head.grow(task.num_classes)
        if before is not None:
            rows, columns = before.head.weight.shape
            with torch.no_grad():
                head.weight[:rows, :columns] = before.head.weight.to(head.weight.device)
                head.bias[:rows] = before.head.bias.to(head.bias.device)
        return Expanded([*extractors, newest], head).to(s.device)

    def _extractors(self) -> list[PathNetwork]:
        """Those of the tasks so far."""
        kept = [] if self.expanded is None else list(self.expanded.extractors)
        return [extractor for extractor in kept if isinstance(extractor, PathNetwork)]

    @staticmethod
    def _trained(net: Expanded, old: int) -> tuple[str, ...]:
        """The newest extractor, without its own unused classifier, and the two classifiers."""
        newest = f"net.extractors.{len(net.extractors) - 1}."
        return (newest + "layers.", "net.head.", *(["auxiliary."] if old else []))

    def _balances(self) -> bool:
        return self.balance_epochs > 0 and len(self.memory) > 0  # before the second task there are no exemplars

    def _balance(self, net: Expanded, task: Task, work: Work) -> list[dict[str, Any]]:
        """Train the classifier alone on as many images of each class: L_ce of q / temperature."""
        s = self.setting

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            return {"ce": (1.0, cross_entropy(net(x) / self.temperature, y))}

        training = replace(s.training, epochs=self.balance_epochs)
        return self.fit(
            net, task, balanced(self.replayed(task), s.seed, task.k), work, loss,
            params={f"head.{name}": p for name, p in net.head.named_parameters()}, name="balance", training=training,
        )  # fmt: skip

    # ---- the other verbs

    def inference(self) -> nn.Module:
        assert self.expanded is not None
        folded = [fold(extractor, self.path) for extractor in self._extractors()]
        head = Head("linear", self.expanded.head.num_features, self.setting.seed)
        head.grow(self.expanded.head.num_classes)
        head.load_state_dict(self.expanded.head.state_dict())
        return Expanded(folded, head).to(self.setting.device).eval().requires_grad_(False)

    def state_dict(self) -> State:
        state = super().state_dict()
        if self.expanded is not None:  # whose newest extractor is the network
            state.tensors["weights"] = dict(self.expanded.state_dict())
        return State(state.tensors, {**state.document, "extractors": _count(self.expanded)})

    def load_state_dict(self, state: State) -> None:
        stored, count = dict(state.tensors), state.document["extractors"]
        self.expanded = None
        if count:
            newest = f"extractors.{count - 1}."
            self.expanded = self._restored(stored["weights"], count)
            stored["weights"] = {
                name.removeprefix(newest): tensor
                for name, tensor in stored["weights"].items()
                if name.startswith(newest)
            }
        super().load_state_dict(State(stored, state.document))
        if self.expanded is not None:
            self.expanded.extractors[-1] = self.net

    def _restored(self, tensors: Mapping[str, Tensor], count: int) -> Expanded:
        s = self.setting
        extractors = []
        for i in range(count):
            own = f"extractors.{i}."
            extractor = s.backbone.build(s.seed)
            extractor.load_weights({k.removeprefix(own): t for k, t in tensors.items() if k.startswith(own)})
            extractors.append(extractor.to(s.device))
        head = Head("linear", tensors["head.weight"].shape[1], s.seed)
        head.grow(len(tensors["head.weight"]))
        head.load_state_dict({name: tensors[f"head.{name}"] for name in ("weight", "bias")})
        return Expanded(extractors, head.to(s.device))


def _count(expanded: Expanded | None) -> int:
    return 0 if expanded is None else len(expanded.extractors)


def balanced(data: Dataset, seed: int, k: int) -> Dataset:
    """As many images of each class as the smallest one has, in the data's order.

    >>> from randpath.data.dataset import Arrays
    >>> balanced(Arrays(np.zeros((5, 1), np.float32), np.array([0, 0, 0, 1, 1])), 0, 2).labels.tolist()
    [0, 0, 1, 1]
    """
    of_class = {c: np.flatnonzero(data.labels == c) for c in np.unique(data.labels).tolist()}
    least = min(map(len, of_class.values()))
    chosen = [rng(seed, "balance", k, c).permutation(own)[:least] for c, own in of_class.items()]
    return data.take(np.sort(np.concatenate(chosen)))
