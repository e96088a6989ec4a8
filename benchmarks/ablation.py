"""Compare settings on VALIDATION images, never on test images: how the `tuned` recipes were chosen.

    python benchmarks/ablation.py RECIPE [--variant V] [--tasks K] [--method M] [--seed S] [--set key=value].. [--add A]
                                  [--held N] [--states DIR] [--begin DIR/K]

learns the first K tasks of a variant (tuned unless told; one network, unless --set members=2) and appends the accuracy
after each, on the validation images of all classes seen, to docs/results/ablations.json (not with --dry); docs/log.md
has its tables (`make tables`).
Fifty validation images of a class tell a point and a half apart, not less. `--held 200` sets 200 training images of
each class aside to judge by, which halves that and makes a run cheaper: add --set memory=1200 for 300 of 500 images.
`--states DIR` keeps the state after each task, and `--begin DIR/K` goes on from the one after task K with other
settings of what comes after: whether the path was switched after task K is a part of the state. Two settings of task
K + 1 are compared from the same network and exemplars, for the cost of that task alone. Nothing is recorded then: the
state lies on one's own disk.
`--add`, which may be given several times and with a strength (`--add features=3`), tries on rps what the field does
and our software does not (benchmarks/additions.py):
    average      the running mean of the weights, decay 0.99, takes the place of the last ones
    align        the new classes' rows of the head are scaled to the mean norm of the old ones (weight aligning, 2020)
    teacher      the teacher is the previous weights on the new path, as in the authors' code, not on the previous one
    phase        a last phase on as many images of each class as the rarest has, at a tenth of the learning rate
    flip         each image is mirrored in every second epoch, instead of at random
    biases       scales and biases of batch-norms learn eight times as fast
    cutout, mixup, cutmix      in the first task
    everywhere   cutout, mixup and cutmix in half of the steps of later tasks too; the teacher sees the same pictures
    interpolate  after a task a fifth of the weights before it, the classifier's excepted
    features     distillation of the pooled features too, by their cosine (LUCIR), 5 * sqrt(old / new)
    decorrelate  in the first task features are made less correlated within classes (CwD), 0.5
    ratio        half of every batch are exemplars; the balanced softmax counts visits then
"""

import argparse
import importlib
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from additions import Additions, parsed

from randpath.bench.provenance import commit, environment
from randpath.bench.run import answer, few, make_method
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Dataset, Joined, Source
from randpath.data.stream import TaskStream
from randpath.keyed import rng
from randpath.learning.method import State, Work
from randpath.learning.train import predict
from randpath.methods import METHODS
from randpath.metrics import accuracy
from randpath.report.record import append_result
from randpath.storage import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("recipe")
parser.add_argument("--variant", default="tuned")
parser.add_argument("--tasks", type=int, default=4)
parser.add_argument("--method", default="rps")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--set", action="append", default=[])
parser.add_argument("--add", action="append", default=[])
parser.add_argument("--held", type=int, default=None, help="judge by so many training images of each class")
parser.add_argument("--states", type=Path, default=None, help="keep the state after each task here")
parser.add_argument("--begin", type=Path, default=None, help="go on from this state, one that --states has kept")
parser.add_argument("--dry", action="store_true", help="record nothing")
given = parser.parse_args()
try:
    additions = Additions(parsed(given.add))
except ValueError as error:
    parser.error(str(error))
if given.add and given.method != "rps":
    parser.error("--add is for --method rps")

recipe = importlib.import_module(f"randpath.recipes.{given.recipe}")
experiment = replace(getattr(recipe, given.variant), seed=given.seed, members=1)
if given.method != experiment.method:
    experiment = replace(experiment, method=given.method, options={})
experiment = experiment.with_settings(given.set)
if given.held is not None and (experiment.validation or given.held < 1):
    parser.error("--held N sets N images of each class aside, one at least, in place of validation=true")
if given.states is not None and given.states.exists():
    parser.error(f"{given.states} is there already: --states makes a new directory")
if not experiment.validation and given.held is None:
    parser.error("validation=false leaves no images to compare settings on; --held 200 sets some aside")


