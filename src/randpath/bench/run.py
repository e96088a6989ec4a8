"""The one way to run an experiment: learn, evaluate, record, checkpoint, next."""

import builtins
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from inspect import signature
from pathlib import Path as Directory
from typing import Any

import numpy as np
import torch

from randpath import metrics
from randpath.bench.experiment import Experiment
from randpath.bench.provenance import commit, environment
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Source, changes
from randpath.data.stream import TaskStream
from randpath.errors import Changed, UsageError
from randpath.learning.memory import Memory
from randpath.learning.method import Map, Method, Setting, State, Work, check_device, count_flops
from randpath.learning.train import Tick, Training, predict, quiet
from randpath.methods import METHODS
from randpath.network.backbones import Backbone
from randpath.storage import checkpoint


def make_method(experiment: Experiment, source: Source) -> Method:
    """The method of an experiment, untrained."""
    e = experiment
    if e.method not in METHODS:
        raise UsageError(f"there is no method {e.method!r}; there are {', '.join(METHODS)}")
    check_device(e.device)
    if e.training.small_side and (e.backbone == "mlp" or e.attention == "conv"):
        raise UsageError(
            f"training.small_side={e.training.small_side} shrinks the pictures, but {e.backbone} with attention "
            f"{e.attention} takes one size only: add --set training.small_side=null"
        )
    setting = Setting(
        backbone=Backbone(
            e.backbone, source.train.shape, e.modules, e.attention, e.width, e.stem, e.activation, e.join
        ),
        training=e.training,
        augment=Augment(source.mean, source.std, e.padding, source.mirror, e.degrees),
        budget=e.budget,
        herding=e.herding,
        seed=e.seed,
        device=e.device,
        threads=e.threads,
        search_threads=e.search_threads,
    )
    options = [name for name in signature(METHODS[e.method]).parameters if name != "setting"]
    for name in e.options:
        if name not in options:
            raise UsageError(f"method {e.method} has no option {name!r}; it has {', '.join(options) or 'none'}")
    return METHODS[e.method](setting, **e.options)  # type: ignore[call-arg]


def run(
    experiment: Experiment, directory: Directory, *, map: Map = map, tick: Tick = quiet, inexact: bool = False
) -> list[list[float]]:
    """Run an experiment, or go on with it, to its end. Row k of the result: the accuracies on tasks 1..k."""
    return [line["accuracy_by_task"] for line in steps(experiment, directory, map=map, tick=tick, inexact=inexact)]


def steps(
    experiment: Experiment,
    directory: Directory,
    *,
    map: Map = map,
    tick: Tick = quiet,
    inexact: bool = False,
    command: str = "",
) -> Iterator[dict[str, Any]]:
    """One metrics line a task, those committed by an earlier call first. Each task is one transaction.

    Each line also has "seconds" and "notes", which stay out of metrics.jsonl.
    """
    torch.set_num_threads(experiment.threads)
    source = named.load(experiment.dataset, size=experiment.size, skip_bad=experiment.skip_bad)
    cumulative = METHODS[experiment.method].cumulative if experiment.method in METHODS else False
    stream = TaskStream(
        source,
        experiment.tasks,
        experiment.class_order,
        seed=experiment.seed,
        cumulative=cumulative,
        validation=experiment.validation,
    )
    method = make_method(experiment, source)
    Memory(experiment.budget).require_room(len(stream.class_names))  # now, not at the task that fills it
    saved = _begin(experiment, directory, stream, command, inexact)
    begun = saved.documents["run"]
    lines: dict[str, list[dict[str, Any]]] = {name: saved.documents[name] for name in ("metrics", "epochs", "times")}
    if lines["metrics"]:
        method.load_state_dict(State(saved.tensors, saved.documents["state"]))
    _write_lines(directory, lines)
    if not (directory / "work" / f"task-{len(lines['metrics']) + 1}").exists():
        checkpoint.discard(directory / "work")  # of a committed task
    for metric, spent in zip(lines["metrics"], lines["times"]):
        yield {**metric, "seconds": spent["seconds"], "notes": []}

    for k in range(len(lines["metrics"]) + 1, stream.num_tasks + 1):
        began, cpu_began = time.monotonic(), _cpu_seconds(map)
        place = directory / "work" / f"task-{k}"
        whole = not place.exists()  # else an earlier process spent time on it that nobody counted
        task = stream.task(k)
        tick(0.0)
        learned = method.learn(task, Work(map, place, tick))
        accuracy_by_task, everything = _evaluate(method, stream, experiment, k, source)
        state_now = method.state_dict()
        metric = {
            "k": k,
            "classes": list(stream.class_names[: task.classes.stop]),
            "accuracy": metrics.accuracy(everything["label"], everything["predicted"]),
            "accuracy_by_task": accuracy_by_task,
            "forgetting": metrics.forgetting(
                [*(line["accuracy_by_task"] for line in lines["metrics"]), accuracy_by_task]
            ),
            "saturation": learned.saturation,
            "switched": learned.switched,
            "path": None if learned.path is None else learned.path.to_lists(),
            "parameters_trained": learned.parameters_trained,
            "parameters": learned.parameters,
            "megabytes": _megabytes(state_now),
            "flops": count_flops(method.logits, source.train.shape, experiment.device),
        }
        lines["metrics"].append(metric)
        lines["epochs"] += [
            {"k": k, "loss_ce": None, "loss_dist": None, "validation": None, **line} for line in learned.epochs
        ]
        cpu = _cpu_seconds(map)
        spent = {
            "k": k,
            "seconds": round(time.monotonic() - began, 2),
            "whole": whole,
            "cpu_seconds": None if not whole or cpu is None or cpu_began is None else round(cpu - cpu_began, 2),
            "visits": sum(line["visits"] for line in learned.epochs),
        }
        lines["times"].append(spent)
        checkpoint.write_tensors(directory / "predictions" / f"{k}.safetensors", everything)
        documents = {"run": begun, "state": state_now.document, **lines}
        checkpoint.save(directory / "checkpoints", f"{k:04d}", state_now.tensors, documents)
        _write_lines(directory, lines)
        checkpoint.discard(directory / "work")
        yield {**metric, "seconds": spent["seconds"], "notes": learned.notes}


