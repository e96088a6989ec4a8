"""Compare settings on VALIDATION images, never on test images: how the `tuned` recipes were chosen.

    python benchmarks/ablation.py RECIPE [--tasks K] [--method M] [--seed S] [--set key=value]...

learns the first K tasks of the tuned variant and appends the accuracy after each, on the validation images of all
classes seen, to docs/results/ablations.json. The tables of docs/log.md are made from that file (`make tables`).
"""

import argparse
import importlib
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from randpath import data
from randpath.augment import Augment
from randpath.checkpoint import replace_file
from randpath.experiment import commit, environment, make_method
from randpath.images import Joined
from randpath.method import Work
from randpath.metrics import accuracy
from randpath.stream import TaskStream
from randpath.train import predict

parser = argparse.ArgumentParser()
parser.add_argument("recipe")
parser.add_argument("--tasks", type=int, default=4)
parser.add_argument("--method", default="rps")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--set", action="append", default=[])
given = parser.parse_args()

experiment = importlib.import_module(f"randpath.recipes.{given.recipe}").tuned.changed("seed", given.seed)
if given.method != experiment.method:
    experiment = replace(experiment, method=given.method, options={})
experiment = experiment.with_settings(given.set)

torch.set_num_threads(experiment.threads)
source = data.load(experiment.dataset)
stream = TaskStream(source, experiment.tasks, experiment.class_order, seed=experiment.seed)
method = make_method(experiment, source)
plain = Augment(source.mean, source.std)
held_out, A, saturation, switched = [], [], [], []
began = time.process_time()
for k in range(1, given.tasks + 1):
    task = stream.task(k)
    learned = method.learn(task, Work())
    held_out.append(task.val)
    everything = Joined(held_out)
    A.append(accuracy(everything.labels, predict(method.logits, everything, plain).argmax(dim=1).numpy()))
    saturation.append(learned.saturation)
    switched.append(learned.switched)
    print(
        f"task {k}: {A[-1]:.2%} on validation images, mu_sat {learned.saturation}, switched {learned.switched}",
        flush=True,
    )

changed = "".join(f" --set {setting}" for setting in given.set)
result = {
    "recipe": given.recipe,
    "method": given.method,
    "changed": ", ".join(given.set),
    "seed": given.seed,
    "tasks": given.tasks,
    "validation": A,
    "saturation": saturation,
    "switched": switched,
    "cpu_seconds": round(time.process_time() - began, 1),
    "class_order": list(stream.class_order),
    "data_fingerprint": source.fingerprint,
    "command": f"python benchmarks/ablation.py {given.recipe} --tasks {given.tasks} --method {given.method}"
    f" --seed {given.seed}{changed}",
    "versions": environment(),
    "commit": commit(),
    "date": time.strftime("%Y-%m-%d", time.gmtime()),
}
file = Path("docs/results/ablations.json")
known = json.loads(file.read_text()) if file.exists() else []
kept = [r for r in known if r["command"] != result["command"]]
text = "[\n" + ",\n".join(json.dumps(r, sort_keys=True) for r in [*kept, result]) + "\n]\n"
replace_file(file, text.encode())
