"""A model directory: one sub-directory per version; the newest good one answers. No torch until tensors are read.

    MODEL/versions/000003/      model.json, weights, exemplars, teacher, line.json; MANIFEST.json with their SHA-256
    MODEL/current.json          the number of the newest version: a hint for readers of older releases
    MODEL/work/                 what an unfinished `learn` has trained so far
    MODEL/lock, lock.json       who is writing

A version is committed by the rename that gives it its name. A writer never changes or overwrites one: `rollback` and
`redo` commit an earlier state as a new version, so that the newest good version is always the right one, whatever the
pointer says. No two states share a file. Whoever writes holds `lock(MODEL)`; readers need no lock.
"""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from randpath.errors import Damaged, DataError, as_typed
from randpath.storage import checkpoint, inside
from randpath.storage.checkpoint import Saved
from randpath.storage.encoding import BAD, MANIFEST, MAX_HEADER

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Read = TypeVar("Read")

POINTER = "current.json"
MOST = 10**6  # versions


@dataclass(frozen=True)
class Line:
    """Where a version stands in the line of states that `rollback` and `redo` walk: line.json."""

    state: int  # the number of the version in which its contents were first committed
    past: tuple[int, ...] = ()  # the states before it, oldest first
    future: tuple[int, ...] = ()  # the states that were undone, the next one first
    work: str = ""  # the name of the unfinished work that became this version


def is_model(directory: Path) -> bool:
    """Whether a version was ever committed here."""
    with _held(directory):
        there = (name for name in inside.listing(directory / "versions") if not name.startswith(checkpoint.TEMPORARY))
        return inside.kind(directory / POINTER) is not None or any(there)


def kept(directory: Path) -> list[int]:
    """The numbers of the versions that are there, oldest first, the newest last."""
    with _held(directory):
        found = checkpoint.names(directory / "versions")
    return [int(name) for name in found if name.isascii() and name.isdecimal() and name == f"{int(name):06d}"]


def current(directory: Path) -> int:
    """The number of the newest version, good or not."""
    if not is_model(directory):
        raise DataError(
            f"there is no model in {directory}",
            where=str(directory),
            next=f"make one with: {as_typed('learn', directory, 'FOLDER')}",
        )
    if numbers := kept(directory):
        return numbers[-1]
    raise Damaged(
        f"no version is left in {directory / 'versions'}", where=str(directory), next="restore it from a copy"
    )


def stamp(directory: Path) -> tuple[int, str]:
    """The number and the SHA-256 of the manifest of the newest version: it is another one as soon as these differ."""
    number = current(directory)
    with _held(directory):
        try:
            return number, hashlib.sha256(inside.read(place(directory, number) / MANIFEST, MAX_HEADER)).hexdigest()
        except (FileNotFoundError, Damaged):
            return number, ""


def place(directory: Path, version: int) -> Path:
    return directory / "versions" / f"{version:06d}"


def load(directory: Path, version: int) -> Saved:
    """One of the versions that are kept, after checking every byte of it."""
    try:
        with _held(directory):
            return checkpoint.load(place(directory, version))
    except Damaged as error:
        raise _damaged(error, directory, version) from error


def newest_good(directory: Path, read: Callable[[Saved], Read], tell: Callable[[str], object]) -> tuple[int, Read]:
    """What `read` makes of the newest version; if that is damaged, of the newest good one before it.

    `tell` hears which, also where the pointer is no help. Only when every version is damaged is it an error.
    """
    newest = current(directory)
    damage = None
    for number in reversed(kept(directory)):
        try:
            with _held(directory):
                found = read(checkpoint.load(place(directory, number)))
        except Damaged as error:
            if current(directory) != newest:  # a writer was quicker, and removed what we began to read
                return newest_good(directory, read, tell)
            damage = damage or error
            continue
        if damage is not None:
            tell(f"version {newest} of {directory} is damaged: {damage}. Version {number} is used instead")
        elif odd := _odd_pointer(directory, newest):
            tell(f"{directory / POINTER} {odd}. Version {number} is used, the newest")
        return number, found
    assert damage is not None
    raise _damaged(damage, directory, newest) from damage


