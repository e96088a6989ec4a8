"""Recorded results of many systems: a row per system beside the paper's numbers, and paired differences."""

import re
from collections import defaultdict
from collections.abc import Mapping

from randpath.bench.cells import NAMED
from randpath.metrics import spread
from randpath.report.record import Result
from randpath.report.tables import changes

Group = tuple[str, str, str]  # method, variant, what was changed
ARENAS = ("mnist_5_arena", "cifar100_10_arena")  # whose numbers stand in a system's row
PUBLISHED = {  # systems as published.json names them
    "joint training": "joint", "fine-tuning": "finetune", "fixed representation": "fixedrep", "EWC": "ewc",
    "online EWC": "online_ewc", "SI": "si", "MAS": "mas", "RWalk": "rwalk", "LwF": "lwf", "DMC": "dmc",
    "plain rehearsal, 4,400 exemplars": "rehearsal", "iCaRL": "icarl", "GEM": "gem", "DGR": "dgr", "RtF": "rtf",
    "RPS-Net (2019)": "rps2019", "Adaptive RPS-Net": "rps",
}  # fmt: skip


def systems_table(old: str, results: Mapping[str, list[Result]], published: list[Result]) -> str:
    """The table as it stands; the last columns, ours and the paper's for each arena, are made anew.

    The others are written by hand. A row's first column names the system; with the word `tuned`, that variant.
    """
    lines = old.splitlines()
    for i, line in enumerate(lines[2:], start=2):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")][: -2 * len(ARENAS)]
        found = re.search(r"`(\w+)`", cells[0])
        assert found is not None, line
        for recipe in ARENAS:
            theirs = [r["accuracy"] for r in published if (r["recipe"], _named(r)) == (recipe, found[1])]
            cells.append(_ours(results[recipe], found[1], "tuned" if "tuned" in cells[0] else "paper"))
            cells.append(f"{100 * theirs[0]:.2f}" if theirs else "-")
        lines[i] = f"| {' | '.join(cells)} |"
    return "\n".join(lines) + "\n"


def _named(row: Result) -> str | None:
    return PUBLISHED.get(row["system"].removesuffix(", as published"))


def _ours(results: list[Result], name: str, variant: str) -> str:
    """Of the settings that were recorded with the most seeds, among those the fewest changed; n, and what was changed.

    A method's own options as they stand come before others.

    >>> runs = [{"method": "gem", "variant": "paper", "accuracy": [a], "command": "--set a=1"} for a in (0.5, 0.6)]
    >>> _ours(runs, "gem", "paper"), _ours(runs, "rps", "paper")
    ('55.00 ± 7.07 (n = 2, a=1)', '-')
    >>> _ours([{**runs[0], "command": "--set options.a=1"}], "gem", "paper")
    '50.00 (n = 1, options.a=1)'
    """
    method, settings = NAMED.get(name, (name, ()))
    prefix = ", ".join(settings)
    others = [", ".join(own) for other, (of, own) in NAMED.items() if of == method and other != name]
    own = [
        # With other options it is another method, nearly: only where nothing else was recorded.
        (
            "options." in changed.removeprefix(prefix),
            -len(same),
            len(changed),
            changed.removeprefix(prefix).strip(", "),
            same,
        )
        for (of, kind, changed), same in _groups(results).items()
        if (of, kind) == (method, variant) and changed.startswith(prefix)
        if not any(changed.startswith(other) for other in others)
    ]
    if not own:
        return "-"
    *_, changed, same = min(own, key=lambda one: one[:3])
    told = ", ".join([f"n = {len(same)}", *([changed] if changed else [])])
    return f"{spread([100 * r['accuracy'][-1] for r in same])} ({told})"


def _groups(results: list[Result]) -> dict[Group, list[Result]]:
    """The same but for the seed."""
    found: dict[Group, list[Result]] = defaultdict(list)
    for r in results:
        found[r["method"], r["variant"], changes(r)].append(r)
    return found


def _trained_alike(ours: Result, theirs: Result) -> bool:
    """Whether epochs, batches, optimizer and augmentation are the same, but for what the command of theirs changed."""
    if "experiment" not in ours or "experiment" not in theirs:  # the oldest records do not hold their settings
        return bool(ours["variant"] == theirs["variant"])
    changed = [setting.partition("=")[0] for setting in changes(theirs).split(", ")]
    one, other = (
        {**{f"training.{key}": value for key, value in r["experiment"]["training"].items()}, **r["experiment"]}
        for r in (ours, theirs)
    )
    keys = [key for key in (*one, *other) if key.startswith("training.") or key in ("padding", "degrees", "jitter")]
    return all(one[key] == other[key] for key in keys if key in one and key in other and key not in changed)


def paired_table(results: list[Result]) -> str:
    """`rps`, tuned, minus each other system with the same seed: final accuracy, in points, mean and deviation.

    Systems that were trained otherwise are left out, unless the row says what was changed.
    """
    known = _groups(results)
    tuned = known.pop(("rps", "tuned", ""), [])
    ours = {r["seed"]: r["accuracy"][-1] for r in tuned}
    found = []
    for group, same in known.items():
        if not tuned or not _trained_alike(tuned[0], same[0]):
            continue
        points = [100 * (ours[r["seed"]] - r["accuracy"][-1]) for r in same if r["seed"] in ours]
        if points:
            found.append((sum(points) / len(points), group, points))
    rows = ["| rps, tuned, minus | variant | changed | seeds | points | ahead with |", "|---|---|---|---|---|---|"]
    for _, (method, variant, changed), points in sorted(found):
        ahead = f"{sum(p > 0 for p in points)} of {len(points)}"
        rows.append(f"| {method} | {variant} | {changed} | {len(points)} | {spread(points)} | {ahead} |")
    return "\n".join(rows if found else [*rows, "| nothing recorded yet | | | | | |"]) + "\n"
