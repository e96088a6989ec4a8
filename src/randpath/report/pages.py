"""What a page says: of one run, of several side by side, of a model."""

import pathlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from randpath import metrics
from randpath.bench.begin import FREE
from randpath.bench.experiment import Experiment
from randpath.errors import as_typed
from randpath.learning.train import Training
from randpath.report import charts
from randpath.report.html import Section, drawn, page, section, strip, tile
from randpath.report.reading import Frame, RunFiles, class_accuracies, exemplars, frames_of, going_on, run_exemplars
from randpath.report.record import Result, results_of
from randpath.report.svg import number
from randpath.settings import declared

if TYPE_CHECKING:
    from randpath.model.model import Model

PRIVATE = "They are training pictures: whoever gets this page can see them."


def run_page(run: RunFiles, recorded: pathlib.Path | None = None, live: str = "") -> str:
    """Everything there is to see of one run; beside it what `recorded`, a folder of results, has of its rivals."""
    e = run.experiment
    name = charts.NAMES.get(e["method"], e["method"])
    title = f"{name} on {e['recipe'] or e['dataset']}"
    subtitle = (
        f"variant {e['variant']}, seed {e['seed']}, {run.num_tasks} tasks, {len(run.document['class_names'])} classes"
    )
    banner = None
    if at_work := going_on(run.directory):
        banner = {"text": f"This run is going on: {at_work}.", "command": ""}
    elif not run.finished:
        banner = {
            "text": f"This run is unfinished: {len(run.tasks)} of {run.num_tasks} tasks are learned. To go on, type:",
            "command": as_typed("resume", run.directory),
        }
    sections = [*_results(run, rivals(run, recorded)), *_inside(run), *_pictures(run), *_provenance(run)]
    return page(
        title, subtitle, _tiles(run), sections, banner=banner, live=live,
        footer=f"Made by randpath from the files in {run.directory}; every number comes from them.",
    )  # fmt: skip


