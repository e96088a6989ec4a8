"""Which figures tell a run's story: from what `reading` found to what `figures` draws."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from inspect import signature

import numpy as np

from randpath import metrics
from randpath.methods import METHODS
from randpath.report.figures import Series, bars, heat_map, line_chart, path_map, sawtooth
from randpath.report.reading import Frame, Line, RunFiles
from randpath.report.svg import Figure, scale

NAMES = {"rps": "Adaptive RPS-Net", "finetune": "fine-tuning", "joint": "joint training", "rehearsal": "rehearsal"}


def accuracy(curves: Mapping[str, Sequence[Sequence[float]]], num_classes: Sequence[int] = ()) -> Figure:
    """A_k over tasks: for each name the mean over its runs, and a band from the lowest to the highest.

    An unfinished run counts as far as it has come.
    """
    series = []
    for name, runs in curves.items():
        k = list(range(1, max(map(len, runs)) + 1))
        columns = [[run[j - 1] for run in runs if len(run) >= j] for j in k]
        edges = ([min(c) for c in columns], [max(c) for c in columns]) if len(runs) > 1 else ((), ())
        series.append(Series(name, k, [float(np.mean(c)) for c in columns], *edges))
    if num_classes:
        k = list(range(1, len(num_classes) + 1))
        series.append(Series("guessing", k, [1 / n for n in num_classes], colour="#6f7680"))
    return line_chart(
        "Accuracy on all classes seen", series, "task", "accuracy A_k", percent=True, y_range=(0.0, 1.0), height=290
    )


def path_maps(frames: Sequence[Frame], num_tasks: int) -> list[Figure]:
    """One for each task, for the slider."""
    return [
        path_map(f"Path map after task {f.k}", f.first, f.texts, f.present, max(num_tasks, len(frames))) for f in frames
    ]


def saturation(run: RunFiles) -> Figure | None:
    if all(line.get("saturation") is None for line in run.tasks):
        return None
    options, threshold = run.experiment["options"], None
    method = METHODS.get(run.experiment["method"])
    if method is not None and options.get("switch_every") is None:
        parameters = signature(method).parameters
        threshold = options.get("threshold", parameters["threshold"].default if "threshold" in parameters else None)
    return sawtooth([t["saturation"] for t in run.tasks], [t.get("switched") for t in run.tasks], threshold)


def accuracy_matrix(run: RunFiles) -> Figure:
    """Row k: the accuracies on tasks 1..k after task k."""
    K = len(run.tasks)
    rows = [[*line["accuracy_by_task"], *[None] * (K - k)] for k, line in enumerate(run.tasks, start=1)]
    names = [str(k) for k in range(1, K + 1)]
    return heat_map(
        "Accuracy on each task, %", rows, (names, names), ("after task", "on the test images of task"), percent=True
    )


def confusions(run: RunFiles) -> tuple[np.ndarray, dict[str, list[int]]] | None:
    """counts[true, predicted] after the last task, and the orders in which it is shown."""
    read = run.predictions(len(run.tasks)) if run.tasks else None
    if read is None:
        return None
    counts = metrics.confusion(*read, len(run.classes))
    right = counts.diagonal() / np.maximum(1, counts.sum(axis=1))
    return counts, {
        "as learned": list(range(len(counts))),
        "worst class first": np.argsort(right, kind="stable").tolist(),
    }


def confusion_map(counts: np.ndarray, names: Sequence[str], order: Sequence[int]) -> Figure:
    chosen = counts[np.ix_(order, order)].tolist()
    own = [names[c] for c in order]
    return heat_map("Confusion, colours by log(x + 1)", chosen, (own, own), ("true class", "predicted class"), log=True)


def worst_pairs(counts: np.ndarray, most: int = 40) -> list[tuple[int, int, int, float]]:
    """True class, predicted class, how many, and which share of the true class; the most confused first."""
    off = counts.copy()
    np.fill_diagonal(off, 0)
    found = []
    for place in np.argsort(-off, axis=None, kind="stable")[:most].tolist():
        true, seen_as = divmod(place, len(counts))
        if off[true, seen_as]:
            found.append((true, seen_as, int(off[true, seen_as]), float(off[true, seen_as] / counts[true].sum())))
    return found


def forgetting(run: RunFiles, classes: dict[int, tuple[float, float]], most: int = 24) -> Figure:
    """The classes that lost most since their best; `classes` are in that order."""
    worst = list(classes)[:most]
    left_out = f", the {most} that lost most" if len(classes) > most else ""
    return bars(
        f"Accuracy by class{left_out}", [run.classes[c] for c in worst], [classes[c][1] for c in worst],
        "bar: now; line: its best after an earlier task", percent=True, before=[classes[c][0] for c in worst],
    )  # fmt: skip


def costs(run: RunFiles) -> list[Figure]:
    k = [line["k"] for line in run.tasks]
    parameters = [Series("at inference", k, [t["parameters"] for t in run.tasks])]
    if all(t.get("parameters_trained") is not None for t in run.tasks):
        parameters.append(Series("trained in this task", k, [t["parameters_trained"] for t in run.tasks]))
    megabytes = [Series("model and exemplars", k, [t["megabytes"] for t in run.tasks])]
    flops = [Series("FLOPs", k, [t["flops"] for t in run.tasks])]
    zero = (0.0, None)
    found = [
        line_chart("Parameters", parameters, "task", "parameters", y_range=zero, height=230),
        line_chart("Size as stored", megabytes, "task", "MB", y_range=zero, legend=False, height=230),
        line_chart("Cost of one answer", flops, "task", "FLOPs of one image", y_range=zero, legend=False, height=230),
    ]
    cpu = [line.get("cpu_seconds") for line in run.times]
    if any(value is not None for value in cpu):
        time = [Series("CPU", [line["k"] for line in run.times], cpu)]
        found.append(
            line_chart("Cost of learning", time, "task", "CPU seconds", y_range=zero, legend=False, height=230)
        )
    return found


def first_member(run: RunFiles) -> list[Line]:
    """The epochs of the first of several networks, whose path and mu_sat a run shows."""
    return [line for line in run.epochs if line.get("member", 1) == 1]


def winners(run: RunFiles) -> dict[int, int]:
    """The candidate that each task kept: the best at its last epoch, the lowest index of equals."""
    last: dict[int, dict[int, float]] = defaultdict(dict)
    for line in first_member(run):
        value = line.get("validation")
        last[line["k"]][line["candidate"]] = -1.0 if value is None else value
    return {k: max(sorted(found), key=lambda c: found[c]) for k, found in last.items()}


def winning_epochs(run: RunFiles) -> dict[int, list[Line]]:
    """The epochs of the candidate that was kept, by task."""
    winning, winner = defaultdict(list), winners(run)
    for line in first_member(run):
        if line["candidate"] == winner[line["k"]] and line.get("fit") in (None, "fit"):
            winning[line["k"]].append(line)
    return dict(winning)


def convergence(run: RunFiles) -> Figure | None:
    """Validation accuracy over the epochs of each task: forward transfer is a curve that starts high."""
    winning = winning_epochs(run)
    if not any(line.get("validation") is not None for lines in winning.values() for line in lines):
        return None
    most = max(winning) - 1
    series = [
        Series(
            f"task {k}",
            [x["epoch"] for x in lines],
            [x.get("validation") for x in lines],
            colour=scale(0.15 * most + 0.6 * (k - 1), most or 1),
        )
        for k, lines in winning.items()
    ]
    return line_chart(
        "Convergence of each task", series, "epoch", "validation accuracy", percent=True, y_range=(None, 1.0),
        height=270 + 16 * (len(series) // 6),
    )  # fmt: skip


def losses(run: RunFiles) -> list[Figure]:
    """L_ce and phi * L_dist over all epochs, and phi."""
    lines = [line for _, own in sorted(winning_epochs(run).items()) for line in own]
    if not lines:
        return []
    x = list(range(1, len(lines) + 1))
    marks = [(i + 1, f"{line['k']}") for i, line in enumerate(lines) if i == 0 or line["k"] != lines[i - 1]["k"]]
    marks = marks if len(marks) <= 20 else marks[::5]
    parts = [Series("L_ce", x, [line.get("loss_ce") for line in lines])]
    phi = [line.get("phi") for line in lines]
    if any(line.get("loss_dist") is not None for line in lines):
        weighted = [None if d is None or p is None else p * d for d, p in zip((q.get("loss_dist") for q in lines), phi)]
        parts.append(Series("phi L_dist", x, weighted))
    at = "epochs of all tasks; lines: a task begins"
    found = [line_chart("Parts of the loss", parts, at, "loss", y_range=(0.0, None), marks=marks)]
    if any(p is not None for p in phi):
        only = [Series("phi", x, phi)]
        found.append(
            line_chart("Weight of the distillation", only, at, "phi", y_range=(0.0, None), marks=marks, legend=False)
        )
    return found


def candidates(run: RunFiles) -> Figure | None:
    """The validation accuracy of every candidate of a search, and the one that was kept."""
    final = {(line["k"], line["candidate"]): line.get("validation") for line in first_member(run)}
    searched = {k for k, c in final if c > 0}
    if not searched:
        return None
    winner = winners(run)
    lost = [(k, v) for (k, c), v in final.items() if k in searched and c != winner[k] and v is not None]
    kept = [(k, v) for (k, c), v in final.items() if k in searched and c == winner[k] and v is not None]
    series = [
        Series("kept", [k for k, _ in kept], [v for _, v in kept], dots=True),
        Series("the others", [k for k, _ in lost], [v for _, v in lost], dots=True, hollow=True),
    ]
    return line_chart("Candidates of each search", series, "task", "validation accuracy", percent=True)


def held_out(tasks: Sequence[Line], threshold: float | None) -> tuple[Figure, Figure]:
    """Of a model: the accuracies on its held-out pictures, and its saturation."""
    k = [task["k"] for task in tasks]
    series = [
        Series("new classes", k, [task["accuracy_new"] for task in tasks]),
        Series("old classes", k, [task["accuracy_old"] for task in tasks]),
    ]
    title = "Accuracy on held-out pictures"
    return (
        line_chart(title, series, "task", "accuracy", percent=True, y_range=(0.0, 1.0)),
        sawtooth([task["saturation"] for task in tasks], [task["switched"] for task in tasks], threshold),
    )
