"""PathClassifier: scikit-learn's conventions for a classifier that grows."""

import copy
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from randpath.data.dataset import Arrays
from randpath.data.decode import check_images
from randpath.errors import UsageError
from randpath.model import start, versions
from randpath.model.model import Model
from randpath.model.sizing import plain, plan_for
from randpath.names import normal
from randpath.storage.lock import lock

Features = Callable[[np.ndarray], np.ndarray]


class PathClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns new classes, call by call, without the pictures of the old ones (Adaptive RPS-Net, `tuned`).

    X: images, uint8 (n, h, w) or (n, h, w, c); or feature vectors (n, d). `features` is a function from your images to
    vectors, e.g. your own pretrained network: it is applied first and is not stored. y: any hashable labels.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PathClassifier(epochs=5, threads=1)
    >>> model = model.partial_fit(X[y < 2], y[y < 2])
    >>> model = model.partial_fit(X[y == 2], y[y == 2])  # one more class; the old pictures are not needed
    >>> model.classes_.tolist(), model.score(X[y < 3], y[y < 3]) > 0.9
    ([0, 1, 2], True)
    """

    def __init__(
        self,
        *,
        backbone: str | None = None,  # mlp, compact, resnet18_cifar, resnet18_imagenet; none: by the input
        width: int | None = None,  # none: the backbone's, by the input
        modules: int = 8,  # M
        candidates: int | None = None,  # N; none: by the input
        budget: int | str = 2000,  # exemplars kept; or a size such as "6MB": as many as fit, as lossy files
        epochs: int | None = None,  # none: by the number of items
        mirror: bool | None = None,  # whether to train on mirrored images too; none: if they have colours
        features: Features | None = None,
        seed: int = 0,
        threads: int | None = None,  # none: all cores, at most four
        device: str = "cpu",
    ):
        self.backbone, self.width, self.modules, self.candidates = backbone, width, modules, candidates
        self.budget, self.epochs, self.mirror, self.features = budget, epochs, mirror, features
        self.seed, self.threads, self.device = seed, threads, device

    def fit(self, X: ArrayLike, y: ArrayLike | Sequence[Hashable]) -> "PathClassifier":
        """Forget everything and learn these classes."""
        return self._learn(X, y, fresh=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | Sequence[Hashable], classes: ArrayLike | None = None
    ) -> "PathClassifier":
        """Learn: labels not seen before are the next task; without one, the present task goes on.

        `classes` is scikit-learn's argument; nothing needs it, but a label outside of it is refused.
        """
        return self._learn(X, y, classes, fresh=not self.__sklearn_is_fitted__())

    def _learn(
        self, X: ArrayLike, y: ArrayLike | Sequence[Hashable], classes: ArrayLike | None = None, *, fresh: bool
    ) -> "PathClassifier":
        if y is None:
            raise UsageError("PathClassifier requires y to be passed, but the target y is None")
        learning = copy.copy(self)  # other threads ask the present state until the new one is there
        items, labels = learning._items(X, y, fresh)
        if classes is not None and (unknown := set(labels) - set(_labels(classes))):
            raise UsageError(f"y has the label {unknown.pop()!r}, which is not in classes")
        names = _in_order(labels)
        number = {name: i for i, name in enumerate(names)}
        data = Arrays(items, np.array([number[label] for label in labels], np.int64))
        if fresh:
            model = Model(plan_for(data, **self._choices()), self.device)
        else:
            model = copy.copy(self._model)
            model.history = [*model.history]
            model.plan = replace(model.plan, budget=plain(self.budget), epochs=plain(self.epochs))
        model.learn(data, names)
        learning._model, learning.classes_ = model, _array(model.names)
        fitted = {name: value for name, value in learning.__dict__.items() if _is_fitted(name)}
        asked_for = {name: value for name, value in self.__dict__.items() if not _is_fitted(name)}
        self.__dict__ = {**asked_for, **fitted}  # in one step: another thread sees the old state or the new one
        return self

    def _choices(self) -> dict[str, Any]:
        """What the plan is asked for; None: it decides."""
        names = ("backbone", "width", "modules", "candidates", "budget", "epochs", "mirror", "seed", "threads")
        return {**{name: getattr(self, name) for name in names}, "features": self.features is not None}

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Calibrated probabilities (n, classes), in the order of `classes_`."""
        return copy.copy(self)._probabilities(X)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable label of each item."""
        now = copy.copy(self)
        best = now._probabilities(X).argmax(axis=1)
        chosen: np.ndarray = now.classes_[best]
        return chosen

    def is_unknown(self, X: ArrayLike) -> np.ndarray:
        """Whether each item may be of no class seen yet: by confidence, and by the distance of its features."""
        return copy.copy(self)._answers(X)[1]

    def score(self, X: ArrayLike, y: ArrayLike | Sequence[Hashable], sample_weight: ArrayLike | None = None) -> float:
        """The share of right answers; names are compared as they are kept."""
        labels = [normal(label) if isinstance(label, str) else label for label in _labels(y)]
        return float(super().score(X, _array(labels), sample_weight))

    def _probabilities(self, X: ArrayLike) -> np.ndarray:
        return self._answers(X)[0]

    def _answers(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Of a copy of the estimator: while it answers, another thread may train the original."""
        check_is_fitted(self)
        items, _ = self._items(X)
        model: Model = self._model
        return model.answers(Arrays(items, np.zeros(len(items), np.int64)))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What each call did: accuracies on held-out items, classes that dropped, mu_sat, the path."""
        check_is_fitted(self)
        history: list[dict[str, Any]] = self._model.history
        return history

    def save(self, directory: str | Path, keep: int = 3) -> int:
        """Write a new version into a model directory and return its number; the last `keep` are kept.

        A directory that holds another model, or one that has learned more meanwhile, is refused.
        """
        check_is_fitted(self)
        model, place = self._model, Path(directory)
        state, document = model.state()
        with lock(place):
            base = 0
            if versions.is_model(place):
                base, stored = versions.newest_good(place, Model.restore, warnings.warn)
                if stored.history != model.history[: len(stored.history)]:
                    raise UsageError(
                        f"{place} holds another model, or one that has learned something else since (version {base})",
                        where=str(place),
                        next="save to another directory, or go on from what is there: PathClassifier.load",
                    )
            if model.plan.start is not None:
                start.keep(place, start.kept_file(*model.start_place()))
            return versions.save(place, state.tensors, document, keep, base=base)

    @classmethod
    def load(cls, directory: str | Path, *, features: Features | None = None, device: str = "cpu") -> "PathClassifier":
        """The model of a directory; it goes on learning as if it had never been away."""
        _, model = versions.newest_good(
            Path(directory), lambda saved: Model.restore(saved, device, Path(directory)), warnings.warn
        )
        plan = model.plan
        if plan.features != (features is not None):
            how = "give the function again: load(directory, features=f)" if plan.features else "leave out features="
            raise UsageError(f"{directory} was {'' if plan.features else 'not '}trained on features of yours; {how}")
        estimator = cls(
            backbone=plan.backbone,
            width=plan.width,
            modules=plan.modules,
            candidates=plan.candidates,
            budget=plan.budget,
            epochs=plan.epochs,
            mirror=plan.mirror,
            features=features,
            seed=plan.seed,
            threads=plan.threads,
            device=device,
        )
        estimator._model, estimator.classes_ = model, _array(model.names)
        if len(plan.shape) == 1 and features is None:
            estimator.n_features_in_ = plan.shape[0]
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)

    def _items(
        self, X: ArrayLike, y: ArrayLike | Sequence[Hashable] | None = None, fresh: bool = False
    ) -> tuple[np.ndarray, list[Hashable]]:
        """X as the model takes it, and y as Python labels."""
        if self.features is not None:
            X = np.asarray(self.features(np.asarray(X)), np.float32)
        if isinstance(X, np.ndarray) and X.ndim in (3, 4):
            items = check_images(X)
            if not fresh and self._model.plan.start is not None:
                items = self._model.start().vectors(Arrays(items, np.zeros(len(items), np.int64))).items
            elif not fresh and items.shape[1:] != self._model.plan.shape:
                raise UsageError(f"the model takes items of shape {self._model.plan.shape}, got {items.shape[1:]}")
        else:
            if not fresh and len(self._model.plan.shape) == 3:
                raise UsageError(f"the model takes images of shape {self._model.plan.shape}, got an array of numbers")
            items = np.asarray(validate_data(self, X, dtype=np.float32, reset=fresh))
            if not fresh and items.shape[1:] != self._model.plan.shape:
                raise UsageError(
                    f"the model takes vectors of {self._model.plan.shape[0]} numbers, got {items.shape[1]}"
                )
        if y is None:
            return items, []
        labels = _labels(y)
        if len(labels) != len(items):
            raise UsageError(f"X has {len(items)} items, y has {len(labels)} labels")
        if not labels:
            raise UsageError("there is nothing to learn: X has 0 items")
        return items, labels


def _is_fitted(name: str) -> bool:
    return name == "_model" or name.endswith("_")


def _labels(y: ArrayLike | Sequence[Hashable]) -> list[Hashable]:
    """Labels as plain Python objects; what is no label for a class (a fraction, a missing value) is refused."""
    if isinstance(y, list | tuple):
        kinds = {type(label) for label in y}
        if tuple in kinds or (len(kinds) > 1 and kinds & {str, type(None)}):  # numpy would unpack or rewrite them
            return list(y)
    array = np.asarray(y)
    if array.ndim == 0:
        raise UsageError("y must be a list of labels, got a single one")
    array = column_or_1d(array, warn=True)
    if array.dtype.kind in "fc":
        with np.errstate(invalid="ignore"):  # it casts before it refuses
            check_classification_targets(array)
    plain: list[Hashable] = array.tolist()
    return plain


def _in_order(labels: Sequence[Hashable]) -> list[Hashable]:
    """Each label once: sorted, as scikit-learn has it, or as they came where they cannot be compared."""
    distinct = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)  # type: ignore[type-var]
    except TypeError:
        return distinct


def _array(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels of one plain kind as an array of it, others as objects."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | bool | int | float):
        return np.array(labels)
    objects = np.empty(len(labels), object)
    for i, label in enumerate(labels):  # one by one: numpy would unpack tuples
        objects[i] = label
    return objects