def rivals(run: RunFiles, folder: pathlib.Path | None) -> dict[str, list[list[float]]]:
    """A_k of recorded runs of fine-tuning and of joint training on the same data, tasks and class order."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    recipe = str(run.experiment["recipe"])
    named = folder is not None and re.fullmatch(r"\w{1,100}", recipe)  # it becomes the name of a file
    for r in results_of(folder, recipe) if folder is not None and named else []:
        if r["method"] in ("finetune", "joint") and r["method"] != run.experiment["method"] and _comparable(run, r):
            found[r["method"]].append(r["accuracy"])
    return {f"{charts.NAMES[m]}, recorded, n = {len(found[m])}": found[m] for m in ("finetune", "joint") if m in found}


def _comparable(run: RunFiles, r: Result) -> bool:
    """Whether a recorded result has the data, tasks and training of a run."""
    now, then = run.experiment["training"], r.get("experiment", {}).get("training", {})
    defaults = asdict(Training())  # a setting that is newer than a record was at its default
    return (
        all(r[key] == run.document[key] for key in ("class_order", "data_fingerprint"))
        and r["variant"] == run.experiment["variant"]
        and r["num_tasks"] == run.num_tasks
        and {**defaults, **then} == {**defaults, **now}
    )


def _tiles(run: RunFiles) -> list[dict[str, str]]:
    if not run.tasks:
        return []
    last, A = run.tasks[-1], run.accuracy
    C = len(run.classes)
    tiles = [
        tile("Accuracy now", f"{A[-1]:.2%}", f"of the test images of all {C} classes seen; guessing: {1 / C:.1%}"),
        tile("Average", f"{metrics.average_incremental_accuracy(A):.2%}", f"mean over the {len(A)} tasks of A_k"),
    ]
    if last["forgetting"] is not None:
        lost = "mean over earlier tasks of (best accuracy - present accuracy)"
        tiles.append(tile("Forgetting", f"{last['forgetting']:.2%}", lost))
    if last.get("path") is not None:
        after = [str(line["k"]) for line in run.tasks if line.get("switched")]
        said = f"switched after task {', '.join(after)}" if after else "never switched: no task saturated it"
        paths = len({str(line["path"]) for line in run.tasks})
        tiles.append(tile("Paths", str(paths), said))
    tiles.append(
        tile(
            "Parameters",
            number(last["parameters"], False),
            f"at inference; {number(last['flops'], False)} FLOPs an image",
        )
    )
    tiles.append(tile("Size", f"{last['megabytes']:.1f} MB", "model and exemplars, as stored"))
    cpu = run.cpu_seconds()
    if cpu is not None:
        visits = run.visits()
        shown = "" if visits is None else f"; {number(visits, False)} training images shown"
        tiles.append(tile("Cost", f"{cpu / 60:.1f} min", f"CPU time of learning and judging{shown}"))
    return tiles


def _results(run: RunFiles, beside: Mapping[str, list[list[float]]]) -> list[Section]:
    if not run.tasks:
        return [section("nothing", "Nothing yet", "No task is finished, so there is nothing to show.")]
    own = charts.NAMES.get(run.experiment["method"], run.experiment["method"])
    curves = {own: [run.accuracy], **beside}
    sizes = [len(line["classes"]) for line in run.tasks]
    found = [
        section(
            "accuracy", "Accuracy",
            "After each task, on the test images of all classes seen so far. A task that is forgotten fades "
            "downwards in its column of the matrix.",
            figures=drawn([charts.accuracy(curves, sizes), charts.accuracy_matrix(run)]),
        )
    ]  # fmt: skip
    if frames := frames_of(run.tasks):
        found.append(_path_section(frames, run.num_tasks, [charts.saturation(run)]))
    if (confused := charts.confusions(run)) is not None:
        counts, orders = confused
        views = [
            {"name": name, "order": order, "svg": drawn([charts.confusion_map(counts, run.classes, order)])[0]}
            for name, order in orders.items()
        ]
        rows = [(run.classes[t], run.classes[p], n, f"{share:.1%}") for t, p, n, share in charts.worst_pairs(counts)]
        note = f"After task {len(run.tasks)}. Below: the pairs that are confused most; press a heading to sort."
        data = {"names": run.classes, "counts": counts.tolist()}
        found.append(
            section(
                "confusion", "Which classes are confused", note, views=views, data=data,
                head=["true class", "taken for", "images", "of the class"], rows=rows,
            )
        )  # fmt: skip
    if len(run.tasks) > 1 and (classes := class_accuracies(run)):
        found.append(
            section(
                "forgetting", "Forgetting by class", figures=drawn([charts.forgetting(run, classes)]),
                head=["class", "at its best, %", "now, %", "lost"],
                rows=[(run.classes[c], *(f"{100 * x:.1f}" for x in (a, b, a - b))) for c, (a, b) in classes.items()],
            )
        )  # fmt: skip
    return found


def _path_section(frames: Sequence[Frame], num_tasks: int, others: Sequence[Any]) -> Section:
    shown = [{"name": f"task {f.k}", "svg": svg} for f, svg in zip(frames, drawn(charts.path_maps(frames, num_tasks)))]
    note = (
        "Each layer has several modules. A task trains one path through them; when the path is saturated it is frozen, "
        "and the next task searches for a new one. Colour and number: the tasks that trained a module."
    )
    return section("paths", "The path", note, frames=shown, frames_name="After", figures=drawn(others))


def _inside(run: RunFiles) -> list[Section]:
    if not run.tasks:
        return []
    training = [charts.convergence(run), *charts.losses(run), charts.candidates(run)]
    return [
        section("cost", "What it costs", figures=drawn(charts.costs(run))),
        section(
            "training", "How each task was trained",
            "Of the candidate that was kept. Validation images are held out of the training images.",
            figures=drawn(training),
        ),
    ]  # fmt: skip


def _pictures(run: RunFiles) -> list[Section]:
    found = run_exemplars(run)
    rows = [{"name": run.classes[c], **strip(own)} for c, own in found.items() if c < len(run.classes)]
    title = "Some of the stored pictures"
    return [section("exemplars", title, f"What the memory replays. {PRIVATE}", pictures=rows)] if rows else []


def _provenance(run: RunFiles) -> list[Section]:
    rows: list[tuple[str, str, str]] = []
    meanings = {name: s.meaning for name, s in declared(Experiment).items()}
    meanings |= {f"training.{name}": s.meaning for name, s in declared(Training).items()}
    rows += [(name, _text(value), meanings.get(name, "")) for name, value in flat(run.experiment).items()]
    rows.append(("class order", ", ".join(map(str, run.document["class_names"])), "in which classes arrive"))
    rows += [(name, _text(value), "version") for name, value in run.document.get("environment", {}).items()]
    rows.append(("data fingerprint", _text(run.document.get("data_fingerprint")), "SHA-256 of the data"))
    rows.append(("commits", _text(run.document.get("commits")), "of randpath, that computed it"))
    if "inexact" in run.document:
        rows.append(("inexact", _text(run.document["inexact"]), "what changed when it was resumed"))
    commands = [run.document.get("command") or "(run from Python)", as_typed("resume", run.directory)]
    return [
        section(
            "settings", "Settings and origin", "The first command makes this run anew.",
            head=["setting", "value", "meaning"], rows=rows, commands=commands,
        )
    ]  # fmt: skip


def flat(experiment: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by the names that --set takes.

    >>> flat({"seed": 1, "training": {"epochs": 2}})
    {'seed': 1, 'training.epochs': 2}
    """
    found: dict[str, Any] = {}
    for key, value in experiment.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _text(value: Any) -> str:
    """A setting as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_text, value)) if isinstance(value, list) else "-" if value is None else str(value)


def compare_page(runs: Sequence[RunFiles], live: str = "") -> str:
    """Several runs: curves with bands over seeds, a table with mean and deviation, what differs in their settings."""
    settings = [flat(run.experiment) for run in runs]
    differ = differences(settings)
    groups: dict[str, list[RunFiles]] = defaultdict(list)
    for run, own in zip(runs, settings):
        naming = differences([other for other in settings if other["method"] == own["method"]])
        changed = [f"{key.rpartition('.')[2]}={_text(own.get(key))}" for key in naming if key != "seed"]
        groups[", ".join([charts.NAMES.get(own["method"], own["method"]), *changed])].append(run)
    curves = {name: [run.accuracy for run in same if run.tasks] for name, same in groups.items()}
    curves = {name: found for name, found in curves.items() if found}
    note = "Mean over seeds; the band goes from the lowest to the highest."
    sections = [
        section("accuracy", "Accuracy", note, figures=drawn([charts.accuracy(curves)] if curves else [])),
        section(
            "table", "Results", "Mean ± standard deviation over seeds. Press a heading to sort.",
            head=["runs", "seeds", "final accuracy, %", "average, %", "forgetting, %", "parameters", "CPU minutes"],
            rows=[_row(name, same) for name, same in groups.items()],
        ),
        section(
            "differences", "What differs", head=["run", *differ],
            rows=[[str(run.directory), *(_text(own.get(key)) for key in differ)] for run, own in zip(runs, settings)],
        ),
        section("commands", "Commands", commands=[str(run.document.get("command") or run.directory) for run in runs]),
    ]  # fmt: skip
    unfinished = [run for run in runs if not run.finished]
    banner = None
    if unfinished:
        some = f"Unfinished: {len(unfinished)} of {len(runs)} runs, counted as far as they have come. To go on, type:"
        banner = {"text": some, "command": as_typed("resume", unfinished[0].directory)}
    recipes = " and ".join(dict.fromkeys(str(run.experiment["recipe"]) for run in runs))
    return page(f"{len(runs)} runs of {recipes}", f"{len(groups)} settings", [], sections, banner=banner, live=live)


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which runs differ, without those that cannot change a result."""
    keys = dict.fromkeys(key for own in settings for key in own)
    return [key for key in keys if len({str(own.get(key)) for own in settings}) > 1 and key not in FREE]


