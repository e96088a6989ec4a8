"""The commands that ask: a model about pictures or itself, a folder about its faults. torch is imported inside them."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from randpath.commands.reading import (
    Json,
    Threads,
    capacity,
    confidence,
    open_model,
    picture_shape,
    pictures_in,
    print_json,
    stored_inside,
    use_threads,
    warn,
)
from randpath.commands.terminal import Bar
from randpath.errors import Damaged, DataError, UsageError
from randpath.model import versions
from randpath.names import shown
from randpath.storage import checkpoint

if TYPE_CHECKING:
    import numpy as np

    from randpath.data.dataset import Dataset, Source
    from randpath.model.model import Model


def evaluate(
    model: Path,
    folder: Path,
    *,
    device: str = "cpu",
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    known_only: Annotated[bool, Parameter(negative=())] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> int:
    """Test a model on a folder of pictures: accuracy, per class, what it forgot, what it confuses.

    Parameters
    ----------
    model
        The model directory.
    folder
        One sub-folder a class; if it has train/ and test/, test/ is used.
    device
        cpu, cuda, cuda:1, mps.
    skip_bad
        Leave out faulty pictures instead of stopping at them.
    known_only
        Leave out the classes that the model does not know instead of stopping at them.
    threads
        How many to use; default all cores.
    as_json
        Print one JSON object.
    """
    version, loaded = open_model(model, device)
    use_threads(threads)
    source = pictures_in(folder, picture_shape(loaded), skip_bad)

    import numpy as np

    from randpath import metrics

    data, labels = _of_known_classes(loaded, source, folder, known_only)
    guess = loaded.logits(data).argmax(axis=1)
    by_class = {loaded.text(c): float(np.mean(guess[labels == c] == c)) for c in np.unique(labels).tolist()}
    counts = metrics.confusion(labels, guess, len(loaded.names))
    confusion = {
        loaded.text(a): {loaded.text(b): int(counts[a, b]) for b in np.flatnonzero(counts[a]).tolist()}
        for a in np.flatnonzero(counts.sum(axis=1)).tolist()
    }
    accuracy, forgetting = metrics.accuracy(labels, guess), _forgetting(model, version, loaded, data, labels, guess)
    if as_json:
        return print_json(
            {"accuracy": accuracy, "by_class": by_class, "forgetting": forgetting, "confusion": confusion}
        )
    print(f"accuracy {accuracy:.2%} on {len(data):,} pictures of {len(by_class)} classes")
    if forgetting is not None:
        print(f"forgetting {forgetting:.2%} (mean drop of a task since the best of the versions kept, same pictures)")
    for name, value in sorted(by_class.items(), key=lambda item: item[1]):
        wrong = sorted(((n, other) for other, n in confusion[name].items() if other != name), reverse=True)[:3]
        print(f"  {value:7.2%}  {name}" + "".join(f"   {n} x {other}" for n, other in wrong))
    return 0


def _of_known_classes(model: "Model", source: "Source", folder: Path, known_only: bool) -> "tuple[Dataset, np.ndarray]":
    """The pictures to test on, and their labels as the model numbers them."""
    import numpy as np

    data = source.test if len(source.test) else source.train
    number = {model.text(c): c for c in range(len(model.names))}
    lacking = [name for name in source.class_names if name not in number]
    if lacking and (not known_only or len(lacking) == len(source.class_names)):
        raise DataError(
            f"the model does not know {', '.join(lacking[:10])}{' ...' * (len(lacking) > 10)}",
            where=str(folder),
            next="teach it these classes from other pictures than you test it on, or leave them out: --known-only",
        )
    if lacking:
        warn(f"left out, for the model does not know them: {', '.join(lacking)}")
    labels = np.array([number.get(name, -1) for name in source.class_names])[data.labels]
    return data.take(np.flatnonzero(labels >= 0)), labels[labels >= 0]


def info(model: Path, *, as_json: Json = False) -> int:
    """Say what a model knows, how full it is and what it weighs.

    Parameters
    ----------
    model
        The model directory.
    as_json
        Print one JSON object.
    """
    number, loaded = open_model(model)

    from randpath.model.stored import decode_label, encode_label

    last = loaded.history[-1]
    tasks: list[dict[str, Any]] = []
    for entry in loaded.history:
        if not entry["again"]:
            tasks.append({"k": entry["k"], "classes": entry["classes_added"], "calls": 0})
        tasks[-1] |= {key: entry[key] for key in ("saturation", "switched", "accuracy_new", "accuracy_old")}
        tasks[-1]["calls"] += 1
    facts = {
        "classes": [encode_label(name) for name in loaded.names],
        "tasks": tasks,
        "path_map": loaded.path_map(),
        "saturation": last["saturation"],
        "megabytes": loaded.megabytes(),
        "flops": loaded.flops(),
        "version": number,
    }
    if as_json:
        return print_json(facts)
    h_w = " x ".join(map(str, loaded.plan.shape))
    print(f"{model}, version {number} (kept: {', '.join(map(str, versions.kept(model)))})")
    print(f"{len(loaded.names)} classes, {loaded.plan.backbone} on {h_w}, {facts['megabytes']:.1f} MB, ", end="")
    print(f"{facts['flops'] / 1e6:,.1f} MFLOPs for each")
    print(f"{stored_inside(loaded)}, {loaded.plan.at_most}: whoever gets the model can see them")
    if loaded.plan.start is not None:
        print(f"start: {loaded.plan.start_name}, SHA-256 {loaded.plan.start[:16]}...")
    print(capacity(last))
    if last["saturation"] is not None:
        print(f"  mu_sat {last['saturation']:+.2f} (the paper's measure; at 0 or above the path is full)")
    print("\n".join(confidence(loaded)))
    for task in tasks:
        classes = ", ".join(shown(str(decode_label(name))) for name in task["classes"])
        print(f"  task {task['k']}: {classes or 'no class is left of it'}")
    print("path map (layers down, modules across; the first task that used a module, . for none):")
    for row in facts["path_map"]:
        print("  " + " ".join(f"{cell or '.':>2}" for cell in row))
    return 0


def export(model: Path, file: Path, *, as_json: Json = False) -> int:
    """Write the model as ONNX: pictures in, probabilities out, the names inside; runs without randpath.

    Parameters
    ----------
    model
        The model directory; or a run directory of `bench`, for the logits of its method.
    file
        Where to write, e.g. birds.onnx
    as_json
        Print one JSON object.
    """
    if file.suffix != ".onnx":
        raise UsageError(f"{file} should end in .onnx")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", where=str(file), next="make it first, or mend the name")
    if (model / "experiment.json").exists():
        from randpath.bench.load import load_run
        from randpath.model.onnx import run_to_onnx

        run = load_run(model)
        data, classes = run_to_onnx(run), len(run.lines[-1]["classes"])
    else:
        _, loaded = open_model(model)

        from randpath.model.onnx import to_onnx

        data, classes = to_onnx(loaded), len(loaded.names)
    checkpoint.replace_file(file, data)
    size = len(data) / 1e6
    if as_json:
        return print_json({"file": str(file), "megabytes": round(size, 3), "classes": classes})
    print(f"{file}: {size:.1f} MB, {classes} classes; docs/deploy.md shows how to run it")
    return 0


def check(folder: Path, *, as_json: Json = False) -> int:
    """List every fault of a data folder in one pass; nothing is changed.

    Parameters
    ----------
    folder
        The pictures: one sub-folder per class, or train/ and test/ with such, or a .csv list.
    as_json
        Print one JSON object.
    """
    from randpath.data.check import looked_through, render

    with Bar(f"checking {folder}") as bar:
        faults, pictures, classes = looked_through(folder, lambda done, total: bar.show(done / max(total, 1)))
    if as_json:
        listed = [{key: getattr(f, key) for key in ("kind", "where", "what", "severe")} for f in faults]
        print_json({"faults": listed, "pictures": pictures, "classes": classes})
    else:
        print("\n".join(render(faults, pictures, classes)))
    return 65 if faults else 0


def data(name: str) -> int:
    """Download a published dataset, or say where to put its files.

    Parameters
    ----------
    name
        mnist, fashion_mnist, svhn, cifar10, cifar100, tiny_imagenet, ...
    """
    from randpath.data.named import download

    with Bar(f"downloading {name}") as bar:
        place = download(name, tick=lambda file, done, total: bar.show(done / total if total else 0.0))
    print(f"{name} is in {place}" if place else f"{name} comes with scikit-learn")
    return 0


def _forgetting(model: Path, version: int, now: "Model", data: "Dataset", labels: Any, guess: Any) -> float | None:
    """Mean over tasks of (best accuracy of the earlier versions that are kept - accuracy now), on these pictures."""
    import numpy as np

    from randpath.model.model import Model
    from randpath.model.stored import origins

    before: list[Model] = []
    earlier_ones: list[int] = []
    with contextlib.suppress(Damaged):  # a writer may have removed this version meanwhile
        earlier_ones = versions.before(model, version)
    for number in earlier_ones:
        with contextlib.suppress(Damaged):
            before.append(Model.restore(versions.load(model, number), directory=model))
    best: dict[int, float] = {}
    tasks = _task_of(now)
    present = {k: float(np.mean(guess[own] == labels[own])) for k in set(tasks) if (own := tasks[labels] == k).any()}
    came = origins(now.history)
    for earlier in before:
        # Which class of now each of its classes is: the number and the name may have changed since.
        was = [next((c for c, own in enumerate(came) if own & then), -1) for then in origins(earlier.history)]
        answers = np.array(was)[earlier.logits(data).argmax(axis=1)]
        for k in present:
            own = tasks[labels] == k
            if set(labels[own].tolist()) <= set(was):
                best[k] = max(best.get(k, 0.0), float(np.mean(answers[own] == labels[own])))
    return float(np.mean([best[k] - present[k] for k in best])) if best else None


def _task_of(model: "Model") -> Any:
    """The task that brought each class."""
    import numpy as np

    return np.concatenate([[entry["k"]] * len(entry["classes_added"]) for entry in model.history]).astype(int)
