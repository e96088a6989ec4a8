"""Recorded results -> the pictures in docs/figures: `make tables` renews them, and a test fails when they differ."""

import json
from collections import defaultdict
from pathlib import Path

from randpath.report.charts import NAMES, accuracy, path_maps
from randpath.report.figures import Series, line_chart, sawtooth
from randpath.report.reading import frames
from randpath.report.record import Result, results_of
from randpath.report.svg import standalone
from randpath.report.tables import changes

FIGURES = {
    "demo": "Handwritten digits in five tasks",
    "cost": "CIFAR-100 in ten tasks: final accuracy over the core-minutes of learning and judging, method by method",
}


def pictures(folder: Path) -> dict[str, str]:
    """File name -> SVG, for all that the recorded results can show."""
    published = json.loads((folder / "published.json").read_text())
    drawn = {
        "demo.svg": demo(results_of(folder, "digits_5")),
        "cost.svg": cost(
            results_of(folder, "cifar100_10_cpu"),
            [r for name in EARLIER for r in results_of(folder, f"cifar100_10_cpu_{name}")],
            [row for row in published if row["recipe"] == "cifar100_10_cpu"],
        ),
    }
    return {name: text for name, text in drawn.items() if text}


def demo(results: list[Result]) -> str:
    """Path map and saturation of the demo's run, and accuracy over tasks beside fine-tuning's; empty without a path."""
    tuned = [r for r in results if r["variant"] == "tuned" and not changes(r)]
    runs = sorted((r for r in tuned if r["method"] == "rps" and r.get("path")), key=lambda r: r["seed"])
    if not runs:
        return ""
    curves = {
        NAMES[method]: [r["accuracy"] for r in tuned if r["method"] == method]
        for method in ("rps", "finetune", "joint")
    }
    num_tasks = runs[0]["num_tasks"]
    sizes = [len(runs[0]["class_order"]) * k // num_tasks for k in range(1, num_tasks + 1)]
    paths = path_maps(frames(runs[0]["path"], runs[0]["switched"]), num_tasks)[-1]
    threshold = runs[0]["experiment"]["options"].get("threshold", 0.0)
    teeth = sawtooth(runs[0]["saturation"], runs[0]["switched"], threshold, height=190)
    return standalone(
        [[paths, teeth], [accuracy({name: found for name, found in curves.items() if found}, sizes)]],
        f"Handwritten digits in {num_tasks} tasks: the path through the modules, and the accuracy beside fine-tuning's",
    )


COMPARED = {
    ("rps", ""): "Adaptive RPS-Net, tuned",
    ("rehearsal", ""): "rehearsal",
    ("rehearsal", "options.balanced=true"): "rehearsal, balanced",
    ("joint", ""): "joint training",
    ("der", ""): "DER",
}
BEFORE = "Adaptive RPS-Net, earlier recipes"
# The records of what cifar100_10_cpu was before.
EARLIER = ("one", "lanes", "patches", "discriminant", "early", "decay", "alone")


def cost(results: list[Result], earlier: list[Result], published: list[Result]) -> str:
    """Final accuracy over the core-minutes that all tasks took together; empty without a run that has told them.

    A point is one setting, the mean over its seeds. Settings of `training`, the width and the numbers of threads and
    members are what a budget is spent on; a run that changed anything else stands in the table alone. Of what the
    recipe was before only what was better than all that cost less.
    """
    points: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for r in results:
        name = COMPARED.get((r["method"], _beside_the_budget(r)))
        if name is not None and r["variant"] == "tuned":
            points[name][changes(r)] += _spent(r)
    for r in earlier:
        if (r["method"], r["variant"]) == ("rps", "tuned"):
            points[BEFORE][r["commit"] + changes(r)] += _spent(r)
    series = []
    for name in (*COMPARED.values(), BEFORE):
        means = sorted(
            (sum(x for x, _ in same) / len(same), sum(y for _, y in same) / len(same))
            for same in points[name].values()
            if same
        )
        if name == BEFORE:  # of several recipes: a line through all of them would jump
            means = [(x, y) for x, y in means if all(y > lower for less, lower in means if less < x)]
        if means:
            series.append(Series(name, [x for x, _ in means], [y for _, y in means]))
    if not series:
        return ""
    rules = [(row["accuracy"], "published") for row in published if row["system"].startswith("Adaptive RPS-Net")]
    chart = line_chart(
        "CIFAR-100 in ten tasks, 2,000 exemplars", series, "core-minutes, all tasks together", "final accuracy",
        percent=True, rules=rules, x_log=True, height=330,
    )  # fmt: skip
    return standalone([[chart]], "Final accuracy on CIFAR-100 over the core-minutes of learning and judging")


def _spent(result: Result) -> list[tuple[float, float]]:
    """Core-minutes and final accuracy; none where the minutes are not known, because the run was interrupted."""
    seconds = result.get("cpu_seconds", [None])
    return [] if None in seconds else [(sum(seconds) / 60, result["accuracy"][-1])]


def _beside_the_budget(result: Result) -> str:
    """The changed settings that say what was run, not how much was spent on it; joint training has no tasks."""
    free = ("width", "threads", "members", *(["tasks"] if result["method"] == "joint" else []))
    changed = [setting for setting in changes(result).split(", ") if setting]
    return ", ".join(s for s in changed if s.partition("=")[0] not in free and not s.startswith("training."))
