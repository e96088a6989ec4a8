"""A run directory in Python: settings, accuracies, confusion, and the method with its weights.

run = load_run("runs/mnist_5-rps-tuned-0")
run.matrix[-1], run.confusion(), run.method.inference(), run.features(images)
"""

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from randpath import metrics
from randpath.bench.experiment import Experiment
from randpath.bench.run import make_method
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Arrays, Source
from randpath.errors import Damaged, UsageError
from randpath.learning.method import Method, State
from randpath.learning.train import predict
from randpath.methods import METHODS
from randpath.network.backbones import BACKBONES
from randpath.storage import checkpoint


@dataclass(frozen=True)
class Run:
    """What a run has left, as far as it has come: docs/runs.md says which file holds what."""

    directory: pathlib.Path
    experiment: Experiment
    class_names: tuple[str, ...]  # in the order in which they were learned
    lines: list[dict[str, Any]]  # metrics.jsonl, one for each task
    epochs: list[dict[str, Any]]
    recipe_file: Mapping[str, Any] | None = None  # path, sha256 and what it defines, if it was a file of one's own

    @property
    def matrix(self) -> list[list[float]]:
        """Row k: the accuracies on the test images of tasks 1..k after task k."""
        return [line["accuracy_by_task"] for line in self.lines]

    @property
    def accuracy(self) -> list[float]:
        """A_1, A_2, ..."""
        return [line["accuracy"] for line in self.lines]

    @property
    def paths(self) -> list[list[list[int]] | None]:
        """P after each task; none for a method without paths."""
        return [line["path"] for line in self.lines]

    @property
    def notes(self) -> list[list[str]]:
        """What the method said of each task."""
        return [line.get("notes", []) for line in self.lines]

    def summary(self) -> dict[str, float | None]:
        """What one would put into a table; for forward transfer see below."""
        return {
            "final": self.accuracy[-1],
            "average": metrics.average_incremental_accuracy(self.accuracy),
            "forgetting": metrics.forgetting(self.matrix),
            "backward_transfer": metrics.backward_transfer(self.matrix),
        }

    def forward_transfer(self, reference: "Run") -> float | None:
        """Mean over tasks j > 1 of (accuracy on task j just after learning it - that of the reference at that time).

        The reference is joint training on the same stream: what it lacks of that, Chaudhry et al. (2018) call
        intransigence. (In the form of Lopez-Paz and Ranzato a task is tested before it is learned; here no class has a
        logit then.)
        """
        mine, theirs = ((r.experiment.dataset, [line["classes"] for line in r.lines]) for r in (self, reference))
        if mine != theirs:
            raise UsageError(f"{self.directory} and {reference.directory} have not learned the same tasks")
        return metrics.forward_transfer(self.matrix, [row[-1] for row in reference.matrix])

    def predictions(self, k: int | None = None) -> dict[str, np.ndarray]:
        """For every test image of tasks 1..k, after task k (default the last): label, predicted, confidence, rank."""
        file = self.directory / "predictions" / f"{len(self.lines) if k is None else k}.safetensors"
        return {name: tensor.numpy() for name, tensor in checkpoint.read_tensors(file).items()}

    def logits(self, k: int | None = None) -> np.ndarray:
        """Of the same images, if they were asked for: float16 (n, classes)."""
        found = self.predictions(k).get("logits")
        if found is None:
            raise UsageError(
                f"{self.directory} has kept no logits", where=str(self.directory), next="bench ... --set logits=true"
            )
        return found

    def confusion(self, k: int | None = None) -> np.ndarray:
        """counts[true, predicted] on the test images of tasks 1..k, after task k; default the last."""
        answers = self.predictions(k)
        classes = len(self.lines[-1 if k is None else k - 1]["classes"])
        return metrics.confusion(answers["label"], answers["predicted"], classes)

    @cached_property
    def source(self) -> Source:
        """The data, read again."""
        self._require_definitions()
        e = self.experiment
        return named.load(e.dataset, size=e.size, skip_bad=e.skip_bad)

    @cached_property
    def method(self) -> Method:
        """The method with the weights of the last committed task."""
        self._require_definitions()
        found = checkpoint.latest(self.directory / "checkpoints")
        assert found is not None
        method = make_method(self.experiment, self.source)
        if self.lines:
            method.load_state_dict(State(found[1].tensors, found[1].documents["state"]))
        return method

    def features(self, images: np.ndarray) -> np.ndarray:
        """What the classifier sees of uint8 images (n, h, w, c): (n, D)."""
        features = getattr(self.method.inference(), "features", None)
        if features is None:
            raise UsageError(f"{self.experiment.method} has no features apart from its logits")
        augment = Augment(self.source.mean, self.source.std)
        with torch.no_grad():
            return predict(features, Arrays(images, np.zeros(len(images), np.int64)), augment).numpy()

    def _require_definitions(self) -> None:
        """Refuse a run of a method, dataset or backbone of one's own whose file was not imported."""
        e, known = self.experiment, {**METHODS, **named.DATASETS, **BACKBONES}
        defined = self.recipe_file["defines"] if self.recipe_file else ()
        missing = [name for name in (e.method, e.dataset, e.backbone) if name in defined and name not in known]
        if missing and self.recipe_file:
            raise UsageError(
                f"{self.directory} needs {', '.join(missing)} from the recipe file {self.recipe_file['path']}",
                next="import that file before",
            )


def load_run(directory: str | pathlib.Path) -> Run:
    """A run, finished or not; nothing in its directory is changed."""
    place = pathlib.Path(directory)
    if not (place / "experiment.json").exists():
        raise UsageError(f"{place} is not a run directory: it has no experiment.json", where=str(place))
    documents = _newest_good(place / "checkpoints").documents
    began = documents["run"]
    return Run(
        place, Experiment.from_json(began["experiment"]), tuple(began["class_names"]), documents["metrics"],
        documents["epochs"], began.get("recipe_file"),
    )  # fmt: skip


def _newest_good(directory: pathlib.Path) -> checkpoint.Saved:
    """The newest checkpoint that is whole; unlike a writer, a reader sets nothing aside."""
    damage: Damaged | None = None
    for name in reversed(checkpoint.names(directory)):
        try:
            return checkpoint.load(directory / name)
        except Damaged as error:
            damage = damage or error
    raise damage or UsageError(f"{directory.parent} has no checkpoint", where=str(directory))
