"""A model directory: one sub-directory a version, a pointer to the current one. No torch until tensors are read.

    MODEL/current.json          the pointer, replaced in one step
    MODEL/versions/000003/      model.json, weights, exemplars, teacher; MANIFEST.json with their SHA-256
    MODEL/work/                 what an unfinished `learn` has trained so far
    MODEL/lock, lock.json       who is writing

The pointer is what commits: a version above it belongs to a writer that did not come to its end, and the next one
removes it. Whoever writes holds `lock(MODEL)`; readers need no lock.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from randpath.errors import Damaged, DataError
from randpath.storage import checkpoint
from randpath.storage.checkpoint import Saved

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Read = TypeVar("Read")

POINTER = "current.json"


def is_model(directory: Path) -> bool:
    """Whether a version was ever committed here."""
    return (directory / POINTER).exists()


def current(directory: Path) -> int:
    """The number of the current version."""
    if not directory.is_dir() or not any((directory / name).exists() for name in (POINTER, "versions")):
        raise DataError(
            f"there is no model in {directory}",
            where=str(directory),
            next=f"make one with: randpath learn {directory} FOLDER",
        )
    try:
        document = checkpoint.read_document(directory / POINTER)
    except FileNotFoundError:
        raise Damaged(f"{directory / POINTER} is missing") from None
    if not isinstance(document, dict) or set(document) != {"version"} or type(document["version"]) is not int:
        raise Damaged(f"{directory / POINTER} is not a pointer to a version")
    number: int = document["version"]
    if not 0 < number < 10**6:
        raise Damaged(f"{directory / POINTER} points to version {number}")
    return number


def place(directory: Path, version: int) -> Path:
    return directory / "versions" / f"{version:06d}"


def kept(directory: Path) -> list[int]:
    """The numbers of the versions that are there, oldest first, the current one last."""
    now = current(directory)
    found = [int(name) for name in checkpoint.names(directory / "versions") if name.isdecimal()]
    return [number for number in found if number <= now]


def load(directory: Path, version: int) -> Saved:
    """One of the versions that are kept, after checking every byte of it."""
    try:
        return checkpoint.load(place(directory, version))
    except Damaged as error:
        raise _told(error, directory, version) from error


def newest_good(directory: Path, read: Callable[[Saved], Read], tell: Callable[[str], object]) -> tuple[int, Read]:
    """What `read` makes of the current version; if that is damaged, of the newest good one before it.

    `tell` hears which. Only when every version is damaged is it an error.
    """
    now = current(directory)
    damage = None
    for number in (now, *(older for older in reversed(kept(directory)) if older != now)):
        try:
            found = read(checkpoint.load(place(directory, number)))
        except Damaged as error:
            if current(directory) != now:  # a writer was quicker, and removed what we began to read
                return newest_good(directory, read, tell)
            damage = damage or error
            continue
        if damage is not None:
            tell(f"version {now} of {directory} is damaged: {damage}. Version {number} is used instead")
        return number, found
    assert damage is not None
    raise _told(damage, directory, now) from damage


def go_back(directory: Path, version: int) -> None:
    """Make an older version the current one; those above it are damaged, and set aside as NAME.bad. For writers."""
    for number in kept(directory):
        if number > version:
            checkpoint.set_aside(place(directory, number))
    checkpoint.write_document(directory / POINTER, {"version": version})


def _told(error: Damaged, directory: Path, version: int) -> Damaged:
    """The same error, with where and the way out."""
    return Damaged(
        f"version {version} of the model is damaged: {error}",
        where=str(place(directory, version)),
        next="restore it from a copy",
    )


def save(
    directory: Path,
    tensors: "Mapping[str, Mapping[str, Tensor | np.ndarray[Any, Any]]]",
    document: Mapping[str, object],
    keep: int = 3,
) -> int:
    """Commit a new version and make it the current one; the last `keep` stay. The caller holds the lock."""
    before = current(directory) if is_model(directory) else 0
    folder = directory / "versions"
    for name in checkpoint.names(folder):
        if name.isdecimal() and int(name) > before:  # its writer never moved the pointer
            checkpoint.discard(folder / name)
    number = before + 1
    link = place(directory, before) if before else None
    checkpoint.save(folder, f"{number:06d}", tensors, {"model": document}, link=link)
    checkpoint.write_document(directory / POINTER, {"version": number})
    checkpoint.prune(folder, max(keep, 1))
    return number


def rollback(directory: Path) -> tuple[int, int]:
    """Make the version before the current one current again, after checking it; its bytes never changed."""
    now = current(directory)
    older = [number for number in kept(directory) if number < now]
    if not older:
        raise DataError(
            f"version {now} of {directory} is the oldest one kept",
            where=str(directory),
            next="keep more of them with: randpath learn --keep N",
        )
    load(directory, older[-1])
    checkpoint.write_document(directory / POINTER, {"version": older[-1]})
    checkpoint.discard(place(directory, now))
    return now, older[-1]
