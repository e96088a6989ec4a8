"""What safety costs: the share of a run of cifar100_10_small spent in saving, on made pictures.

Tasks have a fifth of the pictures and save as much as real ones, every 6 s instead of every 30: so the share is that of
a real run. The bar is 2 %.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from randpath.bench import experiment
from randpath.data import named
from randpath.data.dataset import Arrays, Source
from randpath.recipes.cifar100_10_small import tuned
from randpath.storage import checkpoint

PART = 5
rng = np.random.default_rng(0)
names = tuple(f"class {c:02d}" for c in range(20))


def made(images_a_class: int) -> Arrays:
    labels = np.repeat(np.arange(20), images_a_class)
    return Arrays(rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8), labels)


source = Source("made", made(500 // PART), made(10), names, (0.5,) * 3, (0.25,) * 3, True, "made")
spent = {"seconds": 0.0, "calls": 0}


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent["seconds"] += time.perf_counter() - began
            spent["calls"] += 1

    return wrapped


for name in ("save", "prune", "write_document", "write_lines", "write_tensors", "discard", "latest"):
    setattr(checkpoint, name, timed(getattr(checkpoint, name)))
named.load = lambda name, **_: source
training = replace(tuned.training, save_seconds=tuned.training.save_seconds / PART)
small = replace(tuned, dataset="made", tasks=2, class_order="natural", training=training)
with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
    began = time.perf_counter()
    experiment.run(small, Path(place))
    total = time.perf_counter() - began
print(f"{total:.1f} s, {spent['seconds']:.2f} s in {spent['calls']} calls that save: {spent['seconds'] / total:.2%}")
