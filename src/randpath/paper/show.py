"""An item beside the paper: its picture, its table, its verdict, and docs/paper.md, which holds all of them.

`make tables` writes docs/paper.md and docs/figures/paper/ from the recorded results.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from randpath import metrics
from randpath.paper.items import ITEMS, Item, Scale
from randpath.paper.rules import decide
from randpath.paper.run import by_arm, recorded, sources
from randpath.report.figures import Series, bars, heat_map, line_chart
from randpath.report.record import Result
from randpath.report.svg import Figure, standalone
from randpath.report.svg import scale as colour

Arms = Mapping[str, Sequence[Mapping[str, Any]]]

INTRODUCTION = """\
# The paper's tables and figures, one by one

Made by `make tables` from recorded results; each run there names its command, seed, commit and
machine. `randpath paper ITEM` runs what is missing of an item and shows it; `randpath paper` lists them. The scale
**small** is a stand-in that one CPU core affords (MNIST, or 20 classes of CIFAR-100, few epochs); **full** has the
paper's settings, for GPUs. Every claim has a rule that was written before its first run
([src/randpath/paper/items.py](../src/randpath/paper/items.py)). A small run that agrees does not prove the paper's
numbers, and one that disagrees does not refute them: it says what can be seen at this scale. Candidates are chosen on
validation images; the authors' code chose its best epoch and path on test images.
"""


def _score(item: Item) -> Literal["accuracy", "top5"]:
    """What the item's paper reports of a run after each task."""
    return "top5" if item.picture == "top5" else "accuracy"


def table(item: Item, results: Sequence[Result], scale: Scale) -> list[tuple[str, ...]]:
    """A heading, and a row for each arm: its seeds, and accuracies in percent or what the item's figure shows."""
    found, rows = by_arm(results), list[tuple[str, ...]]()
    counts, score = item.picture in ("parameters", "flops"), _score(item)
    if counts:
        rows.append(("", "seeds", f"{item.picture} after the first task, millions", "after the last"))
    else:
        rows.append(("", "seeds", f"ours{', top-5' * (score == 'top5')}, %", "the paper, %"))
    for arm in item.small if scale == "small" else item.full:
        same = found.get(arm, [])
        if counts:
            values = (metrics.spread([r[f"{item.picture}_by_task"][end] / 1e6 for r in same]) for end in (0, -1))
            rows.append((arm, str(len(same)), *values))
        else:
            published = f"{100 * item.published[arm]:.2f}" if arm in item.published else "-"
            rows.append((arm, str(len(same)), metrics.spread([100 * r[score][-1] for r in same]), published))
    return rows


def picture(item: Item, results: Sequence[Result], scale: Scale) -> str:
    """Our figure beside the paper's numbers, where it has any; always labelled with its scale."""
    found = by_arm(results)
    left = _figure(item, found, f"{item.title}, {scale} scale")
    columns = [[left]]
    score = _score(item)
    final = {arm: float(np.mean([r[score][-1] for r in same])) for arm, same in found.items()}
    if item.published:
        arms = list(item.small if scale == "small" else item.full)
        ours = bars(f"Final accuracy: ours, {scale} scale", list(final), list(final.values()), "accuracy", percent=True)
        theirs = [arm for arm in arms if arm in item.published]
        values = [item.published[arm] for arm in theirs]
        columns.append([ours, bars("Final accuracy: the paper", theirs, values, "accuracy", percent=True)])
    elif item.picture not in ("parameters", "flops"):
        columns.append(
            [bars(f"Final accuracy, {scale} scale", list(final), list(final.values()), "accuracy", percent=True)]
        )
    return standalone(columns, f"{item.title}: {scale} scale")


