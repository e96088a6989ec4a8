"""The commands that make, ask and change a model directory. torch is imported inside them, after the lock is taken."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from randpath import checkpoint, versions
from randpath.command import Bar, Stop, UsageError
from randpath.decode import DataError

if TYPE_CHECKING:
    from randpath.images import Dataset, Source
    from randpath.model import Model

Json = Annotated[bool, Parameter(name="--json", negative=())]


def learn(
    model: Path,
    folder: Path,
    *,
    budget: int | None = None,
    epochs: int | None = None,
    device: str = "cpu",
    seed: int | None = None,
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    keep: int = 3,
    flip: bool = True,
    as_json: Json = False,
) -> int:
    """Teach a model the classes of a folder: one sub-folder a class. Makes the model if it is new.

    Pictures of classes that it knows are learned too, under their old name. If it is interrupted, type the same again.

    Parameters
    ----------
    model
        The model directory.
    folder
        The pictures.
    budget
        How many pictures the model may keep inside; default 2000.
    epochs
        Passes over the pictures; default by their number.
    device
        cpu, cuda, cuda:1, mps.
    seed
        Of weights, batches and paths; settled by the first `learn`; default 0.
    skip_bad
        Leave out faulty pictures instead of stopping at them.
    keep
        How many versions the model directory keeps, for `rollback`.
    flip
        Train on mirrored pictures too; --no-flip for letters, digits, signs.
    as_json
        Print one JSON object.
    """
    for name, value in (("--keep", keep), ("--epochs", epochs)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if budget is not None and budget < 0:
        raise UsageError(f"--budget must be 0 or more, got {budget}")
    if not folder.exists():
        raise DataError(f"{folder} does not exist", where=str(folder))
    _refuse_foreign(model, folder)
    with checkpoint.lock(model), Stop() as stop, _kept(model):
        from dataclasses import replace

        from randpath.method import Work
        from randpath.model import Model
        from randpath.plan import plan_for
        from randpath.train import Stopped

        checkpoint.need_space(model, 20_000_000)
        base = versions.current(model) if versions.is_model(model) else 0
        old = _load(model, device) if base else None
        source = _folder(folder, old.plan.shape if old else None, skip_bad)
        if old is None:
            plan = plan_for(
                source.train, mean=source.mean, std=source.std, budget=budget, epochs=epochs, mirror=flip, seed=seed
            )
            grown = Model(plan, device)
        else:
            if seed is not None and seed != old.plan.seed:
                raise UsageError(f"{model} was begun with --seed {old.plan.seed}, which stays", "leave out --seed")
            plan = replace(old.plan, budget=old.plan.budget if budget is None else budget, epochs=epochs)
            plan = replace(plan, mirror=plan.mirror and flip)
            grown = old
            grown.plan = plan
        unfinished = _work(model, source, (plan.budget, plan.epochs, plan.mirror, plan.seed))
        place = unfinished(base + 1)
        if base and unfinished(base).exists():  # it was committed, and then interrupted before it could say so
            checkpoint.discard(model / "work")
            return _told(grown, base, model, as_json)
        with Bar(f"learning {len(source.class_names)} classes from {len(source.train):,} pictures") as bar:
            if not as_json:
                for line in source.skipped:
                    bar.say(f"left out: {line}")
            _drop_other_work(model, place, bar)

            def tick(done: float) -> None:
                bar.show(done)
                if stop.signal:
                    raise Stopped()

            try:
                grown.learn(source.train, source.class_names, Work(place=place, tick=tick))
            except Stopped:
                return _stopped(model, folder, 128 + stop.signal, as_json)
        state, document = grown.state()
        number = versions.save(model, state.tensors, document, keep)
        checkpoint.discard(model / "work")
    return _told(grown, number, model, as_json)


def predict(model: Path, *images: Path, device: str = "cpu", as_json: Json = False) -> int:
    """Say what is in a picture: its class, how sure that is, and whether it may be none of the known ones.

    Parameters
    ----------
    model
        The model directory.
    images
        Picture files.
    device
        cpu, cuda, cuda:1, mps.
    as_json
        Print one JSON object.
    """
    if not images:
        raise UsageError("no picture was given", f"randpath predict {model} IMAGE...")
    for image in images:
        if image.is_dir():
            raise UsageError(f"{image} is a folder", f"randpath predict {model} {image}/*   (or: randpath evaluate)")
    loaded = _load(model, device)

    import numpy as np

    from randpath.images import Files
    from randpath.model import encode_label

    p = loaded.probabilities(Files(list(images), np.zeros(len(images), np.int64), _picture_shape(loaded)))
    found = [
        {
            "file": str(image),
            "label": encode_label(loaded.names[int(row.argmax())]),
            "confidence": float(row.max()),
            "unknown": bool(row.max() < loaded.threshold),
        }
        for image, row in zip(images, p)
    ]
    if as_json:
        return _print_json({"predictions": found})
    width = max(len(one["file"]) for one in found)
    for one in found:
        print(f"{one['file']:{width}}  {one['confidence']:6.1%}  {one['label']}{'  (unknown?)' * one['unknown']}")
    return 0


def evaluate(
    model: Path,
    folder: Path,
    *,
    device: str = "cpu",
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
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
    as_json
        Print one JSON object.
    """
    loaded = _load(model, device)
    source = _folder(folder, _picture_shape(loaded), skip_bad)

    import numpy as np

    from randpath import metrics

    data = source.test if len(source.test) else source.train
    number = {loaded.text(c): c for c in range(len(loaded.names))}
    if lacking := [name for name in source.class_names if name not in number]:
        raise DataError(
            f"the model does not know {', '.join(lacking[:10])}{' ...' * (len(lacking) > 10)}",
            where=str(folder),
            next=f"teach it first: randpath learn {model} {folder}",
        )
    labels = np.array([number[name] for name in source.class_names])[data.labels]
    guess = loaded.logits(data).argmax(axis=1)
    by_class = {loaded.text(c): float(np.mean(guess[labels == c] == c)) for c in np.unique(labels).tolist()}
    counts = metrics.confusion(labels, guess, len(loaded.names))
    confusion = {
        loaded.text(a): {loaded.text(b): int(counts[a, b]) for b in np.flatnonzero(counts[a]).tolist()}
        for a in np.flatnonzero(counts.sum(axis=1)).tolist()
    }
    accuracy, forgetting = metrics.accuracy(labels, guess), _forgetting(model, loaded, data, labels, guess)
    if as_json:
        return _print_json(
            {"accuracy": accuracy, "by_class": by_class, "forgetting": forgetting, "confusion": confusion}
        )
    print(f"accuracy {accuracy:.2%} on {len(data):,} pictures of {len(by_class)} classes")
    if forgetting is not None:
        print(f"forgetting {forgetting:.2%} (mean drop of a task since the best of the versions kept, same pictures)")
    for name, value in sorted(by_class.items(), key=lambda item: item[1]):
        wrong = sorted(((n, other) for other, n in confusion[name].items() if other != name), reverse=True)[:3]
        print(f"  {value:7.2%}  {name}" + "".join(f"   {n} x {other}" for n, other in wrong))
    return 0


