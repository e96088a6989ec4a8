"""A run -> one recorded result, in docs/results/RECIPE.json: what every table and figure is made from."""

import json
import time
from pathlib import Path
from typing import Any

from randpath import metrics
from randpath.errors import UsageError, as_typed
from randpath.storage import checkpoint

Result = dict[str, Any]


def results_of(folder: Path, recipe: str) -> list[Result]:
    file = folder / f"{recipe}.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    return results


def result_of(directory: Path, command: str) -> Result:
    """A finished run as one recorded result."""
    document = checkpoint.read_document(directory / "experiment.json")
    e, lines = document["experiment"], checkpoint.read_lines(directory / "metrics.jsonl")
    times = checkpoint.read_lines(directory / "times.jsonl")
    if len(lines) < num_tasks(e):
        raise UsageError(
            f"{directory} is not finished: {len(lines)} of {num_tasks(e)} tasks are learned, so there is no result",
            where=str(directory),
            kept="the run as it is",
            next=as_typed("resume", directory),
        )
    A = [line["accuracy"] for line in lines]
    return {
        **({"inexact": document["inexact"]} if "inexact" in document else {}),  # went on in another environment
        "recipe": e["recipe"],
        "method": e["method"],
        "variant": e["variant"],
        "seed": e["seed"],
        "experiment": e,
        "class_order": document["class_order"],
        "num_tasks": len(A),
        "accuracy": A,
        "matrix": [line["accuracy_by_task"] for line in lines],  # row k: on tasks 1..k after task k
        "average": metrics.average_incremental_accuracy(A),
        "forgetting": lines[-1]["forgetting"],
        "backward_transfer": lines[-1].get("backward_transfer"),
        "top5": [line.get("top5") for line in lines],
        **({"own": [line.get("own") for line in lines]} if lines[-1].get("own") else {}),  # a method's own metrics
        "parameters": lines[-1]["parameters"],
        "megabytes": lines[-1]["megabytes"],
        "flops": lines[-1]["flops"],
        # None if a task was interrupted: the time before that was not counted.
        "seconds": round(sum(line["seconds"] for line in times), 1) if all(t["whole"] for t in times) else None,
        # One value for each task: user and system time of all processes, and training images shown to all candidates.
        "cpu_seconds": [line.get("cpu_seconds") for line in times],
        "visits": [line.get("visits") for line in times],
        "saturation": [line["saturation"] for line in lines],
        "switched": [line["switched"] for line in lines],
        "path": None if lines[-1]["path"] is None else [line["path"] for line in lines],
        "data_fingerprint": document["data_fingerprint"],
        "command": command,
        "versions": {k: v for k, v in document["environment"].items() if k != "machine"},
        "machine": document["environment"]["machine"],
        "commit": ", ".join(str(c) for c in document["commits"]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def append_result(file: Path, result: Result) -> None:
    """One record a line, newest last; the same command run again replaces its older record."""
    known = json.loads(file.read_text()) if file.exists() else []
    kept = [r for r in known if r["command"] != result["command"]]
    text = "[\n" + ",\n".join(json.dumps(r, sort_keys=True) for r in [*kept, result]) + "\n]\n"
    checkpoint.replace_file(file, text.encode())


def num_tasks(experiment: dict[str, Any]) -> int:
    """Of an experiment as it stands in experiment.json.

    >>> num_tasks({"tasks": 5}), num_tasks({"tasks": [["cat", "dog"], ["owl"]]})
    (5, 2)
    """
    tasks = experiment["tasks"]
    return tasks if isinstance(tasks, int) else len(tasks)
