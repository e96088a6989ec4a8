"""The one way to run an experiment: learn, evaluate, record, checkpoint, next."""

import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from randpath import metrics
from randpath.bench.begin import begin
from randpath.bench.experiment import Experiment
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Dataset, Source
from randpath.data.stream import Task, TaskStream
from randpath.engines.device import check_device
from randpath.engines.serial import Engine, Serial
from randpath.engines.threads import in_threads
from randpath.errors import UsageError
from randpath.keyed import rng, seed_of
from randpath.learning.cost import count_flops, megabytes
from randpath.learning.members import Members
from randpath.learning.memory import Memory
from randpath.learning.method import Learned, Measured, Method, Setting, State, Work
from randpath.learning.train import predict
from randpath.methods import METHODS
from randpath.network.backbones import BACKBONES, Backbone
from randpath.network.mean import Mean
from randpath.network.mirrored import Mirrored
from randpath.settings import refuse_unknown
from randpath.storage import checkpoint

FIRST = "predicted_by_first_"  # and how many: what so many of the networks predict together
Lines = dict[str, list[dict[str, Any]]]  # the rows of metrics.jsonl, epochs.jsonl and times.jsonl


def run(
    experiment: Experiment, directory: pathlib.Path, *, engine: Engine | None = None, inexact: bool = False
) -> list[list[float]]:
    """Run an experiment, or go on with it, to its end. Row k of the result: the accuracies on tasks 1..k."""
    return [line["accuracy_by_task"] for line in steps(experiment, directory, engine=engine, inexact=inexact)]


def steps(
    experiment: Experiment,
    directory: pathlib.Path,
    *,
    engine: Engine | None = None,  # none: serial and quiet
    inexact: bool = False,
    command: str = "",
    recipe_file: Mapping[str, Any] | None = None,  # path, sha256 and what it defines, for `resume`
) -> Iterator[dict[str, Any]]:
    """One metrics line per task, those committed by an earlier call first. Each task is one transaction.

    Each line also has "seconds" and "visits", which stay out of metrics.jsonl, and its "notes", if they are new.
    """
    engine = engine or Serial()
    torch.set_num_threads(experiment.threads)
    stream, method = prepare(experiment)
    saved = begin(experiment, directory, stream, command, inexact, recipe_file)
    lines: Lines = {name: saved.documents[name] for name in ("metrics", "epochs", "times")}
    committed = len(lines["metrics"])
    if committed:
        method.load_state_dict(State(saved.tensors, saved.documents["state"]))
    _write_lines(directory, lines)
    if not (directory / "work" / f"task-{committed + 1}").exists():
        checkpoint.discard(directory / "work")  # of a committed task
    for metric, spent in zip(lines["metrics"], lines["times"]):
        yield {**metric, "seconds": spent["seconds"], "visits": spent.get("visits"), "notes": []}

    for k in range(committed + 1, stream.num_tasks + 1):
        place = directory / "work" / f"task-{k}"
        whole = not place.exists()  # false after a resume in mid-task: what was spent before is unknown
        began = time.monotonic(), time.process_time() + engine.cpu_seconds
        engine.tick(0.0)
        task = stream.task(k)
        learned = method.learn(task, Work(engine, place))
        inference = answer(method.inference(), experiment).to(experiment.device)
        accuracy_by_task, answers = _judged(inference, stream, experiment, k)
        state = method.state_dict()
        lines["metrics"].append(_metric(stream, task, learned, accuracy_by_task, answers, lines))
        lines["metrics"][-1] |= {
            "megabytes": megabytes(state.tensors),
            "flops": count_flops(inference, stream.source.train.shape, experiment.device),
            **_own(method, partial(_accuracy, stream, experiment, k), answers),
        }
        lines["epochs"] += [
            {"k": k, "loss_ce": None, "loss_dist": None, "validation": None, **line} for line in learned.epochs
        ]
        lines["times"].append(_spent(k, began, engine, learned, whole))
        checkpoint.write_tensors(directory / "predictions" / f"{k}.safetensors", answers)
        documents = {"run": saved.documents["run"], "state": state.document, **lines}
        checkpoint.save(directory / "checkpoints", f"{k:04d}", state.tensors, documents)
        _write_lines(directory, lines)
        checkpoint.discard(directory / "work")
        spent = lines["times"][-1]
        yield {
            **lines["metrics"][-1],
            "seconds": spent["seconds"],
            "visits": spent["visits"] if whole else None,
            "notes": lines["metrics"][-1].get("notes", []),
        }