def info(model: Path, *, as_json: Json = False) -> int:
    """Say what a model knows, how full it is and what it weighs.

    Parameters
    ----------
    model
        The model directory.
    as_json
        Print one JSON object.
    """
    number = versions.current(model)
    loaded = _load(model)

    from randpath.model import encode_label

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
        return _print_json(facts)
    h_w = " x ".join(map(str, loaded.plan.shape))
    print(f"{model}, version {number} (kept: {', '.join(map(str, versions.kept(model)))})")
    print(f"{len(loaded.names)} classes, {loaded.plan.backbone} on {h_w}, {facts['megabytes']:.1f} MB, ", end="")
    print(f"{facts['flops'] / 1e6:,.1f} MFLOPs a picture")
    print(
        f"{len(loaded.method.memory):,} of at most {loaded.plan.budget:,} training pictures are stored inside: ", end=""
    )
    print("whoever gets the model can see them")
    print(_capacity(last))
    for task in tasks:
        print(f"  task {task['k']}: {', '.join(map(str, task['classes']))}")
    print("path map (layers down, modules across; the first task that used a module, . for none):")
    for row in facts["path_map"]:
        print("  " + " ".join(f"{cell or '.':>2}" for cell in row))
    return 0


def rollback(model: Path, *, as_json: Json = False) -> int:
    """Undo the last `learn` (or `rename`): the version before it is current again, byte for byte.

    Parameters
    ----------
    model
        The model directory.
    as_json
        Print one JSON object.
    """
    versions.current(model)  # a directory without a model is not to be made one by the lock
    with checkpoint.lock(model):
        undone, now = versions.rollback(model)
        checkpoint.discard(model / "work")
    if as_json:
        return _print_json({"version": now, "undone": undone})
    print(f"version {undone} is undone, {model} is at version {now}")
    return 0


