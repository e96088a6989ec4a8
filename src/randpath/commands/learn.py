"""The commands that change a model directory. torch is imported inside them, after the lock is taken."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from randpath.commands.reading import Json, capacity, open_model, picture_shape, pictures_in, print_json, warn
from randpath.commands.terminal import Bar, Stop
from randpath.errors import DataError, RandpathError, UsageError
from randpath.model import versions
from randpath.storage import checkpoint
from randpath.storage.lock import lock

if TYPE_CHECKING:
    from randpath.data.dataset import Source
    from randpath.model.model import Model


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
    with lock(model), Stop() as stop, _kept(model):
        from dataclasses import replace

        from randpath.engines.serial import Serial
        from randpath.errors import Stopped
        from randpath.learning.method import Work
        from randpath.model.model import Model
        from randpath.model.sizing import plan_for

        checkpoint.need_space(model, 20_000_000)
        base, old = open_model(model, device) if versions.is_model(model) else (0, None)
        if base and base != versions.current(model):
            versions.go_back(model, base)
        source = pictures_in(folder, picture_shape(old) if old else None, skip_bad)
        if old is None:
            plan = plan_for(
                source.train, mean=source.mean, std=source.std, budget=budget, epochs=epochs, mirror=flip, seed=seed
            )
            grown = Model(plan, device)
        else:
            if seed is not None and seed != old.plan.seed:
                raise UsageError(f"{model} was begun with --seed {old.plan.seed}, which stays", next="leave out --seed")
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
            _drop_other_work(model, place, bar)

            def tick(done: float) -> None:
                bar.show(done)
                if stop.signal:
                    raise Stopped()

            try:
                grown.learn(source.train, source.class_names, Work(Serial(tick), place))
            except Stopped:
                return _stopped(model, folder, 128 + stop.signal, as_json)
        state, document = grown.state()
        number = versions.save(model, state.tensors, document, keep)
        checkpoint.discard(model / "work")
    return _told(grown, number, model, as_json)


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
    with lock(model):
        undone, now = versions.rollback(model)
        checkpoint.discard(model / "work")
    if as_json:
        return print_json({"version": now, "undone": undone})
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
    with lock(model):
        base, saved = versions.newest_good(model, lambda saved: saved, warn)
        if base != versions.current(model):
            versions.go_back(model, base)
        document = saved.documents["model"]
        names = document["names"]
        if old not in map(str, names):
            raise UsageError(f"the model has no class {old!r}; it has {', '.join(map(str, names[:20]))}")
        if not new.strip() or new in map(str, names):
            raise UsageError(f"{new!r} is {'a class already' if new.strip() else 'no name'}")
        document["names"] = [new if str(name) == old else name for name in names]
        for entry in document["history"]:
            entry["classes_added"] = [new if str(name) == old else name for name in entry["classes_added"]]
        number = versions.save(model, saved.tensors, document, max(3, len(versions.kept(model))))
    if as_json:
        return print_json({"version": number, "old": old, "new": new})
    print(f"{old} is now called {new} (version {number}); to undo: randpath rollback {model}")
    return 0


@contextmanager
def _kept(model: Path) -> Iterator[None]:
    """Whatever goes wrong, the message says that the model is as it was."""
    try:
        yield
    except RandpathError as error:
        number = versions.current(model) if versions.is_model(model) else 0
        kept = f"{model} is unchanged, at version {number}" if number else "nothing was there before"
        error.kept = error.kept or kept
        raise


def _refuse_foreign(model: Path, folder: Path) -> None:
    """A model is made in a new or empty directory: not in somebody's pictures."""
    if model.exists() and not model.is_dir():
        raise UsageError(f"{model} is a file; the model is a directory", next="randpath learn MODEL FOLDER")
    ours = {"lock", "lock.json", "versions", "work", versions.POINTER, checkpoint.TEMPORARY + versions.POINTER}
    if model.is_dir() and (odd := sorted(p.name for p in model.iterdir() if p.name not in ours)):
        raise UsageError(
            f"{model} is not a model directory: it holds {odd[0]}", next=f"the order is: randpath learn MODEL {folder}"
        )


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
        print_json(told)
    else:
        print(f"interrupted. {kept}. To go on, {told['next']}.")
    return code


def _told(model: "Model", number: int, directory: Path, as_json: bool) -> int:
    """What the last `learn` did."""
    entry = model.history[-1]
    if as_json:
        keys = ("classes_added", "accuracy_new", "accuracy_old", "dropped", "saturation")
        return print_json({"version": number, **{key: entry[key] for key in keys}, "megabytes": model.megabytes()})
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
    print(capacity(entry))
    print(f"size: {model.megabytes():.1f} MB, with {len(model.method.memory):,} pictures inside")
    print(f"to undo: randpath rollback {directory}")
    return 0
