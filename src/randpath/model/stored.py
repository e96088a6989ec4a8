"""Is this one of our models? Every part of a stored one is checked before anything is built from it."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import Any, Literal

import torch

from randpath.errors import Damaged, UsageError
from randpath.model.sizing import Plan
from randpath.network.backbones import BACKBONES
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from randpath.storage.checkpoint import Saved

FORMAT = 1  # of model.json; an unknown one is refused
REPORTED = {"k", "again", "classes_added", "path", "saturation", "switched", "accuracy_new", "accuracy_old", "notes"}
Label = Hashable


def encode_label(label: Label) -> Any:
    """A label as JSON has it: text, numbers, truth values, none, and tuples of them.

    >>> encode_label(("a", 1)), decode_label({"tuple": ["a", 1]})
    ({'tuple': ['a', 1]}, ('a', 1))
    """
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if label is None or isinstance(label, str | bool | int) or (isinstance(label, float) and math.isfinite(label)):
        return label
    raise UsageError(f"a label must be text, a number, a truth value, None or a tuple of such, got {label!r}")


def decode_label(document: Any) -> Label:
    if isinstance(document, dict):
        return tuple(decode_label(part) for part in document["tuple"])
    if isinstance(document, list):
        raise Damaged(f"{document!r} is not a label")
    label: Label = document
    return label


def plan_from(document: Mapping[str, Any]) -> Plan:
    """The plan, if every number in it is one that we could have written: nothing may be built from the others."""
    tuples = {key: tuple(document[key]) for key in ("shape", "mean", "std")}
    if {f.name for f in fields(Plan)} != set(document):
        raise Damaged("the plan in model.json has other entries than ours")
    limits = {"width": 4096, "modules": 64, "candidates": 64, "budget": 10**9, "seed": 2**63, "threads": 256}
    for key, most in limits.items():
        if (
            type(document[key]) is not int
            or not (key in ("budget", "seed") or document[key] > 0)
            or document[key] > most
        ):
            raise Damaged(f"{key} is {document[key]!r} in model.json")
    if document["epochs"] is not None and (type(document["epochs"]) is not int or not 0 < document["epochs"] < 10**6):
        raise Damaged(f"epochs is {document['epochs']!r} in model.json")
    if document["backbone"] not in BACKBONES or type(document["mirror"]) is not bool:
        raise Damaged(f"backbone is {document['backbone']!r} in model.json")
    shape, channels = tuples["shape"], tuples["shape"][-1]
    if len(shape) not in (1, 3) or any(type(n) is not int or not 0 < n <= 65536 for n in shape):
        raise Damaged(f"shape is {shape!r} in model.json")
    if math.prod(shape) > 10**8 or not all(s > 0 for s in tuples["std"]):
        raise Damaged("shape or std is out of range in model.json")
    if any(len(tuples[key]) != channels for key in ("mean", "std")):
        raise Damaged("mean and std do not fit the shape in model.json")
    return Plan(**{**document, **tuples})


def checked_history(history: Any, net: PathNetwork, num_classes: int) -> list[dict[str, Any]]:
    """The history, if it tells of every class once, task by task."""
    entries: list[dict[str, Any]] = list(history)
    for entry in entries:
        if not isinstance(entry, dict) or not set(entry) >= REPORTED or type(entry["k"]) is not int:
            raise Damaged("its history is not one")
        if [len(row) for row in entry["path"]] != [net.M] * net.L:
            raise Damaged("its history has paths of another network")
    if sum(len(entry["classes_added"]) for entry in entries) != num_classes or entries[0]["again"] != 0:
        raise Damaged("its history does not tell where its classes came from")
    return entries


def check_weights(plan: Plan, saved: Saved, paths: Mapping[str, Any], num_classes: int) -> None:
    """Every tensor that the paths need, of the right shape, finite, and no other; before anything is allocated."""
    with torch.device("meta"):
        net = plan.spec().build(plan.seed)
    for name, rows in paths.items():
        if rows is not None and [len(row) for row in rows] != [net.M] * net.L:
            raise Damaged(f"path {name} does not fit the network")
    P_ts = Path.of(paths["P"]) | Path.of(paths["P_fixed"])
    _check_tensors("weights", net, P_ts, saved, num_classes)
    if paths["P_teacher"] is not None:
        _check_tensors("teacher", net, Path.of(paths["P_teacher"]), saved, None)


def _check_tensors(
    file: Literal["weights", "teacher"], net: PathNetwork, path: Path, saved: Saved, num: int | None
) -> None:
    found = saved.tensors[file]
    num = len(found["head.bias"]) if num is None else num
    shapes = {name: tuple(tensor.shape) for name, tensor in net.weights(path).items()}
    shapes |= {"head.weight": (num, net.head.num_features), "head.bias": (num,)}
    if differ := sorted(set(shapes) ^ set(found)):
        raise Damaged(f"{file}: tensor {differ[0]!r} is {'missing' if differ[0] in shapes else 'foreign'}")
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise Damaged(f"{file}: tensor {name!r} has shape {tuple(found[name].shape)}, not {shape}")
        if not torch.isfinite(found[name]).all():
            raise Damaged(f"{file}: tensor {name!r} is not finite")
