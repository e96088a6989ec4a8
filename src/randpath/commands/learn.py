"""The commands that change a model directory. torch is imported inside them, after the lock is taken."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from randpath import names
from randpath.commands.reading import (
    Json,
    Threads,
    capacity,
    confidence,
    open_model,
    picture_shape,
    pictures_in,
    print_json,
    says_what_is_kept,
    stored_inside,
    warn,
)
from randpath.commands.start import as_vectors, chosen
from randpath.commands.terminal import Bar, Stop
from randpath.errors import DataError, Stopped, UsageError, as_typed
from randpath.model import versions
from randpath.settings import parse_size
from randpath.storage import checkpoint, inside
from randpath.storage.lock import NAMES as LOCK
from randpath.storage.lock import lock

if TYPE_CHECKING:
    from randpath.data.dataset import Source
    from randpath.data.features import Start
    from randpath.model.model import Model


def learn(
    model: Path,
    folder: Path,
    *,
    budget: int | str | None = None,
    epochs: int | None = None,
    device: str = "cpu",
    seed: int | None = None,
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    keep: int = 3,
    flip: bool = True,
    threads: Threads = None,
    start: str | None = None,
    as_json: Json = False,
) -> int:
    """Teach a model the classes of a folder: one sub-folder per class. Makes the model if it is new.

    Pictures of classes that it knows are learned too, under their old name. If it is interrupted, type the same again.

    Parameters
    ----------
    model
        The model directory.
    folder
        The pictures.
    budget
        How many pictures the model may keep inside; default 2000. A size, such as 6MB: as many as fit, as WebP files.
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
    threads
        How many to train with; default: as many as at the first `learn`, there all cores up to four. Another number
        changes the last bits of a result.
    start
        A pretrained network in front: an .onnx file, a name as `randpath start` has them, auto or none; settled by the
        first `learn`; default auto: efficientnet_lite0 for photographs, where it is installed.
    as_json
        Print one JSON object.
    """
    for name, value, least in (("--keep", keep, 1), ("--epochs", epochs, 1), ("--budget", budget, 0)):
        if isinstance(value, int) and value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if isinstance(budget, str) and parse_size(budget) is None:
        raise UsageError(f"--budget must be a whole number of at least 0, or a size such as 6MB, got {budget!r:.100}")
    asked: dict[str, Any] = {"budget": budget, "epochs": epochs, "mirror": flip, "seed": seed, "threads": threads}
    return _learn(model, folder, device, skip_bad, keep, start, asked, as_json)


def _learn(
    model: Path,
    folder: Path,
    device: str,
    skip_bad: bool,
    keep: int,
    start: str | None,
    asked: dict[str, Any],
    as_json: bool,
) -> int:
    """One call as one transaction, by the one writer."""
    _refuse_foreign(model, folder)
    with lock(model), Stop() as stop, says_what_is_kept(model):
        checkpoint.need_space(model, 20_000_000)
        base, old = open_model(model, device) if versions.is_model(model) else (0, None)
        network = chosen(model, old, folder, start)
        shape = network.shape if network else picture_shape(old) if old else None
        source = pictures_in(folder, shape, skip_bad)
        try:
            source = as_vectors(source, network, model, stop) if network else source
            grown = _planned(model, old, source, device, network, **asked)
            number = _learned(grown, source, model, base, keep, stop)
        except Stopped:
            return _stopped(model, folder, 128 + stop.signal, as_json)
    return _print_learned(grown, number, model, as_json)


def _learned(grown: "Model", source: "Source", model: Path, base: int, keep: int, stop: Stop) -> int:
    """Train, and commit what came out as a new version; its number. Raises Stopped if somebody asked to stop."""
    plan = grown.plan
    choices = (plan.budget, plan.epochs, plan.mirror, plan.seed, plan.threads, plan.start)
    work = versions.name_of_work(model, base, source.fingerprint, choices)
    if versions.is_done(model, base, work):
        number = base
        versions.finish(model, number)
    else:
        _train(grown, source, model / "work" / work, stop)
        state, document = grown.state()
        number = versions.save(model, state.tensors, document, keep, base=base, work=work)
    checkpoint.discard(model / "work")
    return number


def _planned(
    model: Path,
    old: "Model | None",
    source: "Source",
    device: str,
    network: "Start | None",
    *,
    budget: int | str | None,
    epochs: int | None,
    mirror: bool,
    seed: int | None,
    threads: int | None,
) -> "Model":
    """The model that is to learn, with what was asked for; what it could not be stored with is refused here."""
    from dataclasses import replace

    from randpath.model.model import Model
    from randpath.model.sizing import plan_for

    if old is None:
        choices: dict[str, Any] = {
            "budget": budget,
            "epochs": epochs,
            "mirror": mirror,
            "seed": seed,
            "threads": threads,
        }
        if network is None:
            return Model(plan_for(source.train, mean=source.mean, std=source.std, **choices), device)
        choices |= {"mirror": None, "start": network.sha256, "start_name": network.name}
        new = Model(plan_for(source.train, **choices), device)
        new.directory = model
        return new
    plan = old.plan
    if seed is not None and seed != plan.seed:
        raise UsageError(f"the model was begun with --seed {plan.seed}, which stays", next="leave out --seed")
    budget = plan.budget if budget is None else budget
    threads = plan.threads if threads is None else threads
    old.plan = replace(plan, budget=budget, epochs=epochs, mirror=plan.mirror and mirror, threads=threads)
    return old


def _train(grown: "Model", source: "Source", place: Path, stop: Stop) -> None:
    """Train, going on from this very learn's unfinished work in `place`."""
    from randpath.engines.serial import Serial
    from randpath.learning.method import Work

    with Bar(f"learning {len(source.class_names)} classes from {len(source.train):,} pictures") as bar:
        _drop_other_work(place, bar)

        def tick(done: float) -> None:
            bar.show(done)
            if stop.signal:
                raise Stopped()

        grown.learn(source.train, source.class_names, Work(Serial(tick), place))