def rename(model: Path, old: str, new: str, *, as_json: Json = False) -> int:
    """Give a class another name; what the model has learned stays.

    Parameters
    ----------
    model
        The model directory.
    old
        The present name.
    new
        The new name.
    as_json
        Print one JSON object.
    """
    versions.current(model)
    with checkpoint.lock(model):
        saved = versions.load(model)[1]
        document = saved.documents["model"]
        names = document["names"]
        if old not in map(str, names):
            raise UsageError(f"the model has no class {old!r}; it has {', '.join(map(str, names[:20]))}")
        if not new.strip() or new in map(str, names):
            raise UsageError(f"{new!r} is {'a class already' if new.strip() else 'no name'}")
        document["names"] = [new if str(name) == old else name for name in names]
        for entry in document["history"]:
            entry["classes_added"] = [new if str(name) == old else name for name in entry["classes_added"]]
        number = versions.save(model, saved.tensors, document, len(versions.kept(model)) + 1)
    if as_json:
        return _print_json({"version": number, "old": old, "new": new})
    print(f"{old} is now called {new} (version {number}); to undo: randpath rollback {model}")
    return 0


def export(model: Path, file: Path, *, as_json: Json = False) -> int:
    """Write the model as ONNX: pictures in, probabilities out, the names inside; runs without randpath.

    Parameters
    ----------
    model
        The model directory.
    file
        Where to write, e.g. birds.onnx
    as_json
        Print one JSON object.
    """
    if file.suffix != ".onnx":
        raise UsageError(f"{file} should end in .onnx")
    loaded = _load(model)

    from randpath.export import to_onnx

    checkpoint.replace_file(file, to_onnx(loaded))
    size = file.stat().st_size / 1e6
    if as_json:
        return _print_json({"file": str(file), "megabytes": round(size, 3), "classes": len(loaded.names)})
    print(f"{file}: {size:.1f} MB, {len(loaded.names)} classes; docs/deploy.md shows how to run it")
    return 0


def check(folder: Path, *, as_json: Json = False) -> int:
    """List every fault of a data folder in one pass; nothing is changed.

    Parameters
    ----------
    folder
        The pictures: one sub-folder a class, or train/ and test/ with such, or a .csv list.
    as_json
        Print one JSON object.
    """
    from randpath.data.check import check as find
    from randpath.data.check import render

    with Bar(f"checking {folder}") as bar:
        faults = find(folder, lambda done, total: bar.show(done / max(total, 1)))
    if as_json:
        listed = [{key: getattr(f, key) for key in ("kind", "where", "what", "severe")} for f in faults]
        _print_json({"faults": listed})
    else:
        print("\n".join(render(faults)))
    return 65 if any(fault.severe for fault in faults) else 0


