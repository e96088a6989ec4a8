"""Adaptive RPS-Net: random path selection, switched when the path is saturated (the paper, section 3).

A path is frozen by `RPS._begin`: after a switch it belongs to P_fixed, and only P_tr = P ^ (P & P_fixed) learns.
`PathNetwork.train_only` then computes no gradient elsewhere, and `learning.train.train_mode` lets its batch-norm stand.

`switch_every=J` with attention "none" is the 2019 RPS-Net, which switches after every J tasks.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import Task
from randpath.errors import UsageError
from randpath.keyed import rng
from randpath.learning.anchor import POWER, Anchored, Mix, mixed, with_items
from randpath.learning.closed import Sums
from randpath.learning.compression import compressed, num_paths
from randpath.learning.discriminant import add_discriminant
from randpath.learning.memory import Memory, pictures
from randpath.learning.method import NO_REPLAY, Learned, Setting, State, Work, check_task, unit_features
from randpath.learning.objective import log_counts, phi, phi_by_ratio
from randpath.learning.saturation import saturation
from randpath.learning.selection import Job, Trial, best, random_search
from randpath.learning.tournament import tournament
from randpath.learning.whitening import fit_stem
from randpath.network.fold import Folded, fold
from randpath.network.layers import ModuleStart, PathNetwork
from randpath.network.path import Path, candidates, last_layers, next_lane
from randpath.settings import above, at_least, between, check


@dataclass(frozen=True)
class Begun:
    """How a task begins."""

    k: int
    again: int  # how many calls have gone on with task k, this one included; 0: its first
    S: list[int]  # the tasks after which the path was switched
    P_fixed: Path
    paths: list[Path]  # the candidates
    unchosen: bool  # there are no validation images to choose a path by
    weights: dict[str, Tensor]  # the network's state before the task
    teacher: Folded | None  # the previous state on the previous inference path

    @property
    def call(self) -> tuple[str | int, ...]:
        """A part of every key."""
        return ("again", self.again) if self.again else ()


@dataclass(frozen=True)
class Settled:
    """What a search has found."""

    net: PathNetwork
    memory: Memory
    P: Path
    P_fixed: Path
    mu_sat: float | None
    switched: bool
    epochs: list[dict[str, Any]] = field(default_factory=list)  # of the distillation into one path

    @property
    def P_ts(self) -> Path:
        return self.P_fixed | self.P


@dataclass(eq=False)
class RPS:
    """Train the present path until mu_sat says that it is full; then freeze it, try N new ones and keep the best."""

    cumulative: ClassVar[bool] = False

    setting: Setting
    _: KW_ONLY
    N: Annotated[int, at_least(1), "candidates after a switch (section 4.1)"] = 8
    # "th = 0 throughout the experiments"; the ablations use 2 and 3
    threshold: Annotated[float, "switch when mu_sat is at least this"] = 0.0
    switch_every: Annotated[int | None, at_least(1), "J: switch by count instead"] = None
    first_switch: Annotated[int, at_least(1), "the first path is kept up to this task at least (ours)"] = 1
    gamma: Annotated[float | None, at_least(0), "scale of phi; null: (images of the task) / (budget)"] = None
    controller: Annotated[Literal["switch", "ratio"], "phi of the paper, or by old / new classes (ours)"] = "switch"
    temperature: Annotated[float, above(0), "t_e of the distillation"] = 2.0
    balanced: Annotated[bool, "balanced softmax in L_ce (ours)"] = False
    start: Annotated[ModuleStart, "what a new module begins from; copy and zero are ours"] = "fresh"
    search: Annotated[Literal["random", "tournament"], "N random paths, or a genetic choice among N (PathNet's)"] = (
        "random"
    )
    generations: Annotated[int, at_least(1), "of search=tournament: each trains up to two paths"] = 10
    open_layers: Annotated[int | None, at_least(1), "so many last layers get a new module; null: all"] = None
    views: Annotated[
        int | None, at_least(1), "of each image, of which frozen lanes are computed once a task; null: at each visit"
    ] = None
    paste: Annotated[float, between(0, 1), "share of the steps in which pictures get patches of others (CMO's)"] = 0.0
    discriminant: Annotated[
        float, at_least(0), "weight of the exemplars' discriminant beside the classifier (ours)"
    ] = 0.0
    compress: Annotated[
        int | None, at_least(2), "so many paths become one when a switch is due (FOSTER's); null: never"
    ] = None

    def __post_init__(self) -> None:
        check(self, "options.")
        if self.views and not self._lanes:
            raise UsageError("options.views is for lanes, which stand still once they are frozen: add --set join=lanes")
        if self.views and abs(self.paste * self.views - round(self.paste * self.views)) > 1e-9:
            raise UsageError(
                f"options.paste={self.paste:g} of {self.views} views is no whole number of views",
                next="--set options.views=4 --set options.paste=0.5",
            )
        if self.paste and len(self.setting.backbone.shape) != 3:
            raise UsageError("options.paste is for pictures, not for feature vectors")
        if self.discriminant and not self.setting.budget:
            raise UsageError("options.discriminant is that of the exemplars: add a memory (--set memory=2000)")
        if self.discriminant and self.setting.backbone.head != "linear":
            raise UsageError("options.discriminant is a linear classifier's, not a cosine one's")
        if self.compress and self._lanes:
            raise UsageError("options.compress is for paths that are summed or joined in the last layer, not for lanes")
        self.net = self.setting.backbone.build(self.setting.seed).to(self.setting.device)
        self.memory = Memory(self.setting.budget)
        self.k = self.again = 0
        self.P = self.P_fixed = Path.empty(self.net.L, self.net.M)
        self.S: list[int] = []

    @property
    def P_ts(self) -> Path:
        return self.P_fixed | self.P

    @property
    def _lanes(self) -> bool:
        return self.setting.backbone.join == "lanes"

    def learn(self, task: Task, work: Work) -> Learned:
        """Learn the next task."""
        check_task(task, self.setting.backbone.shape, self.net.num_classes, self.k)
        teacher = fold(self.net, self.P_ts).cpu() if self.k else None
        return self._train(task, work, self._begin(task, self.k + 1, 0, self.S, teacher))

    def go_on(self, task: Task, work: Work, teacher: Folded | None) -> Learned:
        """Go on with the present task from its end, with the teacher that it had; a switch after it is taken back."""
        check_task(task, self.setting.backbone.shape, self.net.num_classes, None)
        S = [j for j in self.S if j < self.k]
        return self._train(task, work, self._begin(task, self.k, self.again + 1, S, teacher))

    def _train(self, task: Task, work: Work, begun: Begun) -> Learned:
        parts = 2 if any(self._is_wide(begun.P_fixed | P) for P in begun.paths) else 1
        trials = self._search(self._job(task, begun, work), begun, work.part(0, parts))
        settled = self._settle(task, begun, self._trained(begun, best(trials)), best(trials).path, begun.P_fixed)
        if settled.switched and self._is_wide(settled.P_ts):
            settled = self._compressed(task, begun, settled, work.part(1, 2))
        return self._commit(begun, trials, settled)

    def _is_wide(self, P_ts: Path) -> bool:
        """Whether there are as many paths as `compress` has, or no unused module in a layer."""
        return self.compress is not None and num_paths(P_ts) >= max(2, min(self.compress, self.net.M))

    def _compressed(self, task: Task, begun: Begun, settled: Settled, work: Work) -> Settled:
        """The union distilled into its present path, which is measured anew."""
        s = self.setting
        data = self.memory.beside(task.train)
        net, epochs = compressed(
            settled.net, settled.P, settled.P_ts, data, s.training, s, self.temperature, warm=self.start == "copy",
            key=(s.seed, "task", begun.k, *begun.call, "compress"), place=work.at("compress"), tick=work.tick,
        )  # fmt: skip
        return replace(self._settle(task, begun, net, settled.P, Path.empty(net.L, net.M)), epochs=epochs)

    def _search(self, job: Job, begun: Begun, work: Work) -> list[Trial]:
        if self.search == "random" or len(begun.paths) == 1:
            return random_search(job, begun.paths, work)
        draw = rng(self.setting.seed, "tournament", begun.k, *begun.call)
        return tournament(job, begun.paths, work, self.generations, draw)

    def _begin(self, task: Task, k: int, again: int, S: list[int], teacher: Folded | None) -> Begun:
        """The same path again, or after a switch N new ones beside what is now frozen (section 3.3)."""
        self.memory.require_room(task.num_classes)
        if self.k == 0 or self.k in S:
            P_fixed = self.P_ts
            draw = rng(self.setting.seed, "paths", k)
            if self._lanes:
                paths = [next_lane(P_fixed, self.open_layers)]
            elif self.open_layers is None or self.k == 0:
                paths = candidates(self.N, P_fixed, draw)
            else:
                paths = last_layers(self.N, self.open_layers, self.P, P_fixed, draw)
        else:
            P_fixed, paths = self.P_fixed, [self.P]
        unchosen = not len(self._val(task))
        return Begun(k, again, S, P_fixed, paths[:1] if unchosen else paths, unchosen, self._weights(task), teacher)

    def _weights(self, task: Task) -> dict[str, Tensor]:
        """What P_ts needs before the task; before the first one that is a fixed stem, if there is one."""
        weights = self.net.weights(self.P_ts)
        if not self.k and self.net.stem is not None:
            net = self.setting.backbone.build(self.setting.seed)
            fit_stem(net, task.train, self.setting.augment)
            weights = net.weights(self.P_ts)
        return {name: tensor.cpu() for name, tensor in weights.items()}

    def _job(self, task: Task, begun: Begun, work: Work) -> Job:
        s = self.setting
        data = self.memory.beside(task.train)
        return Job(
            setting=s,
            training=s.training.of_task(begun.k),
            weights=begun.weights,
            P_fixed=begun.P_fixed,
            P_before=self.P_ts,
            P_last=self.P,
            start=self.start,
            num_classes=task.num_classes,
            data=data,
            val=self._val(task),
            teacher=begun.teacher,
            phi=self._phi(task, begun),
            temperature=self.temperature,
            views=self.views,
            paste=self.paste,
            log_counts=log_counts(data.labels, task.num_classes) if self.balanced else None,
            key=(s.seed, "task", begun.k, *begun.call),
            place=work.at("search"),
        )

    def _trained(self, begun: Begun, winner: Trial) -> PathNetwork:
        """The winner's network."""
        net = self.setting.backbone.build(self.setting.seed)
        net.load_weights(begun.weights)
        net.load_weights(winner.weights)
        return net.to(self.setting.device)

    def _settle(self, task: Task, begun: Begun, net: PathNetwork, P: Path, P_fixed: Path) -> Settled:
        """The memory after the task, chosen by the network, and mu_sat of P on its exemplars (section 3.2)."""
        s = self.setting
        P_ts = P_fixed | P
        memory = copy.copy(self.memory)
        # Of lanes the newest alone: each other one would cost as much again.
        seen = P if self._lanes else P_ts
        features = partial(unit_features, net, seen, setting=s) if s.herding else None
        memory.update(task.train, task.val, (s.seed, begun.k, *begun.call), features)
        mu_sat = None
        if len(memory):
            mu_sat = saturation(net, P, P_ts, Joined(memory.exemplars()), s.augment)
        return Settled(net, memory, P, P_fixed, mu_sat, self._should_switch(begun.k, mu_sat))

    def _should_switch(self, k: int, mu_sat: float | None) -> bool:
        """Whether the path is full: by its saturation, or after every J tasks."""
        if k < self.first_switch:
            return False
        if self.switch_every:
            return k % self.switch_every == 0
        return mu_sat is not None and mu_sat >= self.threshold

    def _commit(self, begun: Begun, trials: list[Trial], settled: Settled) -> Learned:
        """Take over what was found: all at once, after everything that could fail."""
        self.net, self.memory = settled.net, settled.memory
        self.k, self.again, self.P, self.P_fixed = begun.k, begun.again, settled.P, settled.P_fixed
        self.S = [*begun.S, begun.k] if settled.switched else begun.S
        return Learned(
            epochs=[*(line for trial in trials for line in trial.epochs), *settled.epochs],
            parameters_trained=best(trials).parameters_trained,
            parameters=self.net.num_parameters(self.P_ts),
            saturation=settled.mu_sat,
            switched=settled.switched,
            path=self.P,
            notes=self._notes(begun, trials),
            remarks=self._remarks(begun, trials, settled),
        )

    def _notes(self, begun: Begun, trials: list[Trial]) -> list[str]:
        """What every user should know."""
        first, budget = begun.k == 1, self.setting.budget
        notes = [f"candidate {trial.index} diverged: {trial.failure}" for trial in trials if trial.failure]
        if budget == 0 and first:
            notes.append(NO_REPLAY)
        if begun.unchosen and self.N > 1 and not self._lanes and (first or begun.k - 1 in begun.S):
            notes.append("no validation images to choose a path by: one candidate is trained")
        return notes

    def _remarks(self, begun: Begun, trials: list[Trial], settled: Settled) -> list[str]:
        """What a reader of the paper should know."""
        remarks = []
        if not settled.P ^ (settled.P & begun.P_fixed):
            what = "head was" if self._lanes else "skips, the attention and the head were"
            remarks.append(f"the path lies wholly in frozen modules: only the {what} trained")
        if settled.epochs:
            remarks.append(
                f"{num_paths(begun.P_fixed | settled.P)} paths were distilled into one, which is measured anew"
            )
        if settled.mu_sat is None and begun.k == 1 and self.setting.budget:
            remarks.append(
                "mu_sat cannot be measured, no exemplar has a gradient (one class has none): the path is kept"
            )
        if self.controller == "switch" and begun.S and (begun.k, begun.again) == (begun.S[0] + 1, 0):
            now = best(trials).epochs[-1]["phi"]
            if now < 1:  # also by the paper's own rule, where the memory holds more than a task
                remarks.append(
                    f"gamma is below 1, so phi falls from 1 to {now:.3g} after the first switch (docs/fidelity.md)"
                )
        return remarks

    def _val(self, task: Task) -> Dataset:
        return Joined([*self.memory.val.values(), task.val])

    def _phi(self, task: Task, begun: Begun) -> float:
        gamma = self.gamma
        budget = pictures(self.setting.budget, self.setting.backbone.shape, task.num_classes)
        if gamma is None:
            gamma = (len(task.train) + len(task.val)) / budget if budget else 1.0
        if self.controller == "switch":
            return phi(begun.k, gamma, begun.S)
        old = 0 if begun.teacher is None else begun.teacher.num_classes
        return phi_by_ratio(old, task.num_classes - old, gamma)

    # ---- the other verbs

    def inference(self) -> nn.Module:
        answer = fold(self.net, self.P_ts)
        if self.discriminant and self.memory.train:  # validation images are to judge by
            exemplars = Joined(list(self.memory.train.values()))
            add_discriminant(answer, exemplars, self.discriminant, self.setting.augment)
        return answer

    def state_dict(self) -> State:
        document = {
            "k": self.k,
            "again": self.again,
            "P": self.P.to_lists(),
            "P_fixed": self.P_fixed.to_lists(),
            "S": self.S,
        }
        return State({"weights": dict(self.net.weights(self.P_ts)), **self.memory.tensors()}, document)

    def load_state_dict(self, state: State) -> None:
        self.k, self.again, self.S = state.document["k"], state.document["again"], list(state.document["S"])
        self.P, self.P_fixed = Path.of(state.document["P"]), Path.of(state.document["P_fixed"])
        self.net.load_weights(state.tensors["weights"])
        self.memory.load(state.tensors)


