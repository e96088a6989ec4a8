"""Recorded results -> the pictures in docs/figures: `make tables` renews them, and a test fails when they differ."""

from pathlib import Path

from randpath.report.charts import NAMES, accuracy, path_maps
from randpath.report.figures import sawtooth
from randpath.report.reading import frames
from randpath.report.record import Result, results_of
from randpath.report.svg import standalone
from randpath.report.tables import changes


def pictures(folder: Path) -> dict[str, str]:
    """File name -> SVG, for all that the recorded results can show."""
    drawn = {"demo.svg": demo(results_of(folder, "digits_5"))}
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