def data(name: str) -> int:
    """Download a published dataset, or say where to put its files.

    Parameters
    ----------
    name
        mnist, fashion_mnist, svhn, cifar10, cifar100, tiny_imagenet, ...
    """
    from randpath.data import download

    with Bar(f"downloading {name}") as bar:
        place = download(name, tick=lambda file, done, total: bar.show(done / total if total else 0.0))
    print(f"{name} is in {place}" if place else f"{name} comes with scikit-learn")
    return 0


# ---- what they share


def _print_json(document: dict[str, Any]) -> int:
    print(json.dumps(document, ensure_ascii=False, allow_nan=False))
    return 0


@contextmanager
def _kept(model: Path) -> Iterator[None]:
    """Whatever goes wrong, the message says that the model is as it was."""
    try:
        yield
    except Exception as error:
        number = versions.current(model) if versions.is_model(model) else 0
        kept = f"{model} is unchanged, at version {number}" if number else "nothing was there before"
        vars(error).setdefault("kept", kept)
        raise


def _refuse_foreign(model: Path, folder: Path) -> None:
    """A model is made in a new or empty directory: not in somebody's pictures."""
    if model.exists() and not model.is_dir():
        raise UsageError(f"{model} is a file; the model is a directory", "randpath learn MODEL FOLDER")
    ours = {"lock", "lock.json", "versions", "work", versions.POINTER, checkpoint.TEMPORARY + versions.POINTER}
    if model.is_dir() and (odd := sorted(p.name for p in model.iterdir() if p.name not in ours)):
        raise UsageError(
            f"{model} is not a model directory: it holds {odd[0]}", f"the order is: randpath learn MODEL {folder}"
        )


def _load(model: Path, device: str = "cpu") -> "Model":
    number, saved = versions.load(model)

    from randpath.model import Model

    try:
        return Model.restore(saved, device)
    except checkpoint.Damaged as error:
        raise versions.advised(error, model, number) from error


def _picture_shape(model: "Model") -> tuple[int, int, int]:
    if len(model.plan.shape) != 3:
        raise UsageError("this model takes feature vectors, not pictures", "PathClassifier.load, in Python")
    h, w, c = model.plan.shape
    return h, w, c


def _folder(folder: Path, shape: tuple[int, ...] | None, skip_bad: bool) -> "Source":
    """The pictures at the model's size; a new model takes 32 x 32, or 64 x 64 where most pictures are larger."""
    from dataclasses import replace

    from randpath.data.folder import load

    with Bar(f"looking at {folder}") as bar:
        size = _size(folder) if shape is None else shape[0]
        source = load(
            folder, size=size, test=0.0, skip_bad=skip_bad, tick=lambda done, total: bar.show(done / max(total, 1))
        )
    if shape is None or tuple(shape) == source.train.shape:
        return source
    return replace(source, train=_reshaped(source.train, shape), test=_reshaped(source.test, shape))


def _reshaped(data: "Dataset", shape: tuple[int, ...]) -> "Dataset":
    from randpath.images import Files

    if len(shape) != 3:
        raise UsageError("this model takes feature vectors, not pictures", "PathClassifier.load, in Python")
    assert isinstance(data, Files)
    return Files([data.item(i) for i in range(len(data))], data.labels, (shape[0], shape[1], shape[2]))


