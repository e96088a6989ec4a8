"""A classifier that grows: the network, the names of its classes, its exemplars, its calibration and its history.

`PathClassifier` (arrays) and the commands (folders) are two faces of this one thing.
"""

import copy
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.dataset import Dataset, Index, Joined
from randpath.data.features import Start
from randpath.data.stream import Task, hold_out
from randpath.engines.device import check_device, on_threads
from randpath.errors import Damaged
from randpath.learning.anchor import Anchored, Mix, left_out, mixed, shrinkage, with_items
from randpath.learning.closed import Sums
from randpath.learning.cost import count_flops, megabytes
from randpath.learning.gaussians import Gaussians
from randpath.learning.memory import Memory
from randpath.learning.method import Learned, State, Work
from randpath.learning.train import predict
from randpath.methods.rps import RPS
from randpath.model import calibration
from randpath.model.calibration import Nearest, Novelty
from randpath.model.comparing import compared
from randpath.model.doubles import Fingerprints, fingerprints_from, refuse_nothing_to_train_on, without_doubles
from randpath.model.sizing import Plan
from randpath.model.start import Named, kept_start
from randpath.model.stored import (
    FORMAT,
    NUMBERS,
    Label,
    check_labels,
    check_weights,
    checked_history,
    clean_label,
    decode_label,
    encode_label,
    novelty_from,
    plan_from,
    sums_from,
)
from randpath.names import shown
from randpath.network.fold import Folded, fold
from randpath.network.path import Path
from randpath.storage.checkpoint import Saved

Teacher = tuple[dict[str, Tensor], Path]  # the weights before a task, and the path on which they answered


@dataclass(frozen=True)
class Lesson:
    """One call's pictures, sorted: what is new, what is for training and what is held out."""

    names: list[Label]  # all that the model will know
    added: list[Label]
    train: Dataset
    val: Dataset
    seen_before: int  # pictures of classes that the model knew
    memory: Memory  # without pictures that came again
    fresh: Index  # which of `train` the model has never been trained on under their label
    fingerprints: Fingerprints