def _row(name: str, runs: Sequence[RunFiles]) -> list[Any]:
    done = [run for run in runs if run.finished]
    if not done:
        return [name, 0, "unfinished", "-", "-", "-", "-"]
    parameters = np.mean([run.tasks[-1]["parameters"] for run in done])
    lost = [run.tasks[-1]["forgetting"] for run in done if run.tasks[-1]["forgetting"] is not None]
    cpu = [run.cpu_seconds() for run in done]
    known = [seconds / 60 for seconds in cpu if seconds is not None]
    return [
        name, len(done), metrics.spread([100 * run.accuracy[-1] for run in done]),
        metrics.spread([100 * metrics.average_incremental_accuracy(run.accuracy) for run in done]),
        metrics.spread([100 * x for x in lost]), f"{parameters:,.0f}", metrics.spread(known),
    ]  # fmt: skip


def _tasks_of(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Task by task: the classes of its first call, the pictures of all, the rest as the last call left it."""
    found: dict[int, dict[str, Any]] = {}
    for entry in history:
        before = found.get(entry["k"])
        found[entry["k"]] = dict(entry)
        if before is not None:
            found[entry["k"]]["classes_added"] = before["classes_added"]
            found[entry["k"]]["pictures"] = before["pictures"] + entry["pictures"]
    return [found[k] for k in sorted(found)]


def model_page(model: "Model", version: int, directory: pathlib.Path) -> str:
    """What a model has learned, how full it is and which pictures it keeps."""
    tasks = _tasks_of(model.history)
    last = model.history[-1]
    names = [model.text(c) for c in range(len(model.names))]
    tiles = [
        tile("Classes", str(len(names)), f"in {len(tasks)} tasks, {len(model.history)} calls of learn"),
        *([tile("New classes", f"{last['accuracy_new']:.1%}", "right, of the held-out pictures of the last task")]
          if last["accuracy_new"] is not None else []),
        *([tile("Old classes", f"{last['accuracy_old']:.1%}", "right, of the held-out pictures of earlier tasks")]
          if last["accuracy_old"] is not None else []),
        tile("Size", f"{model.megabytes():.1f} MB", "weights, teacher and exemplars, as stored"),
        tile("Version", str(version), "of the model; randpath rollback goes back by one"),
    ]  # fmt: skip
    threshold = getattr(model.method, "threshold", None)
    chart, full = charts.held_out(tasks, threshold)
    kept = model.method.memory.tensors().get("memory_train", {})
    pictures = [{"name": names[c], **strip(own)} for c, own in exemplars(kept, 400).items()]
    sections = [
        section("accuracy", "Accuracy", "On pictures that were held out, never trained on.", figures=drawn([chart])),
        _path_section(frames_of(tasks), len(tasks), [full]),
        section(
            "tasks", "Tasks", head=["task", "classes added", "pictures", "saturation", "switched"],
            rows=[(t["k"], ", ".join(map(_text, t["classes_added"])), t["pictures"], number(t["saturation"], False),
                   "yes" if t["switched"] else "no") for t in tasks],
        ),
    ]  # fmt: skip
    if pictures:
        note = f"{len(model.method.memory):,} {model.plan.at_most} are stored. {PRIVATE}"
        sections.append(section("exemplars", "Some of the stored pictures", note, pictures=pictures))
    return page(f"Model {directory.name}", str(directory), tiles, sections, footer="Made by randpath.")
