"""What the 13th class costs from scratch, and whether fewer steps lose accuracy: the same model goes on in two ways.

    python benchmarks/one_more.py --record docs/results/examples/one_more.json

For each seed 13 classes of CIFAR-100 and 60 pictures of each are drawn; 8 classes are learned, then 4, then one: with
all steps, and with as many as `randpath learn` takes for few new pictures. Asked are the other 440 training pictures of
each class, and the test pictures. CPU seconds on one thread; the difference is paired, picture by picture.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from randpath.bench.provenance import commit, environment
from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.model.model import Model
from randpath.model.sizing import plan_for
from randpath.storage.checkpoint import Saved

STEPS = (8, 12, 13)  # classes known after each


def part(data: Arrays, rows: list[np.ndarray], classes: range) -> Arrays:
    """The pictures `rows` of some classes, labelled by position."""
    return Arrays(
        data.items[np.concatenate([rows[c] for c in classes])], np.repeat(classes, [len(rows[c]) for c in classes])
    )


def copied(model: Model) -> Model:
    """As a directory would give it back."""
    state, document = model.state()
    return Model.restore(Saved({**state.tensors}, {"model": json.loads(json.dumps(document))}))


def learned(model: Model, lesson: Arrays, first: int) -> float:
    """Learn the classes from `first` on; seconds of CPU."""
    names = [f"class {c}" for c in range(first, int(lesson.labels.max()) + 1)]
    began = time.process_time()
    model.learn(Arrays(lesson.items, lesson.labels - first), names)
    return time.process_time() - began


def right(model: Model, data: Arrays) -> np.ndarray:
    found: np.ndarray = (model.logits(data).argmax(axis=1) == data.labels).astype(float)
    return found


def paired(seed: int, images: int, source: named.Source, epochs: list[int | None]) -> dict[str, Any]:
    """One model of twelve classes, and the thirteenth learned with all steps and with others (none: by the rule)."""
    draw = np.random.default_rng(seed)
    classes = draw.permutation(100)[: STEPS[-1]]
    own = [draw.permutation(np.flatnonzero(source.train.labels == c)) for c in classes]
    asked = {
        "unused": part(source.train, [rows[images:] for rows in own], range(STEPS[-1])),
        "test": part(source.test, [np.flatnonzero(source.test.labels == c) for c in classes], range(STEPS[-1])),
    }
    lessons = [part(source.train, [rows[:images] for rows in own], range(a, b)) for a, b in zip((0, *STEPS), STEPS)]
    model = Model(plan_for(lessons[0], mean=source.mean, std=source.std, threads=1, seed=seed))
    for lesson, first in zip(lessons[:-1], (0, *STEPS)):
        learned(model, lesson, first)
    n = sum(len(data) for data in model.method.memory.train.values()) + round(0.9 * images)
    found: dict[str, Any] = {"seed": seed, "arms": []}
    answers = []
    for number in [model.plan.training(n).epochs, *epochs]:
        grown = copied(model)
        grown.plan = replace(grown.plan, epochs=number)
        seconds = learned(grown, lessons[-1], STEPS[-2])
        answers.append({name: right(grown, data) for name, data in asked.items()})
        arm: dict[str, Any] = {"epochs": number, "cpu_seconds": round(seconds, 1)}
        for name, was in answers[0].items():
            more = answers[-1][name] - was
            arm[name] = float(answers[-1][name].mean())
            arm[f"{name}_difference"] = float(more.mean())
            arm[f"{name}_standard_error"] = float(more.std() / np.sqrt(len(more)))
        found["arms"].append(arm)
        print(json.dumps({"seed": seed, **arm}), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, nargs="*", default=[], help="other numbers to try beside the rule's")
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()
    source = named.load("cifar100")
    runs = [paired(seed, options.images, source, [None, *options.epochs]) for seed in options.seeds]
    result: dict[str, Any] = {"command": f"python benchmarks/one_more.py --images {options.images}", "runs": runs}
    result |= {"seeds": options.seeds, "versions": environment(), "commit": commit()}
    if options.record:
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
