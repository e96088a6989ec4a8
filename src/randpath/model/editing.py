"""Rename, forget or merge classes: a new model from the stored form of the old one, and so checked as any other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from torch import Tensor

from randpath.data.dataset import Dataset, Joined, stored
from randpath.errors import UsageError
from randpath.learning.anchor import relabelled
from randpath.learning.memory import in_turn
from randpath.learning.train import predict
from randpath.model.model import Model
from randpath.model.stored import encode_label, origins
from randpath.names import clean, normal, shown
from randpath.network.fold import Folded
from randpath.storage.checkpoint import Saved

NEAR = 1e-3  # how much a merged row is held to its start: enough to make it one and the same on every machine


def number_of(model: Model, name: str) -> int:
    """Which class reads `name`."""
    texts = [model.text(c) for c in range(len(model.names))]
    if (wanted := normal(name)) in texts:
        return texts.index(wanted)
    raise UsageError(f"the model has no class {shown(name)!r}; it has {', '.join(texts[:20])}")


def rename(model: Model, old: str, new: str) -> None:
    """Give the class that reads `old` another name, also in what was said of it."""
    c, new = number_of(model, old), clean(new)
    if new in [model.text(i) for i in range(len(model.names))]:
        raise UsageError(f"{new!r} is a class already")
    text = model.text(c)
    model.names[c] = new
    left = iter(model.names)
    for entry in model.history:
        entry["classes_added"] = [encode_label(next(left)) for _ in entry["classes_added"]]
        for key in ("dropped", "fewer_right"):
            entry[key] = {new if name == text else name: value for name, value in entry.get(key, {}).items()}
        said = entry.get("confusions", [])
        entry["confusions"] = [[new if name == text else name for name in row[:2]] + row[2:] for row in said]


def forget(model: Model, c: int) -> Model:
    """The model without class c: its name, its exemplars, its row in the classifier and what was said of it.

    The other weights were trained on its pictures too, and stay.
    """
    if len(model.names) == 1:
        raise UsageError(
            f"{model.text(c)} is the only class: a model without a class is none", next="remove the folder"
        )
    labels = [i - (i > c) if i != c else -1 for i in range(len(model.names))]
    tensors, document = _stored(model)
    for file in _classifiers(tensors):
        _drop_row(tensors, document, file, c)
    return _rebuilt(model, tensors, document, labels, [model.text(c)])


def merge(model: Model, kept: int, other: int) -> Model:
    """The model in which the pictures of class `other` are of class `kept` too, under its name.

    The row of the new class is fitted to the sum of the two probabilities on the exemplars: a convex problem.
    """
    if kept == other:
        raise UsageError(f"{model.text(kept)} is one class already: name two")
    first, second = sorted((kept, other))
    for c in (first, second):
        if c not in model.method.memory.train:
            raise UsageError(
                f"the model keeps no pictures of {model.text(c)} inside, from which alone a merged class can be made"
            )
    labels = [first if i == second else i - (i > second) for i in range(len(model.names))]
    tensors, document = _stored(model)
    nets = {"weights": model.method.inference().cpu(), "teacher": model.folded_teacher()}
    for file in _classifiers(tensors):
        net = nets[file]
        assert isinstance(net, Folded)
        if second < len(tensors[file]["head.weight"]):
            data = Joined([part for c, part in model.method.memory.train.items() if c < net.num_classes])
            row, bias = _merged_row(model, net, data, first, second)
            tensors[file]["head.weight"][first], tensors[file]["head.bias"][first] = row, bias
            _drop_row(tensors, document, file, second)
    document["names"][first] = document["names"][kept]
    return _rebuilt(model, tensors, document, labels, [model.text(other)])


def _stored(model: Model) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """A copy of all that is stored of a model, but for its calibration."""
    state, document = model.state()
    tensors = {
        file: {name: tensor.detach().cpu().clone() for name, tensor in part.items()}
        for file, part in state.tensors.items()
        if file != "known"
    }
    return tensors, {**document, "names": [*document["names"]], "novelty": None}


def _classifiers(tensors: dict[str, dict[str, Tensor]]) -> list[str]:
    return [file for file in ("weights", "teacher") if file in tensors]


def _drop_row(tensors: dict[str, dict[str, Tensor]], document: dict[str, Any], file: str, c: int) -> None:
    """Take class c out of a classifier; a teacher that knows no class is none."""
    own = tensors[file]
    if c >= len(own["head.weight"]):
        return
    if file == "teacher" and len(own["head.weight"]) == 1:
        del tensors[file]
        document["method"] = {**document["method"], "P_teacher": None}
        return
    keep = torch.arange(len(own["head.weight"])) != c
    own["head.weight"], own["head.bias"] = own["head.weight"][keep], own["head.bias"][keep]


def _rebuilt(
    model: Model,
    tensors: dict[str, dict[str, Tensor]],
    document: dict[str, Any],
    labels: list[int],  # of each old class; -1: none
    gone: list[str],
) -> Model:
    """The model of what is left, calibrated by the held-out pictures inside."""
    new = np.array(labels, np.int64)
    for file in ("memory_train", "memory_val"):
        if file in tensors:
            data = stored({key: tensor.numpy() for key, tensor in tensors[file].items()})
            left = np.flatnonzero(new[data.labels] >= 0)
            del tensors[file]
            if len(left):
                kept = _sorted(data.take(left), new)
                tensors[file] = {key: torch.from_numpy(array) for key, array in kept.tensors().items()}
    tensors["fingerprints"] = model.fingerprints.relabelled(labels).tensors()
    if model.sums is not None:
        tensors["sums"] = relabelled(model.sums, labels).tensors()
    document["history"] = _history(model, document["names"], labels, gone)
    document["names"] = [name for entry in document["history"] for name in entry["classes_added"]]
    rebuilt = Model.restore(Saved(tensors, {"model": document}), model.device, model.directory)
    if rebuilt.calibrate(list(rebuilt.method.memory.val.values()))[2] is None:  # too little is held out to do it by
        _keep_calibration(model, rebuilt)
    return rebuilt


def _keep_calibration(model: Model, rebuilt: Model) -> None:
    """Confidence and "unknown" as they were settled when pictures were there."""
    rebuilt.temperature, rebuilt.power = model.temperature, model.power
    rebuilt.threshold, rebuilt.doubt = model.threshold, model.doubt
    if model.novelty is not None and (gauge := rebuilt.gauge()) is not None:
        rebuilt.novelty = replace(model.novelty, gauge=gauge)


def _history(model: Model, names: list[Any], labels: list[int], gone: list[str]) -> list[dict[str, Any]]:
    """The history without what is gone: a class stays with the call that brought the first of its parts."""
    came = origins(model.history)
    history, c = [], 0
    for entry in model.history:
        own = range(c, c := c + len(entry["classes_added"]))
        stay = [i for i in own if labels[i] >= 0 and labels.index(labels[i]) == i]
        new = {**entry, "classes_added": [names[i] for i in stay]}
        parts = [[came[k] for k in range(len(labels)) if labels[k] == labels[i]] for i in stay]
        new["origins"] = [sorted(set().union(*part)) for part in parts]
        for key in ("dropped", "fewer_right"):
            new[key] = {name: value for name, value in entry.get(key, {}).items() if name not in gone}
        new["confusions"] = [row for row in entry.get("confusions", []) if not {*row[:2]} & {*gone}]
        history.append(new)
    return history


def _sorted(data: Dataset, new: np.ndarray) -> Dataset:
    """Class by class under its new label, as a memory is stored; what was several classes comes in turn.

    Side by side, the next learn would drop all exemplars of one of them: a smaller share keeps the first ones.
    """
    order = []
    for c in np.unique(new[data.labels]).tolist():
        parts = [np.flatnonzero(data.labels == old) for old in np.flatnonzero(new == c)]
        order.append(np.concatenate(parts)[in_turn([len(part) for part in parts])])
    chosen = np.concatenate(order)
    return data.take(chosen, new[data.labels[chosen]])


def _merged_row(model: Model, net: Folded, data: Dataset, a: int, b: int) -> tuple[Tensor, Tensor]:
    """w, b of one class whose probability on `data` is nearest to p_a + p_b (cross-entropy, held to its start)."""
    net = net.float()
    f = predict(net.features, data, model.plan.augment()).double().numpy()
    f = np.concatenate([f, np.ones((len(f), 1))], axis=1)  # the last weight is the bias
    W = torch.cat([net.head.weight, net.head.bias[:, None]], dim=1).detach().double().numpy()
    p = softmax(f @ W.T, axis=1)
    rest = [c for c in range(len(W)) if c not in (a, b)]
    target = np.concatenate([p[:, [a]] + p[:, [b]], p[:, rest]], axis=1)
    q_rest = f @ W[rest].T
    start = W[[a, b]].mean(axis=0)

    def loss(row: np.ndarray) -> tuple[float, np.ndarray]:
        q = np.concatenate([(f @ row)[:, None], q_rest], axis=1)
        value = -float(np.mean(np.sum(target * log_softmax(q, axis=1), axis=1)))
        slope = f.T @ (softmax(q, axis=1)[:, 0] - target[:, 0]) / len(f)
        return value + NEAR / 2 * float(np.sum((row - start) ** 2)), slope + NEAR * (row - start)

    row = torch.from_numpy(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x).float()
    return row[:-1], row[-1]


def bears(model: Model, name: str) -> bool:
    """Whether a class reads `name`."""
    return normal(name) in [model.text(c) for c in range(len(model.names))]


def origins_of(name: str, now: Model, models: Sequence[Model]) -> set[str]:
    """Where all came from that bears the name in one of `models`, and is not another class of `now`."""
    wanted, found = normal(name), set[str]()
    for model in models:
        found |= set().union(*(own for c, own in enumerate(origins(model.history)) if model.text(c) == wanted))
    if not found:
        number_of(now, name)  # says which classes there are
    others = {now.text(c): own for c, own in enumerate(origins(now.history)) if now.text(c) != wanted and own & found}
    if not (gone := found.difference(*others.values())):
        is_now = next(iter(others))
        raise UsageError(f"{shown(name)} is {is_now} now, or a part of it", next=f"forget {is_now}")
    return gone


def without(model: Model, gone: set[str]) -> Model | None:
    """The model without the classes that came from there; none if it has no others."""
    lost = [c for c, own in enumerate(origins(model.history)) if own & gone]
    if len(lost) == len(model.names):
        return None
    for c in reversed(lost):
        model = forget(model, c)
    return model