def _cpu_seconds(map: Map) -> float | None:
    """User and system time of this process and of the workers of `map`; none if `map` does not tell theirs."""
    workers = 0.0 if map is builtins.map else getattr(map, "cpu_seconds", None)
    return None if workers is None else time.process_time() + workers


FREE = ("processes", "training.save_seconds")  # settings that cannot change a result


def _begin(
    experiment: Experiment, directory: Directory, stream: TaskStream, command: str, inexact: bool
) -> checkpoint.Saved:
    """The last checkpoint, number 0000 for a new run; refuses to go on with another experiment, environment or data.

    Each checkpoint holds what the run began with: experiment.json is the copy to read, and may have been edited since.
    """
    now = {
        "experiment": experiment.to_json(),
        "environment": environment(),
        "data_fingerprint": stream.source.fingerprint,
        "class_order": list(stream.class_order),
        "class_names": list(stream.class_names),
        "command": command,
        "commits": [commit()],
    }
    now = checkpoint.parse_document(checkpoint.encode_document(now))  # lists for tuples
    file, place = directory / "experiment.json", directory / "checkpoints"
    found = checkpoint.latest(place)
    if found is None:
        if file.exists():
            warnings.warn(f"{directory} has lost its checkpoints: it begins again", stacklevel=2)
        checkpoint.write_document(file, now)
        checkpoint.write_document(directory / "files.json", dict(stream.source.files))
        checkpoint.write_document(directory / "skipped.json", list(stream.source.skipped))
        empty: dict[str, object] = {"run": now, "state": None, "metrics": [], "epochs": [], "times": []}
        return checkpoint.load(checkpoint.save(place, "0000", {}, empty))
    saved = found[1]
    before = saved.documents["run"]
    # A setting that came with a later version stood at its default, though nobody could write it down.
    began_with = {
        **{f.name: f.default for f in fields(Experiment)},
        **before["experiment"],
        "training": {**asdict(Training()), **before["experiment"]["training"]},
    }
    differ = _differences(began_with, now["experiment"])
    if before["data_fingerprint"] != now["data_fingerprint"]:
        differ.append(f"the data of {experiment.dataset}: fingerprint {before['data_fingerprint'][:12]} then")
        differ += changes(checkpoint.read_document(directory / "files.json"), stream.source.files)
    elsewhere = _differences(before["environment"], now["environment"])
    if differ or (elsewhere and not inexact):
        text = "\n  ".join([f"{directory} was begun with something else:", *differ, *elsewhere])
        raise Changed(
            text, next="" if differ else f"to go on all the same, type: randpath resume {directory} --inexact"
        )
    if len(saved.documents["metrics"]) < stream.num_tasks:  # a finished run owes nothing to who reads it
        before["experiment"] = now["experiment"]  # what is free to change
        before["commits"] = sorted({*before.get("commits", []), *now["commits"]}, key=str)
        if elsewhere:
            before["inexact"] = sorted({*before.get("inexact", []), *elsewhere})
    checkpoint.write_document(file, before)
    return saved


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What was and what is, key by key."""
    found = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new and prefix + key not in FREE:
            found.append(f"{prefix}{key}: {old!r} then, {new!r} now")
    return found


def _evaluate(
    method: Method, stream: TaskStream, experiment: Experiment, k: int, source: Source
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Accuracy on the test images of each task up to k, and the raw predictions; the only place that sees test data."""
    augment = Augment(source.mean, source.std)
    labels, predicted, confidence, by_task = [], [], [], []
    for j in range(1, k + 1):
        test = stream.test(j)
        p = predict(method.logits, test, augment, experiment.device).softmax(dim=1).max(dim=1)
        labels.append(test.labels)
        predicted.append(p.indices.numpy())
        confidence.append(p.values.numpy())
        by_task.append(metrics.accuracy(labels[-1], predicted[-1]))
    return by_task, {
        "label": np.concatenate(labels),
        "predicted": np.concatenate(predicted),
        "confidence": np.concatenate(confidence),
    }


def _megabytes(state: State) -> float:
    """Model and exemplars, as stored."""
    return round(sum(t.nbytes for group in state.tensors.values() for t in group.values()) / 1e6, 4)


def _write_lines(directory: Directory, lines: Mapping[str, list[dict[str, Any]]]) -> None:
    for name, rows in lines.items():
        checkpoint.write_lines(directory / f"{name}.jsonl", rows)
