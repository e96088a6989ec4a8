"""A classifier that grows: 50 classes of CIFAR-100, then one new class at a time, and what that costs.

randpath data cifar100
python examples/grow.py                      all pictures; about half an hour on two cores
python examples/grow.py --images 20          a few minutes
python examples/grow.py --record docs/results/examples/grow.json
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from randpath import PathClassifier
from randpath.bench.provenance import commit, environment
from randpath.data import named


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=500, help="training pictures of each class")
    parser.add_argument("--first", type=int, default=50, help="classes to begin with")
    parser.add_argument("--more", type=int, default=5, help="classes to add, one by one")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--record", type=Path, default=None, help="write what happened to this JSON file")
    options = parser.parse_args()

    source = named.load("cifar100")
    order = np.random.RandomState(1993).permutation(100)  # iCaRL's class order
    names = np.array(source.class_names)

    def pictures(part, classes, count=None):
        chosen = np.concatenate([np.flatnonzero(part.labels == c)[:count] for c in classes])
        return part.items[chosen], names[part.labels[chosen]]

    model = PathClassifier(epochs=options.epochs)
    steps = [order[: options.first], *(order[c : c + 1] for c in range(options.first, options.first + options.more))]
    story = []
    for number, new in enumerate(steps, start=1):
        began = time.monotonic()
        model.partial_fit(*pictures(source.train, new, options.images))
        seconds = time.monotonic() - began
        X, y = pictures(source.test, order[: len(model.classes_)])
        right = model.predict(X) == y
        first, latest = np.isin(y, names[steps[0]]), np.isin(y, names[new])
        entry = model.history_[-1]
        line = {
            "classes": len(model.classes_),
            "accuracy": float(right.mean()),
            "accuracy_of_the_first_classes": float(right[first].mean()),
            "accuracy_of_the_new_classes": float(right[latest].mean()),
            "saturation": entry["saturation"],
            "switched": entry["switched"],
            "megabytes": model._model.megabytes(),
            "seconds": round(seconds, 1),
        }
        story.append(line)
        what = f"{len(new)} classes" if number == 1 else str(names[new[0]])
        print(f"{number}. learned {what} in {seconds:.0f} s; it now knows {line['classes']} classes")
        print(f"   right on {right.mean():.1%} of all test pictures, {right[latest].mean():.1%} of the new", end="")
        print("" if number == 1 else f", {right[first].mean():.1%} of the first {options.first}")
        if number > 1:
            forgotten = story[0]["accuracy"] - right[first].mean()
            print(f"   forgotten since the beginning: {forgotten:+.1%} of the first {options.first} classes' pictures")
        opens = "a new path will be opened" if entry["switched"] else "the path is used again"
        mu_sat = "not measured" if entry["saturation"] is None else f"{entry['saturation']:+.2f}"
        print(f"   mu_sat {mu_sat}: {opens}; it weighs {line['megabytes']:.1f} MB, exemplars included")
    if options.record:
        command = f"python examples/grow.py --images {options.images} --first {options.first} --more {options.more}"
        record = {"command": command, "seed": 0, "class_order": order.tolist(), "steps": story}
        record |= {"versions": environment(), "commit": commit()}
        options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
