"""How well is "unknown" said? Learn 50 classes of CIFAR-100, then ask about test pictures of these and of 50 others.

    python examples/unknown.py --record docs/results/examples/unknown.json
    python examples/unknown.py --start efficientnet_lite0 --record docs/results/examples/unknown_start.json

AUROC: the chance that a picture of a class never learned looks stranger than one of a known class, by confidence alone
and by what "unknown" is said by. With a start: on its features, which are kept beside the data.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from randpath import PathClassifier
from randpath.bench.provenance import commit, environment
from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.model import calibration
from randpath.model.model import Model
from randpath.model.sizing import plan_for


def learned(train: Arrays, steps: list[np.ndarray], images: int, epochs: int | None, start: str | None) -> Model:
    """The classes of each step, step by step; of vectors, as `learn --start` does."""
    classifier, model = PathClassifier(epochs=epochs), None
    for classes in steps:
        own = np.concatenate([np.flatnonzero(train.labels == c)[:images] for c in classes])
        if start is None:
            model = classifier.partial_fit(train.items[own], train.labels[own])._model
            continue
        names, labels = np.unique(train.labels[own], return_inverse=True)
        part = Arrays(train.items[own], labels)
        if model is None:
            file = named.default_root() / "start" / f"{start}.onnx"
            sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
            model = Model(plan_for(part, start=sha256, start_name=start, epochs=epochs, threads=1))
        model.learn(part, names.tolist())
    assert model is not None
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=500, help="training pictures of each class")
    parser.add_argument("--steps", type=int, default=5, help="in which the 50 classes are learned")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--start", default=None, help="a network in $RANDPATH_DATA/start")
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()

    source = named.load("cifar100" if options.start is None else f"cifar100@{options.start}")
    order = np.random.RandomState(1993).permutation(100)  # iCaRL's class order
    steps = np.array_split(order[:50], options.steps)
    model = learned(source.train, steps, options.images, options.epochs, options.start)

    p, unknown = model.answers(source.test)
    q, f = model.seen(source.test)
    known = np.isin(source.test.labels, order[:50])
    labels = np.array([model.names.index(int(c)) for c in source.test.labels[known]])
    result = {
        "command": f"python examples/unknown.py --images {options.images} --steps {options.steps}"
        + (f" --epochs {options.epochs}" if options.epochs else "")
        + (f" --start {options.start}" if options.start else ""),
        "accuracy": float(np.mean(p[known].argmax(axis=1) == labels)),
        "auroc": float(roc_auc_score(~known, model.novelty.score(q, f) if model.novelty else -p.max(axis=1))),
        "auroc_by_confidence": float(roc_auc_score(known, p.max(axis=1))),
        "calibration_error": calibration.expected_calibration_error(p[known], labels),
        "temperature": model.temperature,
        "threshold": model.threshold,
        "known_called_unknown": float(unknown[known].mean()),
        "unknown_called_unknown": float(unknown[~known].mean()),
        "seed": 0,
        "class_order": order.tolist(),
        "versions": environment(),
        "commit": commit(),
    }
    print(json.dumps(result, indent=1))
    if options.record:
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