def parted(data: Dataset, held: int) -> tuple[Dataset, Dataset]:
    """The images to learn from, and `held` of each class, the same for all seeds."""
    own = [rng("held", int(c)).permutation(np.flatnonzero(data.labels == c)) for c in np.unique(data.labels)]
    rest, kept = (np.sort(np.concatenate(parts)) for parts in ([i[held:] for i in own], [i[:held] for i in own]))
    return data.take(rest), data.take(kept)


def cut(source: Source, cumulative: bool, validation: bool) -> TaskStream:
    return TaskStream(
        source, experiment.tasks, experiment.class_order, seed=experiment.seed, cumulative=cumulative,
        validation=validation,
    )  # fmt: skip


torch.set_num_threads(experiment.threads)
source = named.load(experiment.dataset, size=experiment.size, skip_bad=experiment.skip_bad)
if experiment.images is not None:
    source = replace(source, train=few(source.train, experiment.images, experiment.seed))
judges = None
if given.held:
    train, kept = parted(source.train, given.held)
    judges = cut(replace(source, train=kept), cumulative=False, validation=False)
    source = replace(source, train=train)
stream = cut(source, METHODS[experiment.method].cumulative, experiment.validation)
method = make_method(experiment, source)
plain = Augment(source.mean, source.std)
held_out, A, saturation, switched, done = [], [], [], [], 0
# What a state has learned from: with another part of the images it would know some that are to judge it.
learned_from = {name: getattr(experiment, name) for name in ("dataset", "seed", "validation", "images")}
learned_from |= {"held": given.held, "class_order": list(stream.class_order)}
if given.begin is not None:
    saved = checkpoint.load(given.begin)
    done = saved.documents["done"]
    if saved.documents["learned_from"] != learned_from:
        parser.error(f"{given.begin} has learned from {saved.documents['learned_from']}, not from {learned_from}")
    if given.tasks <= done:
        parser.error(f"{given.begin} knows {done} tasks: --tasks {done + 1} learns one more")
    method.load_state_dict(State(saved.tensors, saved.documents["method"]))
began = time.process_time()
for k in range(1, given.tasks + 1):
    task = stream.task(k)
    held_out.append(task.val if judges is None else judges.task(k).train)
    if k <= done:
        additions.known = task.num_classes
        continue
    learned = method.learn(task, Work())
    additions.known = task.num_classes
    if given.states is not None:
        state = method.state_dict()
        documents = {"method": state.document, "done": k, "learned_from": learned_from}
        checkpoint.save(given.states, str(k), state.tensors, documents)
    everything = Joined(held_out)
    answers = predict(answer(method.inference(), experiment), everything, plain)
    A.append(accuracy(everything.labels, answers.argmax(dim=1).numpy()))
    saturation.append(learned.saturation)
    switched.append(learned.switched)
    print(
        f"task {k}: {A[-1]:.2%} on held-out images, mu_sat {learned.saturation}, switched {learned.switched}",
        flush=True,
    )

typed = "" if given.variant == "tuned" else f" --variant {given.variant}"
also = [f"--add {addition}" for addition in given.add] + ([f"--held {given.held}"] if given.held else [])
typed += "".join(f" {option}" for option in also) + "".join(f" --set {setting}" for setting in given.set)
result = {
    "recipe": given.recipe,
    "method": given.method,
    "variant": given.variant,
    "epochs": [experiment.training.of_task(k).epochs for k in range(1, given.tasks + 1)],
    "changed": ", ".join([*given.set, *also]),
    "seed": given.seed,
    "tasks": given.tasks,
    "validation": A,
    "saturation": saturation,
    "switched": switched,
    "cpu_seconds": round(time.process_time() - began, 1),
    "class_order": list(stream.class_order),
    "data_fingerprint": source.fingerprint,
    "command": f"python benchmarks/ablation.py {given.recipe} --tasks {given.tasks} --method {given.method}"
    f" --seed {given.seed}{typed}",
    "versions": environment(),
    "commit": commit(),
    "date": time.strftime("%Y-%m-%d", time.gmtime()),
}
if not given.dry and given.begin is None:
    append_result(Path("docs/results/ablations.json"), result)