def rollback(model: Path, *, as_json: Json = False) -> int:
    """Undo the last `learn` (or `rename`): the state before it is committed again, as a new version.

    Parameters
    ----------
    model
        The model directory.
    as_json
        Print one JSON object.
    """
    versions.current(model)  # a directory without a model is not to be made one by the lock
    with lock(model), says_what_is_kept(model):
        from randpath.model.model import Model

        undone, number, same_as = versions.rollback(model, Model.restore, warn)
        checkpoint.discard(model / "work")
    if as_json:
        return print_json({"version": number, "undone": undone, "same_as": same_as})
    print(f"version {undone} is undone: version {number} is the same as version {same_as} was")
    print(f"to take that back: {as_typed('redo', model)}")
    return 0


def redo(model: Path, *, as_json: Json = False) -> int:
    """Take the last `rollback` back: what it undid is committed again, as a new version.

    Parameters
    ----------
    model
        The model directory.
    as_json
        Print one JSON object.
    """
    versions.current(model)
    with lock(model), says_what_is_kept(model):
        from randpath.model.model import Model

        number, same_as = versions.redo(model, Model.restore, warn)
        checkpoint.discard(model / "work")
    if as_json:
        return print_json({"version": number, "same_as": same_as})
    print(f"done again: version {number} is the same as version {same_as} was")
    return 0


def _undo(model: Path) -> str:
    return as_typed("rollback", model)


def _refuse_foreign(model: Path, folder: Path) -> None:
    """A model is made in a new or empty directory: not in somebody's pictures."""
    if not folder.exists():
        raise DataError(f"{folder} does not exist", where=str(folder))
    if model.exists() and not model.is_dir():
        raise UsageError(f"{model} is a file; the model is a directory", next="randpath learn MODEL FOLDER")
    ours = {*LOCK, "versions", "work", "start", versions.POINTER, checkpoint.TEMPORARY + versions.POINTER}
    if model.is_dir() and (odd := sorted(p.name for p in model.iterdir() if p.name not in ours)):
        raise UsageError(
            f"{model} is not a model directory: it holds {names.shown(odd[0])}",
            next=f"the order is: {as_typed('learn', 'MODEL', folder)}",
        )
    if folder.is_dir() and model.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"{model} lies inside of {folder}: its files would be taken for pictures",
            next=f"make the model elsewhere: {as_typed('learn', 'MODEL', folder)}",
        )


