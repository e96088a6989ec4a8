"""What the 13th class costs from scratch, and whether it costs accuracy to make it cheap.

    python benchmarks/one_more.py --record docs/results/examples/one_more.json

For each seed 13 classes of CIFAR-100 and 60 pictures of each are drawn; 8 classes are learned, then 4, then one. Three
ways: as release 0.1 did (its network, all steps in every call); as `randpath learn` does now (fewer steps for few new
pictures); and the latter with all steps for the 13th class. Asked are the other 440 training pictures of each class,
and the test pictures. CPU seconds on one thread; the differences are paired, picture by picture.
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


RELEASE = {"attention": "peak", "stem": "learned", "activation": "relu"}  # the network of release 0.1


def all_steps(model: Model, lesson: Arrays) -> Model:
    """The same, with the epochs that the first call would take for as many pictures."""
    n = sum(len(data) for data in model.method.memory.train.values()) + round(0.9 * len(lesson))
    model.plan = replace(model.plan, epochs=model.plan.training(n).epochs)
    return model


def paired(seed: int, images: int, source: named.Source) -> dict[str, Any]:
    """Thirteen classes in three ways; the seconds and the accuracy after each call, and the differences at the end."""
    draw = np.random.default_rng(seed)
    classes = draw.permutation(100)[: STEPS[-1]]
    own = [draw.permutation(np.flatnonzero(source.train.labels == c)) for c in classes]
    asked = {
        "unused": part(source.train, [rows[images:] for rows in own], range(STEPS[-1])),
        "test": part(source.test, [np.flatnonzero(source.test.labels == c) for c in classes], range(STEPS[-1])),
    }
    lessons = [part(source.train, [rows[:images] for rows in own], range(a, b)) for a, b in zip((0, *STEPS), STEPS)]

    def begun(network: dict[str, str]) -> Model:
        return Model(plan_for(lessons[0], mean=source.mean, std=source.std, threads=1, seed=seed, **network))

    then, now = begun(RELEASE), begun({})
    seconds: dict[str, list[float]] = {"release": [], "now": []}
    for lesson, first in zip(lessons[:-1], (0, *STEPS)):
        seconds["release"].append(learned(all_steps(then, lesson) if first else then, lesson, first))
        then.plan = replace(then.plan, epochs=None)
        seconds["now"].append(learned(now, lesson, first))
    ways = {"release": all_steps(then, lessons[-1]), "now": now, "all steps": all_steps(copied(now), lessons[-1])}
    found: dict[str, Any] = {"seed": seed, "ways": []}
    answers: dict[str, dict[str, np.ndarray]] = {}
    for name, model in ways.items():
        last = learned(model, lessons[-1], STEPS[-2])
        answers[name] = {what: right(model, data) for what, data in asked.items()}
        way: dict[str, Any] = {"way": name, "cpu_seconds": [round(s, 1) for s in (*seconds.get(name, ()), last)]}
        for what, was in answers["release"].items():
            more = answers[name][what] - was
            way[what] = float(answers[name][what].mean())
            way[f"{what}_difference"] = float(more.mean())
            way[f"{what}_standard_error"] = float(more.std() / np.sqrt(len(more)))
        found["ways"].append(way)
        print(json.dumps({"seed": seed, **way}), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()
    source = named.load("cifar100")
    runs = [paired(seed, options.images, source) for seed in options.seeds]
    result: dict[str, Any] = {"command": f"python benchmarks/one_more.py --images {options.images}", "runs": runs}
    result |= {"seeds": options.seeds, "versions": environment(), "commit": commit()}
    if options.record:
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