def prepare(experiment: Experiment) -> tuple[TaskStream, Method]:
    """The data, cut into tasks, and the method, untrained; refuses what cannot be run to its end."""
    e = experiment
    if e.method not in METHODS:
        raise UsageError(f"there is no method {e.method!r}; there are {', '.join(METHODS)}")
    check_device(e.device)
    source = named.load(e.dataset, size=e.size, skip_bad=e.skip_bad)
    if e.images is not None:
        source = replace(source, train=few(source.train, e.images, e.seed))
    cumulative = METHODS[e.method].cumulative
    stream = TaskStream(source, e.tasks, e.class_order, seed=e.seed, cumulative=cumulative, validation=e.validation)
    method = make_method(e, source)
    Memory(e.budget).require_room(len(stream.class_names))  # now, not at the task that fills it
    return stream, method


def few(data: Dataset, images: int, seed: int) -> Dataset:
    """So many images of each class.

    >>> few(named.load("digits").train, 3, 0).labels.tolist().count(7)
    3
    """
    own = [np.flatnonzero(data.labels == c) for c in np.unique(data.labels)]
    chosen = [rng(seed, "few", int(data.labels[i[0]])).permutation(i)[:images] for i in own]
    return data.take(np.sort(np.concatenate(chosen)))


def make_method(experiment: Experiment, source: Source) -> Method:
    """The method of an experiment, untrained."""
    e = experiment
    if e.training.small_side and (e.backbone == "mlp" or e.attention == "conv"):
        raise UsageError(
            f"training.small_side={e.training.small_side} shrinks the pictures, but {e.backbone} with attention "
            f"{e.attention} takes one size only: add --set training.small_side=null"
        )
    if e.members > 1 and e.processes > 1 and (own := _ones_own(e)):
        raise UsageError(
            f"members with {own[0]}, which is one's own, cannot learn in other processes, which do not know it",
            next="--set processes=1",
        )
    if e.mirror and not source.mirror:
        raise UsageError(
            f"mirror=true averages over mirror images, but a mirrored item of {source.name} is not one of its class",
            next="--set mirror=false",
        )
    setting = Setting(
        backbone=Backbone(
            e.backbone, source.train.shape, e.modules, e.attention, e.width, e.stem, e.activation, e.join
        ),
        training=e.training,
        augment=Augment(source.mean, source.std, e.padding, source.mirror, e.degrees, e.jitter),
        budget=e.budget,
        herding=e.herding,
        seed=e.seed,
        device=e.device,
        threads=e.threads,
        search_threads=e.search_threads,
        auxiliary=_auxiliary(e, source),
    )
    refuse_unknown(e.options, METHODS[e.method], f"method {e.method}")
    seeds = [e.seed, *(seed_of(e.seed, "member", i) for i in range(2, e.members + 1))]
    makers = [partial(METHODS[e.method], replace(setting, seed=seed), **e.options) for seed in seeds]  # type: ignore[call-arg]
    return Members(makers, e.threads, side_by_side(e)) if e.members > 1 else makers[0]()


def _auxiliary(e: Experiment, source: Source) -> Dataset | None:
    """Pictures of other things, for a method that learns from such."""
    if e.auxiliary is None or not getattr(METHODS[e.method], "needs_auxiliary", False):
        return None
    return named.unlabelled(e.auxiliary, source.train.shape)


def _ones_own(experiment: Experiment) -> list[str]:
    """The names of its method and its backbone, if they are not ours."""
    e = experiment
    defined = {e.method: METHODS[e.method], e.backbone: BACKBONES.get(e.backbone, Backbone)}
    return [name for name, thing in defined.items() if not thing.__module__.startswith("randpath.")]


