"""Adaptive RPS-Net: random path selection, switched when the path is saturated (the paper, section 3).

`switch_every=J` with attention "none" is the 2019 RPS-Net, which switches after every J tasks.
"""

import copy
from collections.abc import Iterable
from functools import partial
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import Task
from randpath.keyed import rng
from randpath.learning.memory import Memory, pictures
from randpath.learning.method import NO_REPLAY, Learned, Setting, State, Work, check_task, unit_features
from randpath.learning.objective import log_counts, phi, phi_by_ratio
from randpath.learning.saturation import saturation
from randpath.learning.selection import Job, Trial, best, train_candidate
from randpath.learning.whitening import fit_stem
from randpath.network.fold import fold
from randpath.network.layers import Start
from randpath.network.path import Path, candidates, last_layers


class RPS:
    """Train the present path until mu_sat says that it is full; then freeze it, try N new ones and keep the best."""

    cumulative: ClassVar[bool] = False

    def __init__(
        self,
        setting: Setting,
        *,
        N: int = 8,  # candidates after a switch (section 4.1)
        threshold: float = 0.0,  # "th = 0 throughout the experiments"; the ablations use 2 and 3
        switch_every: int | None = None,  # J: switch by count instead
        gamma: float | None = None,  # none: (training images of the task) / (budget), the paper's own rule
        controller: str = "switch",  # phi of the paper, which grows after the first switch; "ratio": ours, for `tuned`
        temperature: float = 2.0,  # t_e
        balanced: bool = False,  # balanced softmax in L_ce: ours, for `tuned`
        start: Start = "fresh",  # what a new module begins from; "copy" and "zero": ours
        open_layers: int | None = None,  # how many of the last layers get a new module at a switch; none: all
        revisit: bool = False,  # keep task k's teacher, so that a later call can go on with task k
    ):
        for name, value, least in (("N", N, 1), ("switch_every", switch_every, 1), ("open_layers", open_layers, 1)):
            if not (value is None and name != "N") and not (isinstance(value, int) and value >= least):
                raise ValueError(f"option {name} must be a whole number of at least {least}, got {value!r}")
        for name, number in (("threshold", threshold), ("gamma", gamma), ("temperature", temperature)):
            if not (number is None and name == "gamma") and not isinstance(number, int | float):
                raise ValueError(f"option {name} must be a number, got {number!r}")
        if controller not in ("switch", "ratio"):
            raise ValueError(f"option controller must be switch or ratio, got {controller!r}")
        if not temperature > 0:
            raise ValueError(f"option temperature must be above 0, got {temperature!r}")
        self.setting, self.N, self.threshold, self.switch_every = setting, N, threshold, switch_every
        self.gamma, self.controller, self.temperature, self.balanced = gamma, controller, temperature, balanced
        if start not in get_args(Start):
            raise ValueError(f"option start must be {', '.join(get_args(Start))}, got {start!r}")
        self.start, self.open_layers, self.revisit = start, open_layers, revisit
        self.net = setting.backbone.build(setting.seed).to(setting.device)
        self.memory = Memory(setting.budget)
        self.k = 0
        self.P = self.P_fixed = Path.empty(self.net.L, self.net.M)
        self.S: list[int] = []  # the tasks after which the path was switched
        self.again = 0  # calls that went on with task k
        self.previous: tuple[dict[str, Tensor], Path] | None = None  # weights and P_ts before task k: its teacher

    @property
    def P_ts(self) -> Path:
        return self.P_fixed | self.P

    def learn(self, task: Task, work: Work) -> Learned:
        """Learn the next task; if task.k is the present one, go on with it from its end, with the teacher it had."""
        s = self.setting
        going_on = 0 < task.k == self.k
        k, again = (self.k, self.again + 1) if going_on else (self.k + 1, 0)
        call = ("again", again) if again else ()  # a part of every key
        check_task(task, s.backbone.shape, self.net.num_classes)
        self.memory.require_room(task.classes.stop)
        notes = []
        if s.budget == 0 and k == 1:
            notes.append(NO_REPLAY)

        S = [j for j in self.S if j < k]  # a switch noted after a task that goes on is taken back
        previous = self.previous if going_on else self._present() if self.revisit and k > 1 else None
        teacher = None if k == 1 else self._folded(previous) if going_on else fold(self.net, self.P_ts).cpu()
        old = self.net.num_classes  # classes before task k
        if going_on:
            old = 0 if previous is None else len(previous[0]["head.bias"])
        if self.k == 0 or self.k in S:
            P_fixed = self.P_ts
            draw = rng(s.seed, "paths", k)
            if self.open_layers is None or self.k == 0:
                paths = candidates(self.N, P_fixed, draw)
            else:
                paths = last_layers(self.N, self.open_layers, self.P, P_fixed, draw)
        else:
            P_fixed = self.P_fixed
            paths = [self.P]
        val = Joined([*self.memory.val.values(), task.val])
        if not len(val) and len(paths) > 1:
            paths = paths[:1]
            notes.append("no validation images to choose a path by: one candidate is trained")

        fit_stem(self.net, task.train, s.augment)
        data: Dataset = Joined([*self.memory.train.values(), task.train])
        job = Job(
            backbone=s.backbone,
            seed=s.seed,
            weights={name: tensor.cpu() for name, tensor in self.net.weights(self.P_ts).items()},
            P_fixed=P_fixed,
            P_before=self.P_ts,
            P_last=self.P,
            start=self.start,
            num_classes=task.classes.stop,
            data=data,
            val=val,
            teacher=teacher,
            phi=self._phi(k, task, old, S),
            temperature=self.temperature,
            log_counts=log_counts(data.labels, task.classes.stop) if self.balanced else None,
            training=s.training.of_task(k),
            augment=s.augment,
            key=(s.seed, "task", k, *call),
            place=work.at("search"),
            device=s.device,
            threads=s.threads if len(paths) == 1 else s.search_threads,
        )
        if len(paths) == 1 or work.map is map:
            trials: Iterable[Trial] = (
                train_candidate(job, (i, P), lambda done, i=i: work.tick((i + done) / len(paths)))  # type: ignore[misc]
                for i, P in enumerate(paths)
            )
        else:
            trials = work.map(partial(train_candidate, job), enumerate(paths))
        finished = sorted(trials, key=lambda trial: trial.index)
        torch.set_num_threads(s.threads)
        winner = best(finished)
        notes += [f"candidate {trial.index} diverged: {trial.failure}" for trial in finished if trial.failure]
        if not winner.path ^ (winner.path & P_fixed):
            notes.append(
                "the path lies wholly in frozen modules: only the skips, the attention and the head were trained"
            )

        net = s.backbone.build(s.seed)
        net.load_weights(job.weights)
        net.load_weights(winner.weights)
        net.to(s.device)
        P_ts = P_fixed | winner.path
        memory = copy.copy(self.memory)
        features = partial(unit_features, net, P_ts, setting=s) if s.herding else None
        memory.update(task.train, task.val, (s.seed, k, *call), features)
        mu_sat = None
        if len(memory):
            mu_sat = saturation(net, winner.path, P_ts, Joined(memory.exemplars()), s.augment)
        if mu_sat is None and k == 1 and s.budget:
            notes.append("mu_sat cannot be measured, no exemplar has a gradient (one class has none): the path is kept")
        switched = k % self.switch_every == 0 if self.switch_every else mu_sat is not None and mu_sat >= self.threshold

        # All that could fail is done: now, and not before, the method changes.
        self.net, self.memory = net, memory
        self.P, self.P_fixed, self.k, self.S = winner.path, P_fixed, k, [*S, k] if switched else S
        self.again, self.previous = again, previous
        return Learned(
            epochs=[line for trial in finished for line in trial.epochs],
            parameters_trained=winner.parameters_trained,
            parameters=self.net.num_parameters(self.P_ts),
            saturation=mu_sat,
            switched=switched,
            path=self.P,
            notes=notes,
        )

    def logits(self, x: Tensor) -> Tensor:
        self.net.eval()
        with torch.no_grad():
            q: Tensor = self.net(x, self.P_ts)
        return q

    def inference(self) -> nn.Module:
        return fold(self.net, self.P_ts)

    def state_dict(self) -> State:
        document = {
            "k": self.k,
            "again": self.again,
            "P": self.P.to_lists(),
            "P_fixed": self.P_fixed.to_lists(),
            "P_teacher": None if self.previous is None else self.previous[1].to_lists(),
            "S": self.S,
        }
        tensors = {"weights": dict(self.net.weights(self.P_ts)), **self.memory.tensors()}
        if self.previous is not None:
            tensors["teacher"] = dict(self.previous[0])
        return State(tensors, document)

    def load_state_dict(self, state: State) -> None:
        self.k, self.S = state.document["k"], list(state.document["S"])
        self.P, self.P_fixed = Path.of(state.document["P"]), Path.of(state.document["P_fixed"])
        self.again = state.document["again"]
        self.net.load_weights(state.tensors["weights"])
        self.memory.load(state.tensors)
        if state.document["P_teacher"] is not None:
            weights = {name: torch.as_tensor(value) for name, value in state.tensors["teacher"].items()}
            self.previous = (weights, Path.of(state.document["P_teacher"]))

    def _present(self) -> tuple[dict[str, Tensor], Path]:
        weights = self.net.weights(self.P_ts)
        return {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}, self.P_ts

    def _folded(self, previous: tuple[dict[str, Tensor], Path] | None) -> nn.Module:
        if previous is None:
            raise ValueError("going on with a task needs the teacher it had: make the method with revisit=True")
        net = self.setting.backbone.build(self.setting.seed)
        net.load_weights(previous[0])
        return fold(net, previous[1])

    def _phi(self, k: int, task: Task, old: int, S: list[int]) -> float:
        gamma, budget = self.gamma, pictures(self.setting.budget, self.setting.backbone.shape)
        if gamma is None:
            gamma = (len(task.train) + len(task.val)) / budget if budget else 1.0
        if self.controller == "switch":
            return phi(k, gamma, S)
        return phi_by_ratio(old, task.classes.stop - old, gamma)
