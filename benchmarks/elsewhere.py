"""What features are worth for classes that they were never trained on: settings told apart after one task.

    python benchmarks/elsewhere.py RECIPE STATE... [--set key=value]..

STATE is what `benchmarks/ablation.py --states DIR` keeps (DIR/1: after the first task), --set as it was there. The
linear discriminant of its features is fitted to 100 training images of each class of the last five tasks, and asked for
100 others of each. No test image is seen, nothing is recorded.
"""

import argparse
import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from randpath.bench.run import make_method
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Dataset, Joined
from randpath.data.stream import TaskStream
from randpath.learning.closed import Sums, lda
from randpath.learning.method import State
from randpath.learning.train import predict
from randpath.metrics import accuracy
from randpath.storage import checkpoint

EACH = 100  # images of a class to fit, and as many to judge by

parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("recipe")
parser.add_argument("states", type=Path, nargs="+")
parser.add_argument("--set", action="append", default=[])
given = parser.parse_args()

recipe = importlib.import_module(f"randpath.recipes.{given.recipe}")
experiment = replace(recipe.tuned, members=1).with_settings(given.set)  # as ablation.py has it
torch.set_num_threads(experiment.threads)
source = named.load(experiment.dataset, size=experiment.size, skip_bad=experiment.skip_bad)
stream = TaskStream(source, experiment.tasks, experiment.class_order, seed=experiment.seed, validation=False)
plain = Augment(source.mean, source.std)
first = stream.num_tasks - 4
images: Dataset = Joined([stream.task(k).train for k in range(first, stream.num_tasks + 1)])
own = [np.flatnonzero(images.labels == c)[: 2 * EACH] for c in np.unique(images.labels)]
fitted, judged = (images.take(np.concatenate([i[part] for i in own])) for part in (slice(EACH), slice(EACH, None)))

for place in given.states:
    saved = checkpoint.load(place)
    if saved.documents["done"] >= first:
        parser.error(f"{place} has learned {saved.documents['done']} tasks, and some of the classes it is to be asked")
    method = make_method(experiment, source)
    method.load_state_dict(State(saved.tensors, saved.documents["method"]))
    features = method.inference().features
    f, f_judged = (predict(features, data, plain) for data in (fitted, judged))
    sums = Sums.nothing(f.shape[1])
    for i in range(len(own)):
        sums = sums.plus(f[i * EACH : (i + 1) * EACH], i)
    W, b = lda(sums, f.shape[1] / (f.shape[1] + len(f)))
    answers = (f_judged.to(W) @ W.T + b).argmax(dim=1).numpy()
    print(f"{place}: {accuracy(np.repeat(np.arange(len(own)), EACH), answers):.2%} of {len(own)} classes")
