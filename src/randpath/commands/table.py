"""`randpath table` and `randpath curves`: finished runs side by side, mean and standard deviation over seeds."""

import json
import pathlib
from collections import defaultdict
from typing import Any

from randpath import metrics
from randpath.errors import UsageError


def table(*runs: pathlib.Path) -> int:
    """Finished runs as a table: a row for each method and change of settings, over its seeds.

    Forward transfer is told where joint training on the same tasks, of the same variant and with the same seeds, is
    among the runs, once.

    Parameters
    ----------
    runs
        Run directories that `bench` made; an unfinished one is refused, other files are passed over.
    """
    groups = grouped(runs)
    every = [r for same in groups.values() for r in same]
    joint = _alone([r for r in every if r["method"] == "joint"])
    rows = [["method", "variant", "changed", "n", "final, %", "average, %", "forgetting, %", "backward, %"]]
    top5, measured = any(r["top5"][-1] for r in every), any("own" in r for r in every)
    rows[0] += [*["forward, %"] * bool(joint), *["top-5, %"] * top5, "MB", "MFLOPs", "CPU s"]
    rows[0] += ["its own, final, %"] * measured
    for (method, variant, changed), same in groups.items():
        cost = [sum(r["cpu_seconds"]) for r in same if None not in r["cpu_seconds"]]
        rows.append([
            method, variant, changed, str(len(same)),
            percent([r["accuracy"][-1] for r in same]), percent([r["average"] for r in same]),
            percent([r["forgetting"] for r in same]), percent([r["backward_transfer"] for r in same]),
            *[percent([_forward(r, joint.get(_stream(r))) for r in same])] * bool(joint),
            *[percent([r["top5"][-1] for r in same])] * top5,
            f"{mean([r['megabytes'] for r in same]):.1f}", f"{mean([r['flops'] for r in same]) / 1e6:.2f}",
            f"{mean(cost):.0f}" if cost else "-", *[own(same)] * measured,
        ])  # fmt: skip
    print(aligned(rows))
    return 0


def _stream(result: dict[str, Any]) -> tuple[Any, ...]:
    """What a run and the joint training that it is compared with have in common."""
    e = result["experiment"]
    return (
        result["seed"],
        result["variant"],
        e["dataset"],
        json.dumps([e["tasks"], result["class_order"], e.get("images")]),
    )


def _alone(joint: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[list[float]]]:
    """The matrix of the one joint training of each stream; of two nobody knows which is meant."""
    streams = [_stream(r) for r in joint]
    return {stream: r["matrix"] for stream, r in zip(streams, joint) if streams.count(stream) == 1}


def _forward(result: dict[str, Any], joint: list[list[float]] | None) -> float | None:
    if joint is None or result["method"] == "joint":
        return None
    return metrics.forward_transfer(result["matrix"], [row[-1] for row in joint])


def curves(*runs: pathlib.Path) -> int:
    """Finished runs as curves: accuracy on all classes seen, after each task, mean over the seeds.

    Parameters
    ----------
    runs
        Run directories that `bench` made; an unfinished one is refused, other files are passed over.
    """
    groups = grouped(runs)
    tasks = max(r["num_tasks"] for same in groups.values() for r in same)
    rows = [["method", "variant", "changed", "n", *(f"A_{k}" for k in range(1, tasks + 1))]]
    for (method, variant, changed), same in groups.items():
        by_task = zip(*(r["accuracy"] for r in same))
        rows.append([method, variant, changed, str(len(same)), *(percent(list(values)) for values in by_task)])
    print(aligned(rows))
    return 0


def aligned(rows: list[list[str]]) -> str:
    """As Markdown, the columns below each other.

    >>> print(aligned([["n", "final"], ["3", "97.5"]]))
    | n | final |
    |---|-------|
    | 3 | 97.5  |
    """
    rows = [row + [""] * (len(rows[0]) - len(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def grouped(runs: tuple[pathlib.Path, ...]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Recorded results by method, variant and what was changed; the best first. Of two runs of a seed, both count.

    What differs is read from the settings; the command, which need not tell, only names it.
    """
    from randpath.report.reading import read_run
    from randpath.report.record import result_of
    from randpath.report.tables import changes

    places = [run for run in runs if (run / "experiment.json").exists()]
    if not places:
        raise UsageError("no run directory among these", next="randpath table runs/*")
    results = [result_of(place, str(read_run(place).document.get("command", ""))) for place in places]
    recipes = {r["recipe"] for r in results}
    if len(recipes) > 1:
        raise UsageError(f"runs of different recipes cannot be compared: {', '.join(sorted(map(str, recipes)))}")
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        alike[json.dumps(_deciding(result), sort_keys=True)].append(result)
    named: dict[tuple[str, str, str], list[list[dict[str, Any]]]] = defaultdict(list)
    for same in alike.values():
        named[same[0]["method"], same[0]["variant"], changes(same[0])].append(same)
    groups = {
        (method, variant, ", ".join(filter(None, [changed, text]))): same
        for (method, variant, changed), several in named.items()
        for same, text in zip(several, _told_apart([_deciding(same[0]) for same in several]))
    }
    return dict(sorted(groups.items(), key=lambda group: -mean([r["accuracy"][-1] for r in group[1]])))


def _deciding(result: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run that can change its result, but for the seed."""
    from randpath.bench.begin import FREE, with_defaults
    from randpath.methods import METHODS

    free = {"seed", *FREE}
    if getattr(METHODS.get(result["method"]), "needs_auxiliary", True) is False:
        free.add("auxiliary")
    return {key: value for key, value in flat(with_defaults(result["experiment"])).items() if key not in free}


def flat(experiment: dict[str, Any]) -> dict[str, Any]:
    """
    >>> flat({"memory": 20, "training": {"epochs": 3}})
    {'memory': 20, 'training.epochs': 3}
    """
    found: dict[str, Any] = {}
    for key, value in experiment.items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _told_apart(settings: list[dict[str, Any]]) -> list[str]:
    """For each of several settings what it has where they differ.

    >>> _told_apart([{"a": 1, "b": 2}, {"a": 1, "b": 3}]), _told_apart([{"a": 1}])
    (['b=2', 'b=3'], [''])
    """
    keys = dict.fromkeys(key for one in settings for key in one)
    differing = [key for key in keys if len({json.dumps(one.get(key)) for one in settings}) > 1]
    return [", ".join(f"{key}={json.dumps(one.get(key))}" for key in differing) for one in settings]


def own(same: list[dict[str, Any]]) -> str:
    """A method's own metrics after the last task.

    >>> own([{"own": [{"head": 0.5}, {"head": 0.25}]}]), own([{}])
    ('head 25.00', '-')
    """
    last = [r["own"][-1] for r in same if "own" in r]
    return ", ".join(f"{name} {percent([one[name] for one in last])}" for name in (last[0] if last else ())) or "-"


def mean(values: list[float]) -> float:
    return metrics.mean_and_deviation(values)[0]


def percent(values: list[float] | list[float | None]) -> str:
    """Of those that there are.

    >>> percent([0.5]), percent([0.5, 0.6]), percent([None])
    ('50.00', '55.00 ± 7.07', '-')
    """
    return metrics.spread([100 * value for value in values if value is not None])
