"""An experiment, frozen and serialisable, and the one way to run it: learn, evaluate, record, checkpoint, next."""

import builtins
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import signature
from pathlib import Path as Directory
from typing import Any, Literal, get_args

import numpy as np
import torch

from randpath import checkpoint, data, metrics
from randpath.augment import Augment
from randpath.backbones import Activation, Backbone, Stem
from randpath.images import Source, changes
from randpath.memory import Memory
from randpath.method import Map, Method, Setting, State, Work, check_device, count_flops
from randpath.methods import METHODS
from randpath.network import Attention
from randpath.provenance import commit, environment
from randpath.stream import TaskStream
from randpath.train import Tick, Training, predict, quiet


@dataclass(frozen=True)
class Experiment:
    """All that decides a result. The defaults are the paper's (section 4.1)."""

    dataset: str  # a name, or folder:PATH for one's own pictures
    tasks: int | tuple[int, ...] | tuple[tuple[str, ...], ...]
    recipe: str = ""
    variant: Literal["paper", "tuned"] = "paper"
    class_order: Literal["natural"] | int | tuple[str, ...] = "natural"
    method: str = "rps"
    options: Mapping[str, Any] = field(default_factory=dict)  # the method's own
    backbone: str = "resnet18_cifar"
    width: int | None = None
    modules: int = 8  # M
    attention: Attention = "peak"
    stem: Stem = "learned"  # "whiten": a fixed first layer, made from the first task's images
    activation: Activation = "relu"
    training: Training = Training()
    padding: int = 4  # pixels that a crop may shift
    degrees: float = 10.0  # of rotation
    validation: bool = True  # a tenth is held out, to choose paths on; false: all images train, and N is 1
    memory: int = 2000
    herding: bool = False
    size: int | None = None  # the side to which pictures kept as files are brought; none: the dataset's own
    skip_bad: bool = False  # leave out the faulty files of a folder
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    search_threads: int = 1
    processes: int = 1  # that train candidates side by side; no result depends on it

    def __post_init__(self) -> None:
        """Refuse what no run could use, with the name of the setting, before anything is written."""
        whole = {"padding": 0, "memory": 0, "seed": 0, "modules": 1, "threads": 1, "search_threads": 1, "processes": 1}
        for name, least in whole.items():
            _demand(_is_whole(getattr(self, name), least), name, f"a whole number of at least {least}", self)
        for name in ("width", "size"):
            value = getattr(self, name)
            _demand(value is None or _is_whole(value, 1), name, "a whole number of at least 1, or null", self)
        for name in ("herding", "skip_bad", "validation"):
            _demand(isinstance(getattr(self, name), bool), name, "true or false", self)
        for name in ("dataset", "method", "backbone", "device"):
            _demand(isinstance(getattr(self, name), str) and getattr(self, name) != "", name, "a name", self)
        for name, kinds in (("attention", Attention), ("stem", Stem), ("activation", Activation)):
            _demand(getattr(self, name) in get_args(kinds), name, ", ".join(get_args(kinds)), self)
        degrees = isinstance(self.degrees, int | float) and 0 <= self.degrees <= 180
        _demand(degrees, "degrees", "a number from 0 to 180", self)
        groups = isinstance(self.tasks, tuple) and len(self.tasks) > 0
        _demand(_is_whole(self.tasks, 1) or groups, "tasks", "a number of tasks, or a list of sizes or of names", self)
        order = self.class_order
        named = isinstance(order, tuple) and all(isinstance(name, str) for name in order)
        known = order == "natural" or _is_whole(order, 0) or named
        _demand(known, "class_order", '"natural", a seed of at least 0 or a list of names', self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Experiment":
        training = {k: _tuples(v) for k, v in document["training"].items()}
        plain = {k: _tuples(v) for k, v in document.items() if k not in ("training", "options")}
        return cls(**plain, options=dict(document["options"]), training=Training(**training))

    def changed(self, key: str, value: Any) -> "Experiment":
        """A copy with one setting changed, for `--set`; nested ones as training.epochs or options.gamma.

        >>> Experiment("digits", 5).changed("training.epochs", 3).training.epochs
        3
        """
        outer, _, inner = key.partition(".")
        known = [f.name for f in fields(self)]
        if outer == "options" and inner:
            return replace(self, options={**self.options, inner: value})
        if outer == "training" and inner:
            if inner not in (f.name for f in fields(Training)):
                raise ValueError(f"training has no {inner!r}; it has {', '.join(f.name for f in fields(Training))}")
            return replace(self, training=replace(self.training, **{inner: _tuples(value)}))
        # Not what names a result: a tuned run must not be recorded as the paper's.
        plain = [name for name in known if name not in ("options", "training", "recipe", "variant")]
        if outer not in plain or inner:
            raise ValueError(f"there is no setting {key!r}; there are {', '.join(plain)}, training.*, options.*")
        return replace(self, **{outer: _tuples(value)})

    def with_settings(self, settings: Sequence[str]) -> "Experiment":
        """A copy with settings changed as they are typed.

        >>> Experiment("digits", 5).with_settings(["memory=100", "attention=none"]).attention
        'none'
        """
        experiment = self
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"a setting is changed by key=value, got {setting!r}")
            try:
                value = json.loads(text)
            except json.JSONDecodeError:
                value = text
            experiment = experiment.changed(key, value)
        return experiment


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _demand(good: bool, name: str, what: str, experiment: Experiment) -> None:
    if not good:
        raise ValueError(f"{name} must be {what}; got {getattr(experiment, name)!r}")


def _tuples(value: Any) -> Any:
    """JSON has lists where the dataclasses have tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def make_method(experiment: Experiment, source: Source) -> Method:
    """The method of an experiment, untrained."""
    e = experiment
    if e.method not in METHODS:
        raise ValueError(f"there is no method {e.method!r}; there are {', '.join(METHODS)}")
    check_device(e.device)
    if e.training.small_side and (e.backbone == "mlp" or e.attention == "conv"):
        raise ValueError(
            f"training.small_side={e.training.small_side} shrinks the pictures, but {e.backbone} with attention "
            f"{e.attention} takes one size only: add --set training.small_side=null"
        )
    setting = Setting(
        backbone=Backbone(e.backbone, source.train.shape, e.modules, e.attention, e.width, e.stem, e.activation),
        training=e.training,
        augment=Augment(source.mean, source.std, e.padding, source.mirror, e.degrees),
        budget=e.memory,
        herding=e.herding,
        seed=e.seed,
        device=e.device,
        threads=e.threads,
        search_threads=e.search_threads,
    )
    options = [name for name in signature(METHODS[e.method]).parameters if name != "setting"]
    for name in e.options:
        if name not in options:
            raise ValueError(f"method {e.method} has no option {name!r}; it has {', '.join(options) or 'none'}")
    return METHODS[e.method](setting, **e.options)  # type: ignore[call-arg]


class Changed(ValueError):
    """A run cannot go on exactly: its settings, data or environment are not those it began with."""

    def __init__(self, what: str, next: str | None = None):
        super().__init__(what)
        self.next = next  # to type


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
    source = data.load(experiment.dataset, size=experiment.size, skip_bad=experiment.skip_bad)
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
    Memory(experiment.memory).require_room(len(stream.class_names))  # now, not at the task that fills it
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
        raise Changed(text, None if differ else f"to go on all the same, type: randpath resume {directory} --inexact")
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
