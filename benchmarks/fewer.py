"""A finished run of several networks, recorded as the run of the first few of them.

    python benchmarks/fewer.py RUN --members 2 --as "randpath bench ..." --record docs/results/RECIPE.json

The networks never hear of one another, so that the first two of four are, to the bit, the run with `members=2`
(tests/test_learning_members.py) and need not be trained twice. A run keeps what they predict task by task, and what
CPU time each of them took; what was not theirs (test images, exemplars, files) counts in full, so that it is rather too
much.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from randpath import metrics
from randpath.bench.load import Run, load_run
from randpath.bench.run import FIRST, make_method
from randpath.learning.cost import count_flops, megabytes
from randpath.learning.members import Members
from randpath.methods.rps import RPS
from randpath.report.record import Result, append_result, result_of
from randpath.storage import checkpoint


def of_the_first(directory: Path, members: int, command: str) -> Result:
    """What `command`, the run's own but for the number of networks, would record."""
    run = load_run(directory)
    e = run.experiment
    if not 1 < members < e.members:
        raise SystemExit(f"{directory} has {e.members} networks: --members is to be less than that, and 2 at least")
    assert isinstance(run.method, Members)
    document = checkpoint.read_document(directory / "experiment.json")
    whole = result_of(directory, document["command"])
    first = make_method(replace(e, members=members), run.source)
    assert isinstance(first, Members)
    first.members = run.method.members[:members]
    nets = [(member.net, member.P_ts) for member in first.members if isinstance(member, RPS)]
    if len(nets) < members:
        raise SystemExit(f"only a run of rps can be recorded so: {directory} is one of {e.method}")
    matrix = [_by_task(run, k, members) for k in range(1, len(run.lines) + 1)]
    A = [line["own"][f"networks 1 to {members}"] for line in run.lines]
    return (
        whole
        | {
            "command": command,
            "made_from": document["command"],
            "experiment": document["experiment"] | {"members": members},
            "accuracy": A,
            "matrix": matrix,
            "average": metrics.average_incremental_accuracy(A),
            "forgetting": metrics.forgetting(matrix),
            "backward_transfer": metrics.backward_transfer(matrix),
            "top5": [None] * len(A),  # told of all networks only
            "own": [{name: line["own"][name] for name in list(line["own"])[: members - 1]} for line in run.lines],
            "parameters": sum(net.num_parameters(P_ts) for net, P_ts in nets),
            "megabytes": megabytes(first.state_dict().tensors),
            "flops": count_flops(first.inference(), run.source.train.shape),
            "seconds": None,
            "cpu_seconds": [_cpu_seconds(line, members) for line in checkpoint.read_lines(directory / "times.jsonl")],
            "visits": [sum(_visits(run, k, members)) for k in range(1, len(A) + 1)],
        }
    )


def _by_task(run: Run, k: int, members: int) -> list[float]:
    """After task k, on the test images of each task so far."""
    found = run.predictions(k)
    right = found["label"] == found[f"{FIRST}{members}"]
    ends = [len(line["classes"]) for line in run.lines[:k]]
    begins = [0, *ends[:-1]]
    return [float(right[(begin <= found["label"]) & (found["label"] < end)].mean()) for begin, end in zip(begins, ends)]


def _visits(run: Run, k: int, members: int) -> list[int]:
    return [line["visits"] for line in run.epochs if line["k"] == k and line["member"] <= members]


def _cpu_seconds(line: dict[str, Any], members: int) -> float | None:
    """All that a task took but for the further networks; unknown after a resume in mid-task."""
    each = line.get("cpu_seconds_of_each")
    return None if each is None else round(line["cpu_seconds"] - sum(each[members:]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--members", type=int, required=True, help="how many of the networks")
    parser.add_argument("--as", dest="command", required=True, help="the command that would run so many of them")
    parser.add_argument("--record", type=Path, default=None, help="append the result to this JSON file")
    options = parser.parse_args()
    result = of_the_first(options.run, options.members, options.command)
    print(result["command"], " ".join(f"{100 * a:.2f}" for a in result["accuracy"]))
    if options.record:
        append_result(options.record, result)


if __name__ == "__main__":
    main()
