"""Several learners of one kind, of different seeds, that share the exemplars: the mean of their logits answers.

None hears of the others while it learns, so that they learn side by side on as many cores. The first one chooses the
exemplars, and is what it would be alone.
"""

import pathlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from randpath.data.stream import Task
from randpath.engines.serial import Serial, Tick
from randpath.engines.threads import in_threads
from randpath.learning.method import Learned, Method, State, Work
from randpath.network.mean import Mean

MEMORY = "memory_"  # what the files of the exemplars are called


@dataclass(frozen=True)
class Call:
    """What one member is to learn; it crosses processes."""

    index: int
    make: Callable[[], Method]
    state: State | None  # none before the first task
    task: Task
    threads: int
    place: pathlib.Path | None


class Members:
    """Learners that `makers` make; so many of them at once may make up their answers (`at_once`), in a thread each."""

    cumulative: ClassVar[bool] = False  # a stream is cut before there are members: their own class says how

    def __init__(self, makers: Sequence[Callable[[], Method]], threads: int, at_once: int = 1):
        self.makers, self.threads, self.at_once, self.have_learned = makers, threads, at_once, False
        self.members = [make() for make in makers]

    def learn(self, task: Task, work: Work) -> Learned:
        calls = [
            Call(i, make, on_cpu(member) if self.have_learned else None, task, self.threads, work.at(f"member-{i}"))
            for i, (make, member) in enumerate(zip(self.makers, self.members), start=1)
        ]
        found = sorted(work.engine.map(learn_one, calls), key=lambda result: result[0])  # they come in any order
        self._take_over([state for _, state, _ in found])
        return together([learned for _, _, learned in found])

    def _take_over(self, states: Sequence[State]) -> None:
        """Make the members anew, all with the exemplars of the first."""
        memory = {name: tensors for name, tensors in states[0].tensors.items() if name.startswith(MEMORY)}
        members = [make() for make in self.makers]
        for member, state in zip(members, states):
            member.load_state_dict(State(without_memory(state.tensors) | memory, state.document))
        self.members, self.have_learned = members, True

    def inference(self) -> nn.Module:
        return Mean(in_threads(self.at_once, lambda member: member.inference(), self.members))

    def state_dict(self) -> State:
        first, *others = (member.state_dict() for member in self.members)
        tensors = dict(first.tensors)
        for i, state in enumerate(others, start=2):
            tensors |= {f"member_{i}_{name}": own for name, own in without_memory(state.tensors).items()}
        return State(tensors, {"members": [state.document for state in (first, *others)]})

    def load_state_dict(self, state: State) -> None:
        documents = state.document["members"]
        prefixes = ["", *(f"member_{i}_" for i in range(2, len(documents) + 1))]
        own = [
            {name.removeprefix(prefix): tensors for name, tensors in state.tensors.items() if name.startswith(prefix)}
            for prefix in prefixes
        ]
        own[0] = {name: tensors for name, tensors in own[0].items() if not name.startswith("member_")}
        self._take_over([State(tensors, document) for tensors, document in zip(own, documents)])


def learn_one(call: Call, tick: Tick) -> tuple[int, State, Learned]:
    """One member's task; the result depends on the call alone, its place only shortens a retry."""
    torch.set_num_threads(call.threads)
    began = time.process_time()
    member = call.make()
    if call.state is not None:
        member.load_state_dict(call.state)
    learned = member.learn(call.task, Work(Serial(tick), call.place))
    return call.index, on_cpu(member), replace(learned, cpu_seconds=[round(time.process_time() - began, 2)])


def on_cpu(member: Method) -> State:
    """A state that can cross processes."""
    state = member.state_dict()
    tensors = {file: {name: t.detach().cpu() for name, t in own.items()} for file, own in state.tensors.items()}
    return State(tensors, state.document)


def together(learned: Sequence[Learned]) -> Learned:
    """What all have learned; a path, its mu_sat and whether it was switched are those of the first."""
    first, *others = learned
    notes, remarks = list(first.notes), list(first.remarks)
    for i, one in enumerate(others, start=2):
        notes += [f"network {i}: {note}" for note in one.notes if note not in first.notes]
        remarks += [f"network {i}: {remark}" for remark in one.remarks if remark not in first.remarks]
    return Learned(
        epochs=[{"member": i, **line} for i, one in enumerate(learned, start=1) for line in one.epochs],
        parameters_trained=sum(one.parameters_trained for one in learned),
        parameters=sum(one.parameters for one in learned),
        saturation=first.saturation,
        switched=first.switched,
        path=first.path,
        notes=notes,
        remarks=remarks,
        cpu_seconds=[seconds for one in learned for seconds in one.cpu_seconds],
    )


def without_memory(tensors: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {name: own for name, own in tensors.items() if not name.startswith(MEMORY)}
