"""Finished runs judged again with `mirror=true`: a picture and its mirror image are answered together.

    python benchmarks/mirror.py RUN... --record docs/results/examples/mirror.json

Training does not see that setting, so that it need not be paid twice. A run's last state answers all test images. Runs
that the file has already stay in it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from randpath import metrics
from randpath.bench.load import load_run
from randpath.bench.provenance import commit, environment
from randpath.bench.run import answer, evaluate, prepare

HEADER = ["run", "class order", "final accuracy, %", "mirror=true, %", "gain, points"]


def judged(directory: Path) -> dict[str, Any]:
    run = load_run(directory)
    mirrored = replace(run.experiment, mirror=True)
    if run.experiment.mirror or len(run.lines) < run.experiment.tasks:
        raise SystemExit(f"{directory} is judged with mirror images already, or not finished")
    torch.set_num_threads(run.experiment.threads)
    began = json.loads((directory / "experiment.json").read_text())
    stream, _ = prepare(mirrored)
    found = {"command": began["command"], "commits": began["commits"], "class_order": run.experiment.class_order}
    found |= {"seed": run.experiment.seed, "accuracy": run.accuracy[-1], "versions": environment()}
    both = answer(run.method.inference(), mirrored).to(mirrored.device)
    _, answers = evaluate(both, stream, mirrored.device, stream.num_tasks)
    return found | {"judged_at": commit(), "mirrored": metrics.accuracy(answers["label"], answers["predicted"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
    options = parser.parse_args()
    new = [judged(directory) for directory in options.runs]
    for run in new:
        print(" | ".join(_row(run)), flush=True)
    if options.record:
        before = json.loads(options.record.read_text())["runs"] if options.record.exists() else []
        runs = [run for run in before if run["command"] not in [other["command"] for other in new]] + new
        result = {"command": f"python benchmarks/mirror.py {' '.join(f'RUN{i}' for i in range(len(runs)))}"}
        result |= {"runs": runs, "tables": [{"header": HEADER, "rows": [_row(run) for run in runs]}]}
        result |= {"versions": environment(), "commit": commit()}
        options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


def _row(run: dict[str, Any]) -> list[str]:
    figures = (100 * run["accuracy"], 100 * run["mirrored"], 100 * (run["mirrored"] - run["accuracy"]))
    return [f"`{run['command']}`", str(run["class_order"]), *(f"{figure:.2f}" for figure in figures)]


if __name__ == "__main__":
    main()