@dataclass(eq=False)
class AnchoredRPS(RPS):
    """Beside a closed-form solution, with the share that held-out items choose (learning/anchor.py).

    It is what `randpath learn` does behind a pretrained start.
    """

    power: Annotated[float, above(0), "of the features, before they are scaled to unit length"] = POWER

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sums = Sums.nothing(math.prod(self.setting.backbone.shape))
        self.mix = Mix()

    def learn(self, task: Task, work: Work) -> Learned:
        held = self._val(task)
        learned = super().learn(task, work)
        self.sums, self.mix = with_items(self.sums, task.train, self.power), Mix()
        if len(held):
            self.mix, _ = mixed(self._anchored().double(), held, self.setting.augment, self.setting.device)
        return learned

    def _anchored(self) -> Anchored:
        augment = self.setting.augment
        return Anchored(super().inference(), self.sums, augment.mean, augment.std, self.mix, self.power)

    def inference(self) -> nn.Module:
        return self._anchored().double()

    def metrics(self, accuracy: Callable[[nn.Module], float]) -> dict[str, float]:
        """Of the closed form and of the path network alone, and the latter's share in the answer."""
        both = self._anchored().double()
        return {
            "closed form": accuracy(both.with_share(0.0)),
            "path network": accuracy(both.with_share(1.0)),
            "its share": self.mix.share,
        }

    def state_dict(self) -> State:
        state = super().state_dict()
        return State({**state.tensors, "sums": self.sums.tensors()}, {**state.document, "mix": asdict(self.mix)})

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.sums = Sums(**{name: torch.as_tensor(t).clone() for name, t in state.tensors["sums"].items()})
        self.mix = Mix(**state.document["mix"])