def _drop_other_work(place: Path, bar: Bar) -> None:
    found = [name for name in inside.listing(place.parent) if name not in (place.name, "features")]
    if found:
        bar.say(
            "an unfinished learn of another version, with other pictures or other options, was found: it is dropped"
        )
    if inside.kind(place) is not None:
        bar.say("going on with the unfinished learn")
    for name in found:
        checkpoint.discard(place.with_name(name))


def _stopped(model: Path, folder: Path, code: int, as_json: bool) -> int:
    numbers = versions.kept(model)
    as_it_was = f"{model} is unchanged (version {numbers[-1]}); " if numbers else ""
    kept = as_it_was + "the unfinished work is saved"
    told = {"error": "interrupted", "where": str(folder), "kept": kept, "next": "type the same command again"}
    if as_json:
        print_json(told)
    else:
        print(f"interrupted; {kept}. To go on, {told['next']}.")
    return code


def _changes(entry: dict[str, Any]) -> list[str]:
    """What the old classes lost, in counts; what may be chance is not called a drop."""
    lines = []
    if entry["right_old"] is not None:
        before, now, of = entry["right_old"]
        verdict = ": a drop" if entry["old_dropped"] else ": no more than chance may do" if now < before else ""
        lines.append(f"  of the same pictures {now} of {of} are right, {before} were before{verdict}")
    fewer = {name: f"{now} of {of}, {before} before" for name, (before, now, of) in entry["fewer_right"].items()}
    lines += [f"  dropped: {name} ({fewer[name]})" for name in entry["dropped"]]
    perhaps = [f"{name} ({counts})" for name, counts in fewer.items() if name not in entry["dropped"]]
    if perhaps:
        lines.append(f"  fewer right, perhaps by chance: {'; '.join(perhaps[:5])}{'; ...' * (len(perhaps) > 5)}")
    grown = entry["confusions"] if entry["old_dropped"] or entry["dropped"] else []
    return lines + [f"  confused more often: {a} taken for {b} ({count} more)" for a, b, count in grown]


def _print_learned(model: "Model", number: int, directory: Path, as_json: bool) -> int:
    """What the last `learn` did."""
    entry = model.history[-1]
    if as_json:
        keys = ("classes_added", "accuracy_new", "accuracy_old", "dropped", "fewer_right", "saturation")
        return print_json({"version": number, **{key: entry[key] for key in keys}, "megabytes": model.megabytes()})
    added = (
        ", ".join(names.shown(str(name)) for name in entry["classes_added"]) or "no new class; the present task went on"
    )
    print(f"version {number}: {added}")
    if entry["pictures_of_seen_classes"]:
        print(f"{entry['pictures_of_seen_classes']:,} pictures are of classes seen before; they were learned too")
    for note in entry["notes"]:
        print(f"note: {note}")
    for name, value in (("new", entry["accuracy_new"]), ("old", entry["accuracy_old"])):
        if value is not None:
            print(f"accuracy on held-out pictures of {name} classes: {value:.2%}")
    for line in (*_changes(entry), *confidence(model)):
        print(line)
    if entry.get("path_share") is not None:
        alone = f"{entry['accuracy_closed_form']:.2%}"
        print(
            f"closed form on the start's features alone: {alone}; the path network's share: {entry['path_share']:.0%}"
        )
    print(capacity(entry))
    print(f"size: {model.megabytes():.1f} MB; {stored_inside(model)}")
    print(f"to undo: {_undo(directory)}")
    return 0