def side_by_side(experiment: Experiment) -> int:
    """How many threads may ask a network at once, where so many processes learn; no bit depends on it.

    One, if it may keep something from one call to the next.
    """
    e = experiment
    return 1 if e.device != "cpu" or _ones_own(e) else max(1, e.processes // e.threads)


def answer(inference: nn.Module, experiment: Experiment) -> nn.Module:
    """What a run is judged by and exported as: a method's answer, averaged over the mirror image if that is asked."""
    if not experiment.mirror:
        return inference
    return Mean(map(Mirrored, inference.nets)) if isinstance(inference, Mean) else Mirrored(inference)


def evaluate(
    inference: nn.Module, stream: TaskStream, device: str, k: int, keep_logits: bool = False, at_once: int = 1
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Accuracy on the test images of each task up to k, and the raw predictions; the only place that sees test data.

    Of several networks also what the first i of them would have answered, because it costs nothing.
    """
    augment = Augment(stream.source.mean, stream.source.std)
    nets = list(inference.nets) if isinstance(inference, Mean) else [inference]

    def asked(test: Dataset) -> dict[str, np.ndarray]:
        each = torch.stack([predict(net, test, augment, device) for net in nets])  # (networks, n, classes)
        q = each.mean(dim=0)
        p = q.softmax(dim=1).max(dim=1)
        found = {
            "label": test.labels,
            "predicted": p.indices.numpy(),
            "confidence": p.values.numpy(),
            # how many classes score higher than the true one
            "rank": (q > q.gather(1, torch.from_numpy(test.labels)[:, None])).sum(dim=1).short().numpy(),
        }
        found |= {f"{FIRST}{i}": each[:i].mean(dim=0).argmax(dim=1).numpy() for i in range(1, len(nets))}
        if keep_logits:
            found["logits"] = q.clamp(-65504, 65504).half().numpy()  # the largest float16
        return found

    found = in_threads(at_once, asked, [stream.test(j) for j in range(1, k + 1)])
    by_task = [metrics.accuracy(one["label"], one["predicted"]) for one in found]
    return by_task, {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def fewer(answers: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The accuracy of the first network alone, of the first two, and so on, short of all.

    >>> fewer({"label": np.array([3, 4]), "predicted": np.array([3, 4]), f"{FIRST}1": np.array([3, 3])})
    {'network 1 alone': 0.5}
    """
    by_first = {int(name.removeprefix(FIRST)): own for name, own in answers.items() if name.startswith(FIRST)}
    return {
        "network 1 alone" if i == 1 else f"networks 1 to {i}": metrics.accuracy(answers["label"], own)
        for i, own in sorted(by_first.items())
    }


def _judged(
    inference: nn.Module, stream: TaskStream, e: Experiment, k: int
) -> tuple[list[float], dict[str, np.ndarray]]:
    """What `evaluate` finds, as the experiment says how to ask."""
    return evaluate(inference, stream, e.device, k, e.logits, side_by_side(e))


def _own(
    method: Method, accuracy: Callable[[nn.Module], float], answers: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """A method's own metrics, if it has such, and those of fewer networks."""
    found = (method.metrics(accuracy) if isinstance(method, Measured) else {}) | fewer(answers)
    return {"own": found} if found else {}


def _accuracy(stream: TaskStream, experiment: Experiment, k: int, module: nn.Module) -> float:
    """On the test images of tasks 1..k, for a method's own metrics."""
    _, answers = _judged(answer(module, experiment).to(experiment.device), stream, experiment, k)
    return metrics.accuracy(answers["label"], answers["predicted"])


def _metric(
    stream: TaskStream,
    task: Task,
    learned: Learned,
    accuracy_by_task: list[float],
    answers: Mapping[str, np.ndarray],
    lines: Lines,
) -> dict[str, Any]:
    """A line of metrics.jsonl, but for what the method weighs."""
    matrix = [*(line["accuracy_by_task"] for line in lines["metrics"]), accuracy_by_task]
    notes = [*learned.notes, *learned.remarks]
    return {
        "k": task.k,
        "classes": list(stream.class_names[: task.num_classes]),
        "accuracy": metrics.accuracy(answers["label"], answers["predicted"]),
        "accuracy_by_task": accuracy_by_task,
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "top5": float(np.mean(answers["rank"] < 5)) if task.num_classes > 5 else None,
        "saturation": learned.saturation,
        "switched": learned.switched,
        "path": None if learned.path is None else learned.path.to_lists(),
        "parameters_trained": learned.parameters_trained,
        "parameters": learned.parameters,
        **({"notes": notes} if notes else {}),
    }


def _spent(k: int, began: tuple[float, float], engine: Engine, learned: Learned, whole: bool) -> dict[str, Any]:
    """A line of times.jsonl: what may differ between two identical runs."""
    cpu_seconds = time.process_time() + engine.cpu_seconds - began[1]
    visits = [line.get("visits") for line in learned.epochs]  # a fit begun by an older release did not count
    return {
        "k": k,
        "seconds": round(time.monotonic() - began[0], 2),
        "whole": whole,
        "cpu_seconds": round(cpu_seconds, 2) if whole else None,
        "visits": None if None in visits else sum(visits),
        **({"cpu_seconds_of_each": learned.cpu_seconds} if whole and learned.cpu_seconds else {}),
    }


def _write_lines(directory: pathlib.Path, lines: Lines) -> None:
    for name, rows in lines.items():
        checkpoint.write_lines(directory / f"{name}.jsonl", rows)