class Model:
    """What `learn` makes better and `predict` asks."""

    def __init__(self, plan: Plan, device: str = "cpu"):
        check_device(device)
        self.plan, self.device = plan, device
        self.names: list[Label] = []
        self.history: list[dict[str, Any]] = []  # one entry a call
        self.temperature, self.threshold, self.doubt = 1.0, 0.0, 0.0
        self.power: float | None = None
        self.novelty: Novelty | None = None  # none: "unknown" is said by confidence alone
        self.method = plan.method(device)
        self.teacher: Teacher | None = None  # of the present task, so that a later call can go on with it
        self.inference: nn.Module = nn.Identity()
        self.directory: pathlib.Path | None = None  # where the file of its start is kept
        self._start: Start | None = None
        self.sums: Sums | None = None  # of a model with a start: what its closed-form solution is made from
        self.fingerprints = Fingerprints({}, {})
        self.mix = Mix()

    def learn(self, data: Dataset, names: Sequence[Label], work: Work | None = None) -> dict[str, Any]:
        """One call: `data` is labelled by position in `names`. Returns, and remembers, what it did.

        Names that are new make the next task; pictures of seen classes are trained on too, under their old label.
        Without a new name the present task goes on from its end. Nothing changes if it fails or is stopped.
        """
        with on_threads(self.plan.threads):
            lesson = self._lesson(data, names)
            old = Joined(list(lesson.memory.val.values())) if lesson.memory.val else None
            was = None if old is None else self.logits(old).argmax(axis=1)
            method, teacher, learned = self._taught(lesson, work or Work())
            self.method, self.teacher, self.names = method, teacher, lesson.names
            self.fingerprints = lesson.fingerprints
            held = [part for part in (old, lesson.val) if part is not None and len(part)]
            if self.plan.start is not None:
                self.sums = with_items(self.sums, lesson.train.take(lesson.fresh), self.plan.power)
            self._fold_for_answers()
            closed = self._mixed(held)
            report = self._report(lesson, learned) | self._measured(held, was, len(self.names) - len(lesson.added))
            report |= closed
            self.history.append(report)
            return report

    def _lesson(self, data: Dataset, names: Sequence[Label]) -> Lesson:
        """Labels as the model has them; no picture twice."""
        named = [clean_label(name) for name in names]
        own = list(dict.fromkeys([*self.names, *named]))
        check_labels(own)  # what could not be stored is refused before anything is trained
        labels = np.array([own.index(name) for name in named], np.int64)[data.labels]
        train, val = (data.take(part, labels[part]) for part in hold_out(labels, self.plan.seed))
        seen_before = int(np.count_nonzero(labels < len(self.names)))
        memory = copy.copy(self.method.memory)
        added = own[len(self.names) :]
        # Of a user's own data, equal vectors are nothing odd; equal pictures are copies.
        if not (seen_before or len(self.plan.shape) == 3 or self.plan.start):
            return Lesson(own, added, train, val, seen_before, memory, np.arange(len(train)), self.fingerprints)
        found = without_doubles(memory, self.fingerprints, train, val)
        refuse_nothing_to_train_on(found.train, own, len(self.names))
        return Lesson(own, added, found.train, found.val, seen_before, memory, found.fresh, found.fingerprints)

    def _taught(self, lesson: Lesson, work: Work) -> tuple[RPS, Teacher | None, Learned]:
        """A copy of the method that has learned the lesson, and the teacher that it had."""
        method = copy.copy(self.method)
        method.memory = lesson.memory
        method.memory.budget = self.plan.memory
        method.setting = replace(
            method.setting,
            training=self.plan.training(
                len(lesson.train) + sum(map(len, lesson.memory.train.values())), len(lesson.train)
            ),
            augment=self.plan.augment(),
            budget=self.plan.memory,
            device=self.device,
        )
        new = range(len(self.names), len(lesson.names))
        if new:
            weights = {name: tensor.detach().cpu().clone() for name, tensor in method.net.weights(method.P_ts).items()}
            teacher = (weights, method.P_ts) if method.k else None
            task = Task(method.k + 1, len(lesson.names), new, lesson.train, lesson.val)
            return method, teacher, method.learn(task, work)
        task = Task(method.k, len(lesson.names), new, lesson.train, lesson.val)
        return method, self.teacher, method.go_on(task, work, self.folded_teacher())

    def folded_teacher(self) -> Folded | None:
        """The network as it was before the present task; none in the first."""
        if self.teacher is None:
            return None
        net = self.plan.spec().build(self.plan.seed)
        net.load_weights(self.teacher[0])
        return fold(net, self.teacher[1])

    def _report(self, lesson: Lesson, learned: Learned) -> dict[str, Any]:
        return {
            "k": self.method.k,
            "again": self.method.again,
            "classes_added": [encode_label(name) for name in lesson.added],
            "pictures": len(lesson.train) + len(lesson.val),
            "pictures_of_seen_classes": lesson.seen_before,
            "saturation": learned.saturation,
            "switched": learned.switched,
            "path": self.method.P.to_lists(),
            "parameters": learned.parameters,
            "notes": learned.notes,
        }

    def _measured(self, held: list[Dataset], was: np.ndarray | None, num_old: int) -> dict[str, Any]:
        """Accuracies on the held-out pictures, what was lost since before, and the calibration."""
        measured: dict[str, Any] = dict.fromkeys(("accuracy_new", "accuracy_old", "calibration_error", "right_old"))
        measured |= {"dropped": {}, "fewer_right": {}, "old_dropped": False, "confusions": [], "held_out": 0}
        q, y, measured["calibration_error"] = self.calibrate(held)
        if not held:
            return measured
        now, new = q.argmax(axis=1), y >= num_old
        right = now == y
        measured["held_out"] = len(y)
        measured["accuracy_new"] = float(right[new].mean()) if new.any() else None
        measured["accuracy_old"] = float(right[~new].mean()) if not new.all() else None
        if was is not None:
            n = len(was)
            measured |= compared(y[:n], was, now[:n], [self.text(c) for c in range(len(self.names))])
        return measured

    def calibrate(self, held: list[Dataset]) -> tuple[np.ndarray, np.ndarray, float | None]:
        """Settle confidence and "unknown" by held-out pictures; q and labels of these, and the calibration error.

        Where the closed form answers alone, the stored vectors are asked too, each left out of what answers.
        """
        self.temperature, self.threshold, self.novelty, self.doubt, self.power = 1.0, 0.0, None, 0.5, None
        gauge, nothing = self.gauge(), np.zeros((0, len(self.names)))
        own, f, labels = (*self.seen(Joined(held)), Joined(held).labels) if held else (nothing, None, np.zeros(0, int))
        likeness, distances = (nothing, nothing) if gauge is None or f is None else gauge.looks(own, f)
        q, y = own, labels
        if isinstance(gauge, Gaussians) and isinstance(self.inference, Anchored) and not self.mix.share:
            more = left_out(self.inference, gauge, self.method.memory.train, self.plan.augment(), self.device)
            q, likeness, distances, y = (np.concatenate(pair) for pair in zip((q, likeness, distances, y), more))
        if not len(y):
            return own, labels, None
        self.doubt = calibration.doubt(len(y))
        self.temperature, self.power = calibration.fit(q, y)
        self.threshold = calibration.choose_threshold(self._calibrated(q), y)
        if gauge is not None:
            self.novelty = calibration.fit_novelty(Novelty(gauge, self.temperature), likeness, distances, y)
        return own, labels, calibration.held_out_error(q, y)

    def gauge(self) -> Nearest | Gaussians | None:
        """What distances to the classes are measured by."""
        if len(self.names) < 2:
            return None
        if self.sums is not None:
            return Gaussians(self.sums, shrinkage(self.sums))
        exemplars = self.method.memory.train
        if len(exemplars) < len(self.names):
            return None
        known = Joined(list(exemplars.values()))
        return calibration.spread(self.seen(known)[1], known.labels, len(self.names))

    def _mixed(self, held: list[Dataset]) -> dict[str, Any]:
        """Of a model with a start: choose the path network's share; what the closed form alone would reach."""
        self.mix = Mix()
        if not isinstance(self.inference, Anchored) or not held:
            return {}
        self.mix, right = mixed(self.inference, Joined(held), self.plan.augment(), self.device)
        self._fold_for_answers()
        return {"path_share": self.mix.share, "accuracy_closed_form": right}

    def _fold_for_answers(self) -> None:
        """Fold the inference path. Vectors are answered in float64: there the batch size does not show."""
        self.inference = self.method.inference().to(self.device)
        if self.sums is not None:
            plan, net = self.plan, self.inference
            self.inference = Anchored(net, self.sums, plan.mean, plan.std, self.mix, plan.power).to(self.device)
        if len(self.plan.shape) == 1:
            self.inference.double()

    def start(self) -> Start:
        """The network in front, opened when it is first needed."""
        if self._start is None:
            self._start = kept_start(*self.start_place())
        return self._start

    def start_place(self) -> tuple[pathlib.Path, Named]:
        """The directory that keeps its file, and which one that is."""
        assert self.directory is not None and self.plan.start is not None and self.plan.start_name is not None
        return self.directory, Named(self.plan.start_name, self.plan.start)

    def vectors(self, data: Dataset) -> Dataset:
        """Pictures as a model with a start sees them; anything else as it is."""
        return self.start().vectors(data) if self.plan.start is not None and len(data.shape) == 3 else data

    def logits(self, data: Dataset) -> np.ndarray:
        """q of every item, (n, classes), in float64."""
        data = self.vectors(data)
        dtype = torch.float64 if len(self.plan.shape) == 1 else torch.float32
        q = predict(lambda x: self.inference(x.to(dtype)), data, self.plan.augment(), self.device)
        return q.double().numpy()

    def seen(self, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """q (n, classes) and the features before the last layer (n, D) of every item, in float64."""
        data = self.vectors(data)
        dtype = torch.float64 if len(self.plan.shape) == 1 else torch.float32
        net = self.inference
        assert isinstance(net, Folded | Anchored)

        def both(x: Tensor) -> Tensor:
            f = net.features(x.to(dtype))
            return torch.cat([net(x.to(dtype)) if isinstance(net, Anchored) else net.head(f), f], dim=1)

        if not len(data):
            wide = self.plan.shape[0] if isinstance(net, Anchored) else net.head.num_features
            return np.zeros((0, len(self.names))), np.zeros((0, wide))
        found = predict(both, data, self.plan.augment(), self.device).double().numpy()
        return found[:, : len(self.names)], found[:, len(self.names) :]

    def answers(self, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated probabilities (n, classes), and whether each item may be of no known class."""
        q, f = self.seen(data)
        p = self._calibrated(q)
        if self.novelty is None:
            return p, p.max(axis=1) < self.threshold
        return p, self.novelty.score(q, f) > self.novelty.limit

    def _calibrated(self, q: np.ndarray) -> np.ndarray:
        return calibration.probabilities(q, self.temperature, self.doubt, self.power)

    def probabilities(self, data: Dataset) -> np.ndarray:
        """Calibrated, (n, classes)."""
        return self.answers(data)[0]

    def text(self, c: int) -> str:
        """The name of a class as it is printed and compared."""
        return shown(str(self.names[c]))

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
        if self.teacher is not None:
            state.tensors["teacher"] = dict(self.teacher[0])
        if self.novelty is not None and isinstance(gauge := self.novelty.gauge, Nearest):
            centres, scale = (torch.from_numpy(x).float() for x in (gauge.centres, gauge.scale))
            state.tensors["known"] = {"centres": centres, "scale": scale}
        if self.sums is not None:
            state.tensors["sums"] = self.sums.tensors()
        state.tensors["fingerprints"] = self.fingerprints.tensors()
        P_teacher = None if self.teacher is None else self.teacher[1].to_lists()
        document = {
            "format": FORMAT,
            "names": [encode_label(name) for name in self.names],
            "plan": asdict(self.plan),
            "method": {**state.document, "P_teacher": P_teacher},
            "temperature": self.temperature,
            "threshold": self.threshold,
            "doubt": self.doubt,
            "power": self.power,
            "novelty": None if self.novelty is None else {key: getattr(self.novelty, key) for key in NUMBERS},
            "history": self.history,
            **({} if self.sums is None else {"mix": asdict(self.mix)}),
        }
        return state, document

    def megabytes(self) -> float:
        """Weights, teacher, exemplars and fingerprints, as stored."""
        return megabytes(self.state()[0].tensors)

    @classmethod
    def restore(cls, saved: Saved, device: str = "cpu", directory: pathlib.Path | None = None) -> "Model":
        """The model that `state` described; whatever does not fit together is Damaged."""
        check_device(device)
        try:
            model = cls._restore(saved, device)
        except Damaged:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise Damaged(f"its parts do not fit together: {type(error).__name__}: {error}") from error
        model.directory = directory
        return model

    @classmethod
    def _restore(cls, saved: Saved, device: str) -> "Model":
        document = saved.documents["model"]
        if document["format"] != FORMAT:
            raise Damaged(f"model.json has format {document['format']!r}, this randpath reads {FORMAT}")
        plan = plan_from(document["plan"])
        names = [decode_label(name) for name in document["names"]]
        if len(set(names)) != len(names) or not names:
            raise Damaged("the names of its classes are missing or not unique")
        check_labels(names)
        paths = {key: document["method"][key] for key in ("P", "P_fixed", "P_teacher")}
        check_weights(plan, saved, paths, len(names))
        model = cls(plan, device)
        model.method.load_state_dict(State(dict(saved.tensors), document["method"]))
        if paths["P_teacher"] is not None:
            weights = {name: torch.as_tensor(value) for name, value in saved.tensors["teacher"].items()}
            model.teacher = (weights, Path.of(paths["P_teacher"]))
        for part in (model.method.memory.train, model.method.memory.val):
            for c, data in part.items():
                if not 0 <= c < len(names) or data.shape != plan.shape:
                    raise Damaged(f"exemplars of class {c} and shape {data.shape}")
        model.names, model.history = names, checked_history(document["history"], model.method.net, len(names))
        model.temperature, model.threshold = float(document["temperature"]), float(document["threshold"])
        model.doubt, model.power = (
            float(document.get("doubt", 0.0)),
            document.get("power"),
        )  # the first release had none
        powers = (None, *calibration.POWERS)
        if not (
            model.temperature > 0 and 0 <= model.threshold <= 1 and 0 <= model.doubt <= 0.5 and model.power in powers
        ):
            raise Damaged("its calibration is out of range")
        if "fingerprints" in saved.tensors:  # the first releases had none
            model.fingerprints = fingerprints_from(saved.tensors["fingerprints"], len(names))
        if plan.start is not None:
            model.sums, model.mix = sums_from(saved, len(names), plan.shape[0]), Mix(**document["mix"])
        model.novelty = novelty_from(document.get("novelty"), saved, model.temperature, len(names), model.sums)
        model._fold_for_answers()
        return model
