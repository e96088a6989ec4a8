"""The commands that change what a model knows without training it. Each commits a new version, undone by rollback."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from randpath import names
from randpath.commands.reading import Json, open_model, print_json, says_what_is_kept
from randpath.errors import Damaged, UsageError, as_typed
from randpath.model import versions
from randpath.storage import checkpoint
from randpath.storage.lock import lock

if TYPE_CHECKING:
    from randpath.model.model import Model


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
    new = names.clean(new)
    versions.current(model)
    with lock(model), says_what_is_kept(model):
        base, loaded = open_model(model)

        from randpath.model import editing

        editing.rename(loaded, old, new)
        number = _committed(model, base, loaded)
    if as_json:
        return print_json({"version": number, "old": old, "new": new})
    print(f"{names.shown(old)} is now called {new} (version {number}); to undo: {as_typed('rollback', model)}")
    return 0


def forget(
    model: Path, name: str, *, for_good: Annotated[bool, Parameter(negative=())] = False, as_json: Json = False
) -> int:
    """Take a class out of a model: its name, its pictures and its place in the classifier.

    What the other weights have learned from its pictures stays in them.

    Parameters
    ----------
    model
        The model directory.
    name
        The class.
    for_good
        Out of every version that is kept, too: for privacy. This cannot be undone.
    as_json
        Print one JSON object.
    """
    versions.current(model)
    with lock(model), says_what_is_kept(model):
        base, loaded = open_model(model)

        from randpath.model.editing import forget, number_of

        if for_good:
            number, cleaned = _forgotten_for_good(model, base, name)
        else:
            number, cleaned = _committed(model, base, forget(loaded, number_of(loaded, name))), 0
        checkpoint.discard(model / "work")
    if as_json:
        return print_json({"version": number, "forgotten": name, "for_good": for_good})
    print(f"{names.shown(name)} is forgotten (version {number})")
    print("what the other weights have learned from its pictures stays in them")
    if for_good:
        print(f"it was taken out of all versions that are kept ({cleaned} had it); this cannot be undone")
    else:
        held = "pictures" if loaded.plan.start is None else "vectors"
        print(f"earlier versions still hold its {held} (--for-good); to undo: {as_typed('rollback', model)}")
    return 0


def merge(model: Path, name: str, other: str, *, as_json: Json = False) -> int:
    """Make one class of two: what is of the second is of the first from now on.

    Parameters
    ----------
    model
        The model directory.
    name
        The class that stays.
    other
        The class that becomes a part of it.
    as_json
        Print one JSON object.
    """
    versions.current(model)
    with lock(model), says_what_is_kept(model):
        base, loaded = open_model(model)

        from randpath.model.editing import merge, number_of

        merged = merge(loaded, number_of(loaded, name), number_of(loaded, other))
        number = _committed(model, base, merged)
        checkpoint.discard(model / "work")
    if as_json:
        return print_json({"version": number, "name": name, "merged": other})
    print(f"{names.shown(other)} is a part of {names.shown(name)} now (version {number}); ", end="")
    print(f"to undo: {as_typed('rollback', model)}")
    return 0


def _committed(model: Path, base: int, changed: "Model") -> int:
    state, document = changed.state()
    keep = max(3, len(versions.before(model, base)) + 2)  # it costs no version that could be rolled back to
    return versions.save(model, state.tensors, document, keep, base=base)


def _forgotten_for_good(model: Path, base: int, name: str) -> tuple[int, int]:
    """Every state up to the present one anew, without the class; the new version, and how many versions had it."""
    from randpath.model.editing import bears, origins_of, without
    from randpath.storage.checkpoint import Saved

    line = [*versions.before(model, base), base]
    models = _readable(model, [*line, *versions.after(model, base)])
    left_over = _readable(model, [number for number in versions.kept(model) if number not in models])
    was_interrupted = any(bears(one, name) for one in left_over.values())  # then typed again
    if base == versions.current(model):
        versions.finish(model, base)  # what it left is removed, also what bears another name there
    gone = set[str]()
    if not was_interrupted or any(bears(one, name) for one in models.values()):
        gone = origins_of(name, models[base], list(models.values()))
    left = {number: without(one, gone) for number, one in models.items()}
    if left[base] is None:
        raise UsageError(f"{names.shown(name)} is the only class, and a model needs one", next="remove the folder")
    states = []
    for number in line:
        if (one := left.get(number)) is not None:
            state, document = one.state()
            states.append(Saved(dict(state.tensors), {"model": document}))
    had = sum(left[number] is not one for number, one in models.items()) + was_interrupted
    return versions.rewrite(model, states, base=base), had


def _readable(model: Path, numbers: list[int]) -> "dict[int, Model]":
    """These versions, but for the damaged ones."""
    from randpath.model.model import Model

    found: dict[int, Model] = {}
    for number in numbers:
        with contextlib.suppress(Damaged):
            found[number] = Model.restore(versions.load(model, number), directory=model)
    return found