def _figure(item: Item, found: Arms, title: str) -> Figure:
    first = next(iter(found.values()))[0]
    if item.picture == "matrix":
        K = len(first["matrix"])
        rows = [[*row, *[None] * (K - len(row))] for row in first["matrix"]]
        names = [str(k) for k in range(1, K + 1)]
        return heat_map(f"{title}, %", rows, (names, names), ("after task", "on task"), percent=True)
    if item.picture == "convergence":
        shown = [k for k, curve in enumerate(first["validation"]) if any(v is not None for v in curve)]
        series = [
            Series(f"task {k + 1}", list(range(1, len(first["validation"][k]) + 1)), first["validation"][k],
                   colour=colour(0.15 * len(shown) + 0.6 * k, len(shown)))
            for k in shown
        ]  # fmt: skip
        return line_chart(title, series, "epoch", "validation accuracy", percent=True, height=300)
    keys = {"parameters": "parameters_by_task", "flops": "flops_by_task", "saturation": "saturation"}
    labels = {
        "parameters": "parameters",
        "flops": "FLOPs of one image",
        "saturation": "mu_sat",
        "top5": "top-5 accuracy",
    }
    key = keys.get(item.picture, _score(item))
    series, numbers = [], {len(same[0][key]) for same in found.values()}
    for arm, same in found.items():
        columns = list(zip(*(r[key] for r in same)))
        means = [None if None in column else float(np.mean(column)) for column in columns]
        edges: tuple[Sequence[float], Sequence[float]] = ((), ())
        if len(same) > 1 and None not in means:
            edges = ([min(column) for column in columns], [max(column) for column in columns])
        # Streams of different numbers of tasks meet where they have shown the same classes.
        x = [float(k if len(numbers) == 1 else 100 * k / len(means)) for k in range(1, len(means) + 1)]
        series.append(Series(arm, x, means, *edges))
    percent, low = key in ("accuracy", "top5"), 0.0 if key != "saturation" else None
    height = 270 + 16 * (len(series) // 3)
    return line_chart(
        title,
        series,
        "task" if len(numbers) == 1 else "classes seen, %",
        labels.get(item.picture, "accuracy A_k"),
        percent=percent,
        y_range=(low, None),
        height=height,
    )


def verdict(item: Item, results: Sequence[Result]) -> str:
    """What the rule says of these results; an arm that a rule needs and that is not there is named."""
    try:
        return decide(item.rule, by_arm(results))
    except KeyError as error:
        return f"it cannot be told: nothing is recorded for {error.args[0]}"


def page(root: pathlib.Path) -> dict[pathlib.Path, str]:
    """docs/paper.md and its pictures, as the recorded results have them."""
    texts, parts = {}, [INTRODUCTION]
    for item in ITEMS:
        parts.append(f"## `{item.name}`: {item.title} ({item.place})\n")
        parts.append(f"**The paper:** {item.claim}\n\n**The rule:** {item.rule.words}.\n")
        scales: tuple[Scale, ...] = ("small", "full")
        there = [scale for scale in scales if recorded(root, item, scale)]
        for scale in there:
            results = recorded(root, item, scale)
            name = f"{item.name}-{scale}.svg"
            texts[root / "docs" / "figures" / "paper" / name] = picture(item, results, scale)
            files = ", ".join(f"`{file.relative_to(root).as_posix()}`" for file in sources(root, item, scale))
            parts.append(f"**Ours, {scale} scale** (from {files}): {verdict(item, results)}.\n")
            parts.append(f"![{item.title}, {scale} scale](figures/paper/{name})\n")
            heading, *rows = (f"| {' | '.join(row)} |" for row in table(item, results, scale))
            parts.append("\n".join([heading, "|---|---|---|---|", *rows]) + "\n")
        if not there:
            why = f"it needs {item.needs}" if item.needs else f"type `randpath paper {item.name} --record`"
            parts.append(f"**Ours:** not recorded yet; {why}.\n")
        if item.differs:
            parts.append(f"What differs from the paper at small scale: {item.differs}\n")
    return {root / "docs" / "paper.md": "\n".join(parts), **texts}