def line(directory: Path, version: int) -> Line:
    """Where a version stands; one that an older release wrote comes after all that are kept below it."""
    with _held(directory):
        try:
            document = checkpoint.load_document(place(directory, version), "line")
        except FileNotFoundError:
            return Line(version, tuple(number for number in kept(directory) if number < version))
    try:
        found = Line(**{**document, "past": tuple(document["past"]), "future": tuple(document["future"])})
        numbers = [found.state, *found.past, *found.future]
        if not all(type(n) is int and 0 < n <= version for n in numbers) or len({*numbers}) != len(numbers):
            raise ValueError("numbers out of order")
        if not isinstance(found.work, str):
            raise TypeError("work is no name")
    except (LookupError, TypeError, ValueError) as error:
        raise Damaged(f"{place(directory, version) / 'line.json'} does not fit: {error}") from error
    return found


def before(directory: Path, version: int) -> list[int]:
    """The versions that hold the states before this one, oldest first."""
    holding = _holding(directory, version)
    return [holding[state] for state in line(directory, version).past if state in holding]


def after(directory: Path, version: int) -> list[int]:
    """The versions that hold the states which were undone, the next one first."""
    holding = _holding(directory, version)
    return [holding[state] for state in line(directory, version).future if state in holding]


def name_of_work(directory: Path, base: int, *what: object) -> str:
    """The name of unfinished work: it belongs to the bytes of the version it began from, and to what is learned."""
    manifest = b""
    if base:
        with _held(directory):
            manifest = inside.read(place(directory, base) / MANIFEST, MAX_HEADER)
    began_from, learned = (hashlib.sha256(part).hexdigest()[:16] for part in (manifest, repr(what).encode()))
    return f"{base:06d}-{began_from}-{learned}"


def is_done(directory: Path, base: int, work: str) -> bool:
    """Whether version `base` was made by the same `learn` as `work` names, interrupted before it could say so."""
    made = line(directory, base).work if base else ""
    same = made.rpartition("-")[2] == work.rpartition("-")[2]
    return bool(made) and same and inside.kind(directory / "work" / made) is not None


# ---- for writers, who hold the lock


def save(
    directory: Path,
    tensors: "Mapping[str, Mapping[str, Tensor | np.ndarray[Any, Any]]]",
    document: Mapping[str, object],
    keep: int = 3,
    *,
    base: int,
    work: str = "",
) -> int:
    """Commit a new version, made from the good version `base` (0: none); the last `keep` states stay."""
    past: tuple[int, ...] = ()
    if base:
        holding, now = _holding(directory, base), line(directory, base)
        past = (*(state for state in now.past if state in holding), now.state)
    number = base + 1
    here = Line(number, past[max(0, len(past) - max(keep, 1) + 1) :], (), work)
    _commit(directory, number, tensors, document, here)
    return number


def rewrite(directory: Path, states: "list[Saved]", *, base: int) -> int:
    """Commit these states anew, the last one as the newest version, and remove every version that was there.

    The newest is committed first: whoever reads meanwhile, or after a crash, gets an old version or it. What else holds
    old states, damaged versions and unfinished work, goes before that, so that no crash leaves it there for good.
    """
    numbers = [_checked_number(directory, base + 1 + i) for i in range(len(states))]
    drop_above(directory, base)
    for name in inside.listing(directory / "versions"):
        if BAD in name:
            checkpoint.discard(directory / "versions" / name)
    checkpoint.discard(directory / "work")
    for i in reversed(range(len(states))):
        here = {"model": states[i].documents["model"], "line": asdict(Line(numbers[i], tuple(numbers[:i])))}
        checkpoint.save(directory / "versions", f"{numbers[i]:06d}", states[i].tensors, here)
    finish(directory, numbers[-1])
    return numbers[-1]


def rollback(directory: Path, read: Callable[[Saved], object], tell: Callable[[str], object]) -> tuple[int, int, int]:
    """Commit the state before the present one as a new version; what was undone, the new version, which it repeats."""
    newest, (base, _) = current(directory), newest_good(directory, read, tell)
    if base != newest:  # what was asked for is the case already, but for the damaged ones above it
        drop_above(directory, base)
        finish(directory, base)
        return newest, base, base
    now, holding = line(directory, base), _holding(directory, base)
    for i, state in reversed(list(enumerate(now.past))):
        try:
            saved = load(directory, holding[state])
            read(saved)
        except KeyError:  # no longer kept
            continue
        except Damaged as error:
            tell(f"{error.what}. It is passed over")
            continue
        return base, *_repeat(directory, base, saved, Line(state, now.past[:i], (now.state, *now.future)))
    raise DataError(
        f"version {base} of {directory} is the oldest one kept",
        where=str(directory),
        next="keep more of them with: randpath learn --keep N",
    )


