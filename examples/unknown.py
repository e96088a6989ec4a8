"""How well is "unknown" said? Learn 50 classes of CIFAR-100, then ask about test pictures of these and of 50 others.

    python examples/unknown.py --record docs/results/examples/unknown.json

AUROC: the chance that a picture of a known class gets a higher confidence than one of a class never learned.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from randpath import PathClassifier
from randpath.bench.provenance import commit, environment
from randpath.data import named
from randpath.model.calibration import expected_calibration_error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=500, help="training pictures of each class")
    parser.add_argument("--steps", type=int, default=5, help="in which the 50 classes are learned")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()

    source = named.load("cifar100")
    order = np.random.RandomState(1993).permutation(100)  # iCaRL's class order
    model = PathClassifier(epochs=options.epochs)
    for classes in np.array_split(order[:50], options.steps):
        labels = source.train.labels
        chosen = np.concatenate([np.flatnonzero(labels == c)[: options.images] for c in classes])
        model.partial_fit(source.train.items[chosen], labels[chosen])

    p = model.predict_proba(source.test.items)
    known = np.isin(source.test.labels, order[:50])
    position = {int(c): i for i, c in enumerate(model.classes_)}
    labels = np.array([position[int(c)] for c in source.test.labels[known]])
    unknown = model.is_unknown(source.test.items)
    result = {
        "command": f"python examples/unknown.py --images {options.images} --steps {options.steps}"
        + (f" --epochs {options.epochs}" if options.epochs else ""),
        "accuracy": float(np.mean(p[known].argmax(axis=1) == labels)),
        "auroc": float(roc_auc_score(known, p.max(axis=1))),
        "calibration_error": expected_calibration_error(p[known], labels),
        "temperature": model._model.temperature,
        "threshold": model._model.threshold,
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
