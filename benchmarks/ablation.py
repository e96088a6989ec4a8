"""Compare settings on VALIDATION images, never on test images: how the `tuned` recipes were chosen.

    python benchmarks/ablation.py RECIPE [--variant V] [--tasks K] [--method M] [--seed S] [--set key=value].. [--add A]

learns the first K tasks of a variant (tuned unless told) and appends the accuracy after each, on the validation images
of all classes seen, to docs/results/ablations.json; docs/log.md has its tables (`make tables`). `--add` tries
on rps what the field does after or beside the training, and what our software does not do:
    average   the running mean of the weights, decay 0.99, takes the place of the last ones
    align     the new classes' rows of the head are scaled to the mean norm of the old ones (weight aligning, 2020)
    teacher   the teacher is the previous weights on the new path, as in the authors' code, not on the previous one
    phase     a last phase on as many images of each class as the rarest has, at a tenth of the learning rate
"""

import argparse
import importlib
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from randpath.bench.provenance import commit, environment
from randpath.bench.run import make_method
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.dataset import Joined
from randpath.data.stream import TaskStream
from randpath.keyed import rng
from randpath.learning import selection
from randpath.learning.method import Work
from randpath.learning.selection import train_candidate
from randpath.learning.train import fit, predict
from randpath.methods import METHODS
from randpath.metrics import accuracy
from randpath.network.fold import fold
from randpath.report.record import append_result

parser = argparse.ArgumentParser()
parser.add_argument("recipe")
parser.add_argument("--variant", default="tuned")
parser.add_argument("--tasks", type=int, default=4)
parser.add_argument("--method", default="rps")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--set", action="append", default=[])
parser.add_argument("--add", choices=("average", "align", "phase", "teacher"), default=None)
given = parser.parse_args()
if given.add and given.method != "rps":
    parser.error("--add is for --method rps")

recipe = importlib.import_module(f"randpath.recipes.{given.recipe}")
experiment = getattr(recipe, given.variant).changed("seed", given.seed)
if given.method != experiment.method:
    experiment = replace(experiment, method=given.method, options={})
experiment = experiment.with_settings(given.set)
if not experiment.validation:
    parser.error("validation=false leaves no images to compare settings on")

known = 0  # classes before the present task


def fit_and_more(net, params, data, loss, training, augment, *, key, validate, **more):
    """`fit`, with what --add asks for."""
    mean = {name: p.detach().clone() for name, p in params.items()}

    def average() -> None:
        for name, p in params.items():
            mean[name].lerp_(p.detach(), 0.01)

    after_step = average if given.add == "average" else None
    log = fit(net, params, data, loss, training, augment, key=key, validate=validate, after_step=after_step, **more)
    with torch.no_grad():
        if given.add == "average":
            for name, p in params.items():
                p.copy_(mean[name])
        if given.add == "align" and known:
            norms = net.head.weight.norm(dim=1)
            net.head.weight[known:] *= norms[:known].mean() / norms[known:].mean()
    if given.add == "phase":
        of_class = [np.flatnonzero(data.labels == c) for c in np.unique(data.labels)]
        least = min(map(len, of_class))
        chosen = np.concatenate([rng(*key, "phase", c).permutation(own)[:least] for c, own in enumerate(of_class)])
        last = replace(training, epochs=max(1, training.epochs // 4), lr=training.lr / 10, schedule="cosine")
        fit(net, params, data.take(chosen), loss, last, augment, key=(*key, "phase"), **more)
    return log


def train_with_teacher_on_the_new_path(job, threads, candidate, tick):
    if job.teacher is not None:
        net = job.setting.backbone.build(job.setting.seed)
        net.load_weights(job.weights)
        job = replace(job, teacher=fold(net, job.P_fixed | candidate[1]))
    return train_candidate(job, threads, candidate, tick)


if given.add == "teacher":
    selection.train_candidate = train_with_teacher_on_the_new_path
elif given.add:
    selection.fit = fit_and_more

torch.set_num_threads(experiment.threads)
source = named.load(experiment.dataset)
cumulative = METHODS[experiment.method].cumulative
stream = TaskStream(source, experiment.tasks, experiment.class_order, seed=experiment.seed, cumulative=cumulative)
method = make_method(experiment, source)
plain = Augment(source.mean, source.std)
held_out, A, saturation, switched = [], [], [], []
began = time.process_time()
for k in range(1, given.tasks + 1):
    task = stream.task(k)
    learned = method.learn(task, Work())
    known = task.num_classes
    held_out.append(task.val)
    everything = Joined(held_out)
    A.append(accuracy(everything.labels, predict(method.inference(), everything, plain).argmax(dim=1).numpy()))
    saturation.append(learned.saturation)
    switched.append(learned.switched)
    print(
        f"task {k}: {A[-1]:.2%} on validation images, mu_sat {learned.saturation}, switched {learned.switched}",
        flush=True,
    )

typed = "" if given.variant == "tuned" else f" --variant {given.variant}"
typed += f" --add {given.add}" if given.add else ""
typed += "".join(f" --set {setting}" for setting in given.set)
result = {
    "recipe": given.recipe,
    "method": given.method,
    "variant": given.variant,
    "epochs": [experiment.training.of_task(k).epochs for k in range(1, given.tasks + 1)],
    "changed": ", ".join([*given.set, *([f"--add {given.add}"] if given.add else [])]),
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
append_result(Path("docs/results/ablations.json"), result)