def redo(directory: Path, read: Callable[[Saved], object], tell: Callable[[str], object]) -> tuple[int, int]:
    """Commit again what was undone last; the new version, and which one it repeats."""
    base, _ = newest_good(directory, read, tell)
    now, holding = line(directory, base), _holding(directory, base)
    if not now.future or now.future[0] not in holding:
        raise DataError(f"nothing was undone in {directory}", where=str(directory))
    saved = load(directory, holding[now.future[0]])
    read(saved)
    return _repeat(directory, base, saved, Line(now.future[0], (*now.past, now.state), now.future[1:]))


def _repeat(directory: Path, base: int, saved: Saved, here: Line) -> tuple[int, int]:
    old = _holding(directory, base)[here.state]
    # Links cost no room, even on a full disk, and are no risk: the version that has the files now is of the same state.
    _commit(directory, base + 1, saved.tensors, saved.documents["model"], here, link=place(directory, old))
    return base + 1, old


def _commit(
    directory: Path,
    number: int,
    tensors: "Mapping[str, Mapping[str, Tensor | np.ndarray[Any, Any]]]",
    document: Mapping[str, object],
    here: Line,
    link: Path | None = None,
) -> None:
    documents = {"model": document, "line": asdict(here)}
    drop_above(directory, _checked_number(directory, number) - 1)
    checkpoint.save(directory / "versions", f"{number:06d}", tensors, documents, link=link)
    finish(directory, number)


def _checked_number(directory: Path, number: int) -> int:
    if number >= MOST:
        raise DataError(f"{directory} has had {MOST:,} versions, the most there can be", where=str(directory))
    return number


def finish(directory: Path, number: int) -> None:
    """What follows a commit, and is made up for after a crash: the pointer, and no version that nothing leads to."""
    if _pointer(directory) != number:
        checkpoint.write_document(directory / POINTER, {"version": number})
    here, holding = line(directory, number), _holding(directory, number)
    wanted = {holding[state] for state in (here.state, *here.past, *here.future) if state in holding}
    checkpoint.prune(directory / "versions", 0, [f"{n:06d}" for n in {*wanted, number}])


def drop_above(directory: Path, version: int) -> None:
    """Set aside, as NAME.bad, the versions above the newest good one: they are damaged."""
    for number in kept(directory):
        if number > version:
            checkpoint.set_aside(place(directory, number))


def _holding(directory: Path, newest: int) -> dict[int, int]:
    """For each state the newest version that holds it, up to the one that answers."""
    found = {}
    for number in [number for number in kept(directory) if number <= newest]:
        try:
            found[line(directory, number).state] = number
        except Damaged:
            found[number] = number
    return found


def _pointer(directory: Path) -> int | None:
    """What the pointer says, if it is one."""
    try:
        document = checkpoint.parse_document(inside.read(directory / POINTER, 1000))
    except (FileNotFoundError, Damaged):
        return None
    if not isinstance(document, dict) or set(document) != {"version"} or type(document["version"]) is not int:
        return None
    number: int = document["version"]
    return number


def _odd_pointer(directory: Path, newest: int) -> str:
    """What is wrong with the pointer; one that lags behind is not wrong: its writer died just before it."""
    with _held(directory):
        if inside.kind(directory / POINTER) is None:
            return "is missing"
        number = _pointer(directory)
    if number is None:
        return "is not a pointer to a version"
    return f"points to version {number}, which is not there" if not 0 < number <= newest else ""


def _held(directory: Path) -> contextlib.AbstractContextManager[None]:
    return inside.held(directory) if directory.is_dir() else contextlib.nullcontext()


def _damaged(error: Damaged, directory: Path, version: int) -> Damaged:
    """The same error, with where and the way out."""
    return Damaged(
        f"version {version} of the model is damaged: {error.what}",
        where=str(place(directory, version)),
        next="restore it from a copy",
    )
