"""Few pictures, class by class: `randpath learn` with and without a start, against the simple things.

    python examples/start.py --record docs/results/examples/start.json

CIFAR-100 as a folder of PNG files (8, then 12, then 13 classes, 60 pictures each) and MNIST (6, then 9, then 10 digits,
7 pictures each). On the start's features: the nearest mean, and logistic regression on all data so far. Without them:
everything learned afresh. Seconds are of CPU, programs loaded; on the start's features, the features are counted.
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

from randpath.bench.provenance import commit, environment
from randpath.commands.app import app
from randpath.commands.reading import open_model, picture_shape
from randpath.data.dataset import Arrays
from randpath.data.features import Start, as_shape
from randpath.data.named import load
from randpath.model.start import read

START = "efficientnet_lite0"


@dataclass(frozen=True)
class Lessons:
    """What is learned, step by step, and asked after each step."""

    title: str
    classes: tuple[int, ...]  # known after each step
    train: list[Arrays]  # of each step
    test: list[Arrays]  # of all classes so far
    folders: list[Path]

    @property
    def all_at_once(self) -> Path:
        """A folder with the pictures of every step."""
        return self.folders[-1].parent / "all"


def lessons(dataset: str, title: str, classes: tuple[int, ...], images: int, tests: int, place: Path) -> Lessons:
    """The first pictures of the first classes, in iCaRL's order for CIFAR-100."""
    source = load(dataset)
    order = np.random.RandomState(1993).permutation(100) if dataset == "cifar100" else np.arange(10)
    steps = [range(first, last) for first, last in zip((0, *classes), classes)]
    train = [_of(source.train, order, step, images) for step in steps]
    test = [_of(source.test, order, range(last), tests) for last in classes]
    folders = [place / dataset / str(k) for k in range(len(classes))]
    for folder, part in zip(folders, train):
        for into in (folder, place / dataset / "all"):
            _write(into, part)
    return Lessons(title, classes, train, test, folders)


def _of(data: Arrays, order: np.ndarray, classes: range, count: int) -> Arrays:
    own = [np.flatnonzero(data.labels == order[c])[:count] for c in classes]
    return Arrays(data.items[np.concatenate(own)], np.repeat(np.array(classes), [len(rows) for rows in own]))


def _write(folder: Path, part: Arrays) -> None:
    for i, (pixels, c) in enumerate(zip(part.items, part.labels)):
        file = folder / f"class{c:02d}" / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file)


def spent(do: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its seconds of CPU."""
    began = time.process_time()
    found = do()
    return found, round(time.process_time() - began, 1)


def learned(model: Path, folder: Path, test: Arrays, start: str, *more: str) -> dict[str, float]:
    """One `randpath learn`, and what the model knows then."""

    def type_it() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            words = ["learn", str(model), str(folder), "--start", start, "--threads", "1", *more]
            app(words, result_action="return_value")

    _, seconds = spent(type_it)
    _, grown = open_model(model)
    known = np.array([int(grown.text(c).removeprefix("class")) for c in range(len(grown.names))])
    seen = Arrays(np.stack([as_shape(picture, picture_shape(grown)) for picture in test.items]), test.labels)
    right = float(np.mean(known[grown.logits(seen).argmax(axis=1)] == test.labels))
    share = grown.history[-1].get("path_share")
    return {"accuracy": right, "cpu_seconds": seconds, **({} if share is None else {"path_share": share})}


def simple(given: Lessons, network: Start) -> dict[str, list[dict[str, float]]]:
    """On the features, with all data so far: the nearest mean of unit vectors, and logistic regression on these."""
    features = [spent(partial(_features, network, part)) for part in given.train]
    found: dict[str, list[dict[str, float]]] = {"features": [], "nearest mean": [], "logistic regression": []}
    for k, test in enumerate(given.test):
        f = np.concatenate([x for x, _ in features[: k + 1]])
        y = np.concatenate([part.labels for part in given.train[: k + 1]])
        g = _features(network, test)
        means, near = spent(partial(_means, f, y))
        fitted, solved = spent(partial(LogisticRegression(C=10.0, max_iter=300).fit, f, y))
        found["features"].append({"cpu_seconds": features[k][1]})
        right = float(np.mean((g @ means.T).argmax(axis=1) == test.labels))
        found["nearest mean"].append({"accuracy": right, "cpu_seconds": round(features[k][1] + near, 1)})
        right = float(fitted.score(g, test.labels))
        found["logistic regression"].append({"accuracy": right, "cpu_seconds": round(features[k][1] + solved, 1)})
    return found


def _features(network: Start, part: Arrays) -> np.ndarray:
    return _unit(network.vectors(part).items)


def _means(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _unit(np.stack([f[y == c].mean(axis=0) for c in np.unique(y)]))


def _unit(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float32)
    unit: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit


def compared(given: Lessons, place: Path, network: Start, *more: str) -> dict[str, list[dict[str, float]]]:
    """Every system, after every step."""
    found: dict[str, list[dict[str, float]]] = {}
    for start in (START, "none"):
        steps = zip(given.folders, given.test)
        found[f"learn --start {start}"] = [learned(place / start, *step, start, *more) for step in steps]
    found |= simple(given, network)
    afresh = learned(place / "afresh", given.all_at_once, given.test[-1], "none", *more)
    found["learn --start none, afresh"] = [{}] * (len(given.classes) - 1) + [afresh]
    return found


def table(given: Lessons, images: int, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """For docs/models.md."""

    def cells(steps: Sequence[dict[str, float]], key: str, scale: float) -> str:
        return ", ".join(f"{scale * step[key]:.1f}" if key in step else "-" for step in steps)

    head = f"{given.title}: {', '.join(map(str, given.classes))} classes, {images} pictures each"
    rows = [[name, cells(s, "accuracy", 100), cells(s, "cpu_seconds", 1)] for name, s in found.items()]
    return {"header": [head, "accuracy, %", "CPU seconds for each step"], "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=60, help="of each class of CIFAR-100")
    parser.add_argument("--digits", type=int, default=7, help="pictures of each digit")
    parser.add_argument("--tests", type=int, default=100, help="test pictures of each class")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--only", choices=("cifar100", "mnist"), default=None)
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()

    network, more = read(START)[1], [] if options.epochs is None else ["--epochs", str(options.epochs)]
    result: dict[str, Any] = {"command": "python examples/start.py", "tables": []}
    with tempfile.TemporaryDirectory() as folder:
        for dataset, title, classes, images in (
            ("cifar100", "CIFAR-100", (8, 12, 13), options.images),
            ("mnist", "MNIST", (6, 9, 10), options.digits),
        ):
            if options.only in (None, dataset):
                given = lessons(dataset, title, classes, images, options.tests, Path(folder))
                found = compared(given, Path(folder) / f"models-{dataset}", network, *more)
                result[dataset] = found
                result["tables"].append(table(given, images, found))
                print(json.dumps(result["tables"][-1], indent=1), flush=True)
    result |= {"seed": 0, "versions": environment(), "commit": commit()}
    if options.record:
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