def _size(folder: Path) -> int:
    """32 where at least half of (at most 200) pictures have no side above 48, else 64."""
    from PIL import Image

    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp", ".bmp"))
    sides = []
    for file in files[:: max(1, len(files) // 200)]:
        try:
            with Image.open(file) as image:
                sides.append(min(image.size))
        except (OSError, ValueError, SyntaxError):  # the check that follows will name it
            continue
    return 32 if not sides or sorted(sides)[len(sides) // 2] <= 48 else 64


def _work(model: Path, source: "Source", choices: tuple[object, ...]) -> Callable[[int], Path]:
    """Where the unfinished work of this very `learn` lies, by the version it will become."""
    digest = hashlib.sha256(repr((source.fingerprint, choices)).encode()).hexdigest()[:16]
    return lambda version: model / "work" / f"{version:06d}-{digest}"


def _drop_other_work(model: Path, place: Path, bar: Bar) -> None:
    others = [path for path in (model / "work").glob("*") if path != place]
    if others:
        bar.say("an unfinished learn with other pictures or options was found; its work is dropped, this one starts")
    if place.exists():
        bar.say("going on with the unfinished learn")
    for path in others:
        checkpoint.discard(path)


def _stopped(model: Path, folder: Path, code: int, as_json: bool) -> int:
    number = versions.current(model) if versions.is_model(model) else 0
    kept = f"{model} is unchanged (version {number}); the unfinished work is saved" if number else "the unfinished work"
    told = {"error": "interrupted", "where": str(folder), "kept": kept, "next": "type the same command again"}
    if as_json:
        _print_json(told)
    else:
        print(f"interrupted. {kept}. To go on, {told['next']}.")
    return code


def _forgetting(model: Path, now: "Model", data: "Dataset", labels: Any, guess: Any) -> float | None:
    """Mean over tasks of (best accuracy of the earlier versions that are kept - accuracy now), on these pictures."""
    import numpy as np

    last_of: dict[int, Model] = {}  # number of classes known -> that version
    for number in versions.kept(model)[:-1]:
        try:
            earlier = _load_version(model, number)
        except checkpoint.Damaged:
            continue
        last_of[number] = earlier
    best: dict[int, float] = {}
    tasks = _task_of(now)
    present = {k: float(np.mean(guess[own] == labels[own])) for k in set(tasks) if (own := tasks[labels] == k).any()}
    for earlier in last_of.values():
        q = earlier.logits(data).argmax(axis=1)
        for k in present:
            own = tasks[labels] == k
            if labels[own].max() < len(earlier.names):
                best[k] = max(best.get(k, 0.0), float(np.mean(q[own] == labels[own])))
    return float(np.mean([best[k] - present[k] for k in best])) if best else None


def _load_version(model: Path, number: int) -> "Model":
    from randpath.model import Model

    return Model.restore(versions.load(model, number)[1])


def _task_of(model: "Model") -> Any:
    """The task that brought each class."""
    import numpy as np

    return np.concatenate([[entry["k"]] * len(entry["classes_added"]) for entry in model.history]).astype(int)


def _capacity(entry: dict[str, Any]) -> str:
    if entry["saturation"] is None:
        return "capacity: not measured yet (one class, or no pictures kept)"
    what = "a new path will be opened for the next classes" if entry["switched"] else "reusing the path"
    return f"capacity: mu_sat {entry['saturation']:+.2f}, {what}"


def _told(model: "Model", number: int, directory: Path, as_json: bool) -> int:
    """What the last `learn` did."""
    entry = model.history[-1]
    if as_json:
        keys = ("classes_added", "accuracy_new", "accuracy_old", "dropped", "saturation")
        return _print_json({"version": number, **{key: entry[key] for key in keys}, "megabytes": model.megabytes()})
    added = ", ".join(map(str, entry["classes_added"])) or "no new class; the present task went on"
    print(f"version {number}: {added}")
    if entry["pictures_of_seen_classes"]:
        print(f"{entry['pictures_of_seen_classes']:,} pictures are of classes seen before; they were learned too")
    for note in entry["notes"]:
        print(f"note: {note}")
    for name, value in (("new", entry["accuracy_new"]), ("old", entry["accuracy_old"])):
        if value is not None:
            print(f"accuracy on held-out pictures of {name} classes: {value:.2%}")
    for name, drop in sorted(entry["dropped"].items(), key=lambda item: -item[1]):
        print(f"  dropped: {name} by {drop:.1%}")
    for true, seen_as, count in entry["confusions"]:
        print(f"  confused more often: {true} taken for {seen_as} ({count} more)")
    if entry["calibration_error"] is not None:
        print(f"confidence is off by {entry['calibration_error']:.1%} on average (expected calibration error)")
    print(_capacity(entry))
    print(f"size: {model.megabytes():.1f} MB, with {len(model.method.memory):,} pictures inside")
    print(f"to undo: randpath rollback {directory}")
    return 0
