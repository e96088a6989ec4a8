"""A classifier that grows: the network, the names of its classes, its exemplars, its calibration and its history.

`PathClassifier` (arrays) and the commands (folders) are two faces of this one thing.
"""

import hashlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import Task, hold_out
from randpath.errors import Damaged, UsageError
from randpath.learning.method import State, Work, check_device, count_flops
from randpath.learning.train import predict
from randpath.metrics import confusion
from randpath.model import calibration
from randpath.model.sizing import Plan, plan_from
from randpath.names import clean, normal, shown
from randpath.network.layers import PathNetwork
from randpath.network.path import Path
from randpath.storage.checkpoint import Saved

FORMAT = 1  # of model.json; an unknown one is refused
REPORTED = {"k", "again", "classes_added", "path", "saturation", "switched", "accuracy_new", "accuracy_old", "notes"}
Label = Hashable


class Model:
    """What `learn` makes better and `predict` asks."""

    def __init__(self, plan: Plan, device: str = "cpu"):
        check_device(device)
        self.plan, self.device = plan, device
        self.names: list[Label] = []
        self.history: list[dict[str, Any]] = []  # one entry a call
        self.temperature, self.threshold = 1.0, 0.0
        self.method = plan.method(device)
        self.inference: nn.Module = nn.Identity()

    def learn(self, data: Dataset, names: Sequence[Label], work: Work | None = None) -> dict[str, Any]:
        """One call: `data` is labelled by position in `names`. Returns, and remembers, what it did.

        Names that are new make the next task; pictures of seen classes are trained on too, under their old label.
        Without a new name the present task goes on from its end. Nothing changes if it fails or is stopped.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(self.plan.threads)
        try:
            return self._learn(data, names, work or Work())
        finally:
            torch.set_num_threads(threads)

    def _learn(self, data: Dataset, names: Sequence[Label], work: Work) -> dict[str, Any]:
        method, memory = self.method, self.method.memory
        own = list(dict.fromkeys([*self.names, *names]))
        added = own[len(self.names) :]
        labels = np.array([own.index(name) for name in names], np.int64)[data.labels]
        train, val = (data.take(part, labels[part]) for part in hold_out(labels, self.plan.seed))
        again = int(np.count_nonzero(labels < len(self.names)))
        before = method.setting, memory.budget, memory.train, memory.val
        training = self.plan.training(len(train) + sum(map(len, memory.train.values())))
        method.setting = replace(
            method.setting,
            training=training,
            augment=self.plan.augment(),
            budget=self.plan.budget,
            device=self.device,
        )
        memory.budget = self.plan.budget
        try:
            if again or len(self.plan.shape) == 3:  # equal vectors are nothing odd; equal pictures are copies
                train, val = self._without_doubles(train, val)
            old = Joined(list(memory.val.values())) if memory.val else None
            was = None if old is None else self.logits(old).argmax(axis=1)
            task = Task(method.k + (1 if added else 0), range(len(own)), train, val)
            learned = method.learn(task, work)
        except BaseException:
            method.setting, memory.budget, memory.train, memory.val = before
            raise
        self.names = own
        self._freeze()
        held = [part for part in (old, val) if part is not None and len(part)]
        report = {
            "k": method.k,
            "again": method.again,
            "classes_added": [encode_label(name) for name in added],
            "pictures": len(train) + len(val),
            "pictures_of_seen_classes": again,
            "saturation": learned.saturation,
            "switched": learned.switched,
            "path": method.P.to_lists(),
            "parameters": learned.parameters,
            "notes": learned.notes,
            **self._measured(held, was, len(own) - len(added)),
        }
        self.history.append(report)
        return report

    def _without_doubles(self, train: Dataset, val: Dataset) -> tuple[Dataset, Dataset]:
        """No picture twice, and none both trained on and validated on: where it came first, there it stays.

        Exemplars that come again to train on are dropped from the memory: they get back in after the task.
        """
        memory = self.method.memory
        new_train, new_val = _digests(train), _digests(val)
        old_train = {c: _digests(part) for c, part in memory.train.items()}
        old_val = {c: _digests(part) for c, part in memory.val.items()}
        in_old_train, in_old_val = (set().union(*part.values()) for part in (old_train, old_val))
        both = set(new_train) & set(new_val)
        memory.train = _chosen(memory.train, {c: [d not in new_train for d in ds] for c, ds in old_train.items()})
        memory.val = _chosen(memory.val, {c: [d not in new_val for d in ds] for c, ds in old_val.items()})
        keep = [d not in in_old_val and d not in both for d in new_train]
        # If all that came is held out already, it is trained on as it was: through the exemplars.
        train = train.take(np.flatnonzero(keep if any(keep) else [True] * len(keep)))
        return train, val.take(np.flatnonzero([d not in in_old_train for d in new_val]))

    def _measured(self, held: list[Dataset], was: np.ndarray | None, num_old: int) -> dict[str, Any]:
        """Accuracies on the held-out pictures, what was lost since before, and the calibration."""
        self.temperature, self.threshold = 1.0, 0.0
        measured: dict[str, Any] = dict.fromkeys(("accuracy_new", "accuracy_old", "calibration_error"))
        measured |= {"dropped": {}, "confusions": [], "held_out": 0}
        if not held:
            return measured
        data = Joined(held)
        q, y = self.logits(data), data.labels
        self.temperature = calibration.fit_temperature(q, y)
        self.threshold = calibration.choose_threshold(softmax(q / self.temperature, axis=1), y)
        now, new = q.argmax(axis=1), y >= num_old
        right = now == y
        measured["held_out"] = len(y)
        measured["accuracy_new"] = float(right[new].mean()) if new.any() else None
        measured["accuracy_old"] = float(right[~new].mean()) if not new.all() else None
        measured["calibration_error"] = calibration.held_out_error(q, y)
        if was is not None:
            n, C = len(was), len(self.names)
            for c in np.unique(y[:n]).tolist():
                lost = int(np.sum(was[y[:n] == c] == c)) - int(np.sum(now[:n][y[:n] == c] == c))
                if lost > 0:
                    measured["dropped"][self.text(c)] = lost / int(np.sum(y[:n] == c))
            grown = confusion(y[:n], now[:n], C) - confusion(y[:n], was, C)
            np.fill_diagonal(grown, 0)
            for pair in np.argsort(-grown, axis=None, kind="stable")[:5].tolist():
                if grown.flat[pair] > 0:
                    true, seen_as = divmod(pair, C)
                    measured["confusions"].append([self.text(true), self.text(seen_as), int(grown.flat[pair])])
        return measured

    def _freeze(self) -> None:
        """Fold the inference path. Vectors are answered in float64: there the batch size does not show."""
        self.inference = self.method.inference().to(self.device)
        if len(self.plan.shape) == 1:
            self.inference.double()

    def logits(self, data: Dataset) -> np.ndarray:
        """q of every item, (n, classes), in float64."""
        dtype = torch.float64 if len(self.plan.shape) == 1 else torch.float32
        q = predict(lambda x: self.inference(x.to(dtype)), data, self.plan.augment(), self.device)
        return q.double().numpy()

    def probabilities(self, data: Dataset) -> np.ndarray:
        """Calibrated: softmax(q / T), (n, classes)."""
        if not len(data):
            return np.zeros((0, len(self.names)))
        return np.asarray(softmax(self.logits(data) / self.temperature, axis=1))

    def text(self, c: int) -> str:
        """The name of a class as it is printed and compared."""
        return shown(str(self.names[c]))

    def rename(self, old: str, new: str) -> None:
        """Give the class that reads `old` another name."""
        texts = [self.text(c) for c in range(len(self.names))]
        old, new = normal(old), clean(new)
        if old not in texts:
            raise UsageError(f"the model has no class {shown(old)!r}; it has {', '.join(texts[:20])}")
        if new in texts:
            raise UsageError(f"{new!r} is a class already")
        before = encode_label(self.names[texts.index(old)])
        self.names[texts.index(old)] = new
        for entry in self.history:
            entry["classes_added"] = [new if name == before else name for name in entry["classes_added"]]

    def path_map(self) -> list[list[int]]:
        """For every layer and module the first task that used it; 0 for none."""
        first = np.zeros((self.method.net.L, self.method.net.M), int)
        for entry in self.history:
            first[(first == 0) & np.array(entry["path"], bool)] = entry["k"]
        return first.tolist()

    def flops(self) -> int:
        return count_flops(self.method.inference().cpu(), self.plan.shape)

    # ---- to a directory and back

    def state(self) -> tuple[State, dict[str, Any]]:
        """Tensors by file, and model.json."""
        state = self.method.state_dict()
        document = {
            "format": FORMAT,
            "names": [encode_label(name) for name in self.names],
            "plan": asdict(self.plan),
            "method": state.document,
            "temperature": self.temperature,
            "threshold": self.threshold,
            "history": self.history,
        }
        return state, document

    def megabytes(self) -> float:
        """Weights, teacher and exemplars, as stored."""
        return round(
            sum(t.nbytes for group in self.method.state_dict().tensors.values() for t in group.values()) / 1e6, 3
        )

    @classmethod
    def restore(cls, saved: Saved, device: str = "cpu") -> "Model":
        """The model that `state` described; whatever does not fit together is Damaged."""
        check_device(device)
        try:
            return cls._restore(saved, device)
        except Damaged:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
            raise Damaged(f"its parts do not fit together: {type(error).__name__}: {error}") from error

    @classmethod
    def _restore(cls, saved: Saved, device: str) -> "Model":
        document = saved.documents["model"]
        if document["format"] != FORMAT:
            raise Damaged(f"model.json has format {document['format']!r}, this randpath reads {FORMAT}")
        plan = plan_from(document["plan"])
        names = [decode_label(name) for name in document["names"]]
        if len(set(names)) != len(names) or not names:
            raise Damaged("the names of its classes are missing or not unique")
        paths = {key: document["method"][key] for key in ("P", "P_fixed", "P_teacher")}
        _check_weights(plan, saved, paths, len(names))
        model = cls(plan, device)
        model.method.load_state_dict(State(dict(saved.tensors), document["method"]))
        for part in (model.method.memory.train, model.method.memory.val):
            for c, data in part.items():
                if not 0 <= c < len(names) or data.shape != plan.shape:
                    raise Damaged(f"exemplars of class {c} and shape {data.shape}")
        model.names, model.history = names, _checked(document["history"], model.method.net, len(names))
        model.temperature, model.threshold = float(document["temperature"]), float(document["threshold"])
        if not (model.temperature > 0 and 0 <= model.threshold <= 1):
            raise Damaged("its calibration is out of range")
        model._freeze()
        return model


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


def _digests(data: Dataset) -> list[bytes]:
    """The SHA-256 of every item, in order."""
    chunks = np.array_split(np.arange(len(data)), max(1, len(data) // 512))
    return [hashlib.sha256(item.numpy().tobytes()).digest() for x, _ in data.batches(chunks) for item in x]


def _chosen(part: Mapping[int, Dataset], keep: Mapping[int, Sequence[bool]]) -> dict[int, Dataset]:
    return {c: data.take(np.flatnonzero(keep[c])) for c, data in part.items() if any(keep[c])}


def _checked(history: Any, net: PathNetwork, num_classes: int) -> list[dict[str, Any]]:
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


def _check_weights(plan: Plan, saved: Saved, paths: Mapping[str, Any], num_classes: int) -> None:
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
    shapes |= {"head.weight": (num, net.head.in_features), "head.bias": (num,)}
    if differ := sorted(set(shapes) ^ set(found)):
        raise Damaged(f"{file}: tensor {differ[0]!r} is {'missing' if differ[0] in shapes else 'foreign'}")
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise Damaged(f"{file}: tensor {name!r} has shape {tuple(found[name].shape)}, not {shape}")
        if not torch.isfinite(found[name]).all():
            raise Damaged(f"{file}: tensor {name!r} is not finite")
