"""Confidence with few pictures: learn MNIST's digits 0 to 6 from ten pictures each, then ask about 7, 8 and 9 too.

    python examples/unknown_few.py --record docs/results/examples/unknown_few.json

A stranger is a picture of a digit that was never learned. AUROC: the chance that a stranger looks stranger than a
picture of a known digit, by confidence alone and by what `unknown` is said by.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from randpath import PathClassifier
from randpath.bench.provenance import commit, environment
from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.model.calibration import expected_calibration_error


def asked(images: int, seed: int, source: named.Source) -> dict[str, float]:
    """One model of pictures that depend on the seed, and what it says of 3,000 test pictures."""
    labels = source.train.labels
    draw = np.random.default_rng(seed)
    chosen = np.concatenate([draw.permutation(np.flatnonzero(labels == c))[:images] for c in range(7)])
    model = PathClassifier(seed=seed, threads=1).fit(source.train.items[chosen], labels[chosen])
    test = source.test.take(np.arange(3000))
    p, known = model.predict_proba(test.items), test.labels < 7
    unknown = model.is_unknown(test.items)
    inner = model._model
    novelty = inner.novelty.score(*inner.seen(Arrays(test.items, test.labels)))
    return {
        "accuracy": float(np.mean(p[known].argmax(axis=1) == test.labels[known])),
        "mean_confidence_of_known": float(p[known].max(axis=1).mean()),
        "calibration_error": expected_calibration_error(p[known], test.labels[known]),
        "highest_confidence_of_a_stranger": float(p[~known].max()),
        "strangers_above_99_percent": float(np.mean(p[~known].max(axis=1) > 0.99)),
        "auroc_by_confidence": float(roc_auc_score(~known, -p.max(axis=1))),
        "auroc": float(roc_auc_score(~known, novelty)),
        "false_alarms_expected": inner.novelty.false_alarms,
        "false_alarms": float(unknown[known].mean()),
        "strangers_called_unknown": float(unknown[~known].mean()),
        "temperature": inner.temperature,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=10, help="training pictures of each digit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()

    source = named.load("mnist")
    found = [asked(options.images, seed, source) for seed in range(options.seeds)]
    result = {
        "command": f"python examples/unknown_few.py --images {options.images} --seeds {options.seeds}",
        **{key: float(np.mean([one[key] for one in found])) for key in found[0]},
        "highest_confidence_of_a_stranger": max(one["highest_confidence_of_a_stranger"] for one in found),
        "by_seed": found,
        "seed": list(range(options.seeds)),
        "versions": environment(),
        "commit": commit(),
    }
    print(json.dumps(result, indent=1))
    if options.record:
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
