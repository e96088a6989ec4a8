"""Is this one of our models? Every part of a stored one is checked before anything is built from it."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np
import torch

from randpath import names
from randpath.errors import Damaged, UsageError
from randpath.learning.anchor import shrinkage
from randpath.learning.closed import Sums
from randpath.learning.gaussians import Gaussians
from randpath.model.calibration import Nearest, Novelty
from randpath.model.sizing import Plan
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from randpath.storage.checkpoint import Saved

FORMAT = 1  # of model.json; an unknown one is refused
NUMBERS = ("by_likeness", "by_distance", "limit", "false_alarms", "found")  # of a Novelty, in model.json
NUMBER = (int, float, type(None))
REPORTED: dict[str, tuple[type, ...]] = {  # by one call of learn, in the history
    "k": (int,), "again": (int,), "classes_added": (list,), "path": (list,), "saturation": NUMBER,
    "switched": (bool, type(None)), "accuracy_new": NUMBER, "accuracy_old": NUMBER, "notes": (list,),
    "pictures": (int,), "pictures_of_seen_classes": (int,), "calibration_error": NUMBER, "dropped": (dict,),
    "confusions": (list,),
}  # fmt: skip
ADDED: dict[str, tuple[type, ...]] = {"fewer_right": (dict,), "origins": (list,)}  # since the first release
Label = Hashable


def clean_label(label: Label) -> Label:
    """A label as it is kept: text by the rule for names, a number, a truth value, None, or a tuple of such.

    >>> clean_label("cafe\u0301") == "caf\u00e9", clean_label(np.int64(3))
    (True, 3)
    """
    if isinstance(label, np.generic):
        label = label.item()
    if type(label) is tuple and len(str(label)) <= names.MOST:
        return tuple(clean_label(part) for part in label)
    if isinstance(label, str):
        return names.clean(str(label))
    if label is None or type(label) is bool or (type(label) is int and abs(label) < 2**63):
        return label
    if type(label) is float and math.isfinite(label):
        return label
    raise UsageError(
        f"a label must be text, a number of at most 64 bits, a truth value, None or a tuple of such, got {label!r:.100}"
    )


def check_labels(labels: Sequence[Label]) -> None:
    """Refuse labels that read the same, such as 1 and "1": whoever types one could mean both."""
    first: dict[str, Label] = {}
    for label in labels:
        if (twin := first.setdefault(str(label), label)) is not label:
            raise UsageError(f"the labels {twin!r} and {label!r} read the same")


def encode_label(label: Label) -> Any:
    """A label as JSON has it.

    >>> encode_label(("a", 1)), decode_label({"tuple": ["a", 1]})
    ({'tuple': ['a', 1]}, ('a', 1))
    """
    return {"tuple": [encode_label(part) for part in label]} if isinstance(label, tuple) else label


def decode_label(document: Any) -> Label:
    """The label that JSON has; text of an older release that is no name by the rule is escaped."""
    if isinstance(document, dict):
        return tuple(decode_label(part) for part in document["tuple"])
    if isinstance(document, list):
        raise Damaged(f"{document!r} is not a label")
    return clean_label(names.shown(names.normal(document)) if isinstance(document, str) else document)


LATER = ("start", "start_name", "attention", "stem", "activation", "power")  # not in plans of older releases


def plan_from(document: Mapping[str, Any]) -> Plan:
    """The plan, if it is one that we could have written: nothing may be built from another."""
    older = {f.name: f.default for f in fields(Plan) if f.name in LATER}
    document = {**older, **document}
    if {f.name for f in fields(Plan)} != set(document):
        raise Damaged("the plan in model.json has other entries than ours")
    try:
        return Plan(**{**document, **{key: tuple(document[key]) for key in ("shape", "mean", "std")}})
    except UsageError as error:
        raise Damaged(f"in model.json, {error.what}") from error


def sums_from(saved: Saved, num_classes: int, d: int) -> Sums:
    """What the closed-form solution is made from, of the right shape and finite."""
    found = {name: torch.as_tensor(tensor).clone() for name, tensor in saved.tensors["sums"].items()}
    shapes = {"counts": (num_classes,), "totals": (num_classes, d), "gram": (d, d)}
    if {name: tuple(tensor.shape) for name, tensor in found.items()} != shapes:
        raise Damaged("the sums do not fit the model")
    if not all(tensor.dtype == torch.float64 and torch.isfinite(tensor).all() for tensor in found.values()):
        raise Damaged("the sums are not finite numbers")
    return Sums(**found)


def checked_history(history: Any, net: PathNetwork, num_classes: int) -> list[dict[str, Any]]:
    """The history, if it tells of every class once, task by task."""
    entries: list[dict[str, Any]] = list(history)
    for entry in entries:
        if not isinstance(entry, dict) or not set(entry) >= set(REPORTED) or not _are_kinds(entry):
            raise Damaged("its history is not one")
        if [len(row) for row in entry["path"]] != [net.M] * net.L:
            raise Damaged("its history has paths of another network")
    if sum(len(entry["classes_added"]) for entry in entries) != num_classes or entries[0]["again"] != 0:
        raise Damaged("its history does not tell where its classes came from")
    return entries


def _are_kinds(entry: dict[str, Any]) -> bool:
    """Whether all that is read of an entry is what `learn` or an edit could have written."""
    if any(type(entry[key]) not in kinds for key, kinds in {**REPORTED, **ADDED}.items() if key in entry):
        return False
    if any([type(cell) for cell in row] != [str, str, int] for row in entry["confusions"]):
        return False
    came = entry.get("origins", [["0.0"]] * len(entry["classes_added"]))
    return len(came) == len(entry["classes_added"]) and all(
        isinstance(own, list) and own and all(isinstance(text, str) for text in own) for own in came
    )


def origins(history: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """Of every class the call that brought it and its place there, which stay whatever it is called later.

    A class that was merged has several. `forget` and `merge` write them down, because they move the places.

    >>> [sorted(own) for own in origins([{"classes_added": "ab"}, {"classes_added": "c", "origins": [["1.0", "0.2"]]}])]
    [['0.0'], ['0.1'], ['0.2', '1.0']]
    """
    found: list[set[str]] = []
    for call, entry in enumerate(history):
        found += map(set, entry.get("origins") or ([f"{call}.{place}"] for place in range(len(entry["classes_added"]))))
    return found


def novelty_from(
    document: Any, saved: Saved, temperature: float, num_classes: int, sums: Sums | None
) -> Novelty | None:
    """What tells unknown pictures, if every number of it is one; a model with a start tells them by its sums."""
    if document is None:
        return None
    by_sums = sums is not None and "known" not in saved.tensors  # earlier code stored other distances with a start
    if "by_odds" in document:  # the name before there were two kinds of likeness
        if by_sums:  # of the answer, and no limit fits another: by confidence alone, until it learns again
            return None
        document = {"by_likeness": document["by_odds"], **document}
    gauge = Gaussians(sums, shrinkage(sums)) if sums is not None and by_sums else _nearest(saved, num_classes)
    numbers = {key: document[key] for key in NUMBERS}
    given = [value for value in numbers.values() if value is not None]
    if any(type(value) not in (int, float) for value in given) or numbers["limit"] is None:
        raise Damaged("its novelty has what is no number")
    if not np.isfinite(given).all():
        raise Damaged("its novelty has a number that is out of range")
    return Novelty(gauge, temperature, **numbers)


def _nearest(saved: Saved, num_classes: int) -> Nearest:
    """The mean features of the classes and their spread, of the right shape and finite."""
    centres, scale = (saved.tensors["known"][key].double().numpy() for key in ("centres", "scale"))
    weights, sums = saved.tensors["weights"], saved.tensors.get("sums")
    features = (weights["head.weight"] if sums is None else sums["totals"]).shape[1]
    if centres.shape != (num_classes, features) or scale.shape != (features,):
        raise Damaged("known: the features of its classes have another shape")
    if not (np.isfinite(centres).all() and np.isfinite(scale).all() and scale.min() > 0):
        raise Damaged("known: a number is out of range")
    return Nearest(centres, scale)


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
