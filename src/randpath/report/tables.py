"""Recorded results -> the tables in README.md and docs: `make tables`.

`marked.py` finds the places in the pages where they go.
"""

import shlex
from collections import defaultdict

from randpath.bench.begin import FREE
from randpath.methods import METHODS
from randpath.report.record import Result


def changes(result: Result) -> str:
    """The settings that the command changed and that can change a result; empty for the recipe as it stands.

    >>> changes({"command": "randpath bench mnist_5 --seed 0 --set options.N=1 --set tasks=1 --set processes=2"})
    'options.N=1, tasks=1'
    """
    words = shlex.split(result["command"])
    settings = [value for word, value in zip(words, words[1:]) if word == "--set"]
    unused = getattr(METHODS.get(result.get("method", "")), "needs_auxiliary", True) is False
    free = (*FREE, "auxiliary") if unused else FREE
    return ", ".join(setting for setting in settings if setting.partition("=")[0] not in free)


def table(recipe: str, results: list[Result], published: list[Result]) -> str:
    """A row for each method, variant and change of settings, over its seeds; beside them what was published."""
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result["method"], result["variant"], changes(result)].append(result)
    rows = [
        "| method | variant | changed | seeds | final accuracy, % | average, % | forgetting, % | parameters | MB "
        "| CPU minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    # The recipe as it stands before the ablations, the best first.
    for (method, variant, changed), same in sorted(
        groups.items(), key=lambda g: (bool(g[0][2]), -_mean([r["accuracy"][-1] for r in g[1]]))
    ):
        forgetting = [r["forgetting"] for r in same if r["forgetting"] is not None]
        rows.append(
            f"| {method} | {variant} | {changed} | {len(same)} | {_percent([r['accuracy'][-1] for r in same])} "
            f"| {_percent([r['average'] for r in same])} | {_percent(forgetting) if forgetting else '-'} "
            f"| {_mean([r['parameters'] for r in same]):,.0f} | {_mean([r['megabytes'] for r in same]):.1f} "
            f"| {_minutes(same)} |"
        )
    for row in published:
        if row["recipe"] == recipe:
            rows.append(f"| {row['system']} | | {row['source']} | | {100 * row['accuracy']:.2f} | | | | | |")
    return "\n".join(rows) + "\n"


SHORT = {
    "joint": "joint training: needs all old data, the upper bound",
    "rps": "**Adaptive RPS-Net**, this package",
    "rehearsal": "rehearsal: the same exemplars, no paths, no distillation",
    "finetune": "fine-tuning: nothing is kept",
}


def short_table(recipe: str, results: list[Result], published: list[Result]) -> str:
    """The four systems that place the method, as `tuned` has them, and what the paper has: for the README."""
    rows = ["| system | seeds | final accuracy, % | forgetting, % | MB stored |", "|---|---|---|---|---|"]
    for method, words in SHORT.items():
        same = [r for r in results if (r["method"], r["variant"], changes(r)) == (method, "tuned", "")]
        if same:
            rows.append(
                f"| {words} | {len(same)} | {_percent([r['accuracy'][-1] for r in same])} "
                f"| {_percent([r['forgetting'] for r in same])} | {_mean([r['megabytes'] for r in same]):.1f} |"
            )
    rows += [
        f"| {row['system']} | | {100 * row['accuracy']:.2f} | | |"
        for row in published
        if row["recipe"] == recipe and row["system"].startswith("Adaptive RPS-Net")
    ]
    return "\n".join(rows) + "\n"


def ablation_table(recipe: str, results: list[Result]) -> str:
    """A row for each change of settings that benchmarks/ablation.py tried on validation images."""
    rows = [
        "| method | variant | changed | commit | validation accuracy after each task, % | switched after | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    own = [r for r in results if r["recipe"] == recipe]
    # Rows that can be compared stand together: the same number of tasks, variant and recipe.
    for r in sorted(own, key=lambda r: (r["tasks"], r.get("variant", "tuned"), r["commit"], -r["validation"][-1])):
        after = ", ".join(str(k) for k, switched in enumerate(r["switched"], start=1) if switched) or "-"
        A = " ".join(f"{100 * a:.1f}" for a in r["validation"])
        rows.append(
            f"| {r['method']} | {r.get('variant', 'tuned')} | {r['changed']} | {r['commit'][:7]} | {A} | {after} "
            f"| {r['cpu_seconds']:.0f} |"
        )
    return "\n".join(rows) + "\n"


def example_table(result: Result) -> str:
    """The figures that an example of examples/ has recorded, or the tables that it made of them."""
    if "tables" in result:
        return "\n".join(map(_plain_table, result["tables"]))
    rows = [f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in result.items() if isinstance(value, float)]
    return "\n".join([f"| `{result['command']}` | |", "|---|---|", *rows]) + "\n"


def _plain_table(made: Result) -> str:
    """
    >>> print(_plain_table({"header": ["a", "b"], "rows": [["1", "2"]]}), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rows = [made["header"], ["---"] * len(made["header"]), *made["rows"]]
    lines = [f"| {' | '.join(row)} |" if i != 1 else f"|{'|'.join(row)}|" for i, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _minutes(results: list[Result]) -> str:
    """The mean over the runs that were not interrupted, in CPU time; by the clock where none has told its CPU time."""
    told = [r["cpu_seconds"] for r in results if None not in r.get("cpu_seconds", [None])]
    if told:
        return f"{_mean([sum(seconds) for seconds in told]) / 60:.1f}"
    clock = [r["seconds"] for r in results if r["seconds"] is not None]
    return f"{_mean(clock) / 60:.1f} by the clock" if clock else "-"


def _percent(values: list[float]) -> str:
    """The mean, and the range when there are several seeds."""
    mean = f"{100 * _mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({100 * min(values):.2f} to {100 * max(values):.2f})"
