"""Transactional save and load of a directory of tensors and documents; the lock.

A directory becomes visible by one rename, after everything in it is on the disk; its manifest, written last, holds
the SHA-256 of every file and is checked at every load. There is one writer, the holder of the lock. Tensors are
safetensors, everything else is JSON. torch is imported only where it is needed, so the lock can be taken before.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randpath.errors import Damaged, DiskTrouble, UsageError
from randpath.storage import inside
from randpath.storage.encoding import BAD, MANIFEST, MAX_DOCUMENT, MAX_HEADER, check_name
from randpath.storage.encoding import FORMAT as FORMAT
from randpath.storage.encoding import encode_document as encode_document
from randpath.storage.encoding import encode_tensors as encode_tensors
from randpath.storage.encoding import parse_document as parse_document
from randpath.storage.encoding import parse_manifest as parse_manifest
from randpath.storage.encoding import parse_tensors as parse_tensors

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

TEMPORARY = ".tmp-"  # what begins so is unfinished, and removed by the next writer
PAUSES = (0.2, 1.0)  # seconds before the second and the third try of a failed save


@dataclass(frozen=True)
class Saved:
    """What `save` was given; the tensors own their memory."""

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Any]
    digest: str = ""  # SHA-256 of the manifest, and so of everything


# ---- the five file operations: everything that must last goes through them, so that a test can replace them


def write_file(path: Path, data: bytes, twin: Path | None = None) -> None:
    """Write a file through to the disk; a `twin` on the disk with the same bytes is hard-linked instead."""
    if twin is None or not _holds(twin, data) or not inside.link(twin, path):
        inside.write(path, data)


def sync_directory(path: Path) -> None:
    """Make the names in a directory last; Windows has no such call and needs none."""
    inside.sync(path)


def rename(source: Path, target: Path) -> None:
    """Give a finished file or directory its name, at once and whole."""
    inside.rename(source, target)


def remove(path: Path) -> None:
    """Remove a file, a link or a tree; never what a link leads to."""
    inside.remove(path)


def make_directory(path: Path) -> None:
    """Make one directory; an existing one will do."""
    inside.make_folder(path)


# ---- save


def save(
    directory: Path,
    name: str,
    tensors: Mapping[str, Mapping[str, Tensor | np.ndarray[Any, Any]]],
    documents: Mapping[str, object],
    *,
    link: Path | None = None,
) -> Path:
    """Write `directory/name` as one transaction: after a crash at any moment it is there whole, or not at all.

    A name is never used twice. Files with the same bytes in `link`, an earlier save, are hard-linked from it.

    >>> import tempfile, torch
    >>> directory = Path(tempfile.mkdtemp())
    >>> _ = save(directory, "000001", {"weights": {"w": torch.ones(2)}}, {"state": {"epoch": 1}})
    >>> name, saved = latest(directory)
    >>> name, saved.documents["state"], saved.tensors["weights"]["w"]
    ('000001', {'epoch': 1}, tensor([1., 1.]))
    """
    check_name(name)
    target = directory / name
    if inside.kind(target) is not None:
        raise ValueError(f"{target} is there already; the name of a save is used once")

    def files() -> Iterator[tuple[str, bytes]]:  # one at a time: the largest is the only one in memory
        for key, group in tensors.items():
            yield f"{key}.safetensors", encode_tensors(group)
        for key, document in documents.items():
            yield f"{key}.json", encode_document(document)

    def commit() -> None:
        if inside.kind(target) is None:  # else only the last sync of an earlier try failed
            ensure_directory(directory)
            clear(directory)
            temporary = directory / (TEMPORARY + name)
            make_directory(temporary)
            listed = {}
            for file, data in files():
                check_name(file)
                write_file(temporary / file, data, link / file if link else None)
                listed[file] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            write_file(temporary / MANIFEST, encode_document({"format": FORMAT, "files": listed}))
            sync_directory(temporary)
            rename(temporary, target)
        sync_directory(directory)

    _try_thrice(commit, target, lambda: sum(len(data) for _, data in files()))
    return target


def prune(directory: Path, keep: int, always: Collection[str] = ()) -> None:
    """Remove all but the last `keep` saves and those named in `always`."""

    def commit() -> None:
        clear(directory)
        for name in set(names(directory)[:-keep] if keep else names(directory)) - set(always):
            # out of sight first: a removal cut short must not look like a damaged save
            rename(directory / name, directory / (TEMPORARY + name))
        sync_directory(directory)
        clear(directory)

    _try_thrice(commit, directory, lambda: 0)


def replace_file(path: Path, data: bytes) -> None:
    """Write one file as one transaction, over an earlier version if there is one."""
    if inside.kind(path) not in ("file", None) and not path.is_symlink():  # a link is replaced, not followed
        raise UsageError(f"{path} is there, and not a regular file", where=str(path), next="choose another name")

    def commit() -> None:
        ensure_directory(path.parent)
        temporary = path.with_name(TEMPORARY + path.name)
        write_file(temporary, data)
        rename(temporary, path)
        sync_directory(path.parent)

    _try_thrice(commit, path, lambda: len(data))


def write_document(path: Path, document: object) -> None:
    """Write one JSON document as one transaction."""
    replace_file(path, encode_document(document))


def write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a .jsonl file, one row a line, as one transaction."""
    replace_file(path, b"".join(encode_document(row) for row in rows))


def write_tensors(path: Path, tensors: Mapping[str, Tensor | np.ndarray[Any, Any]]) -> None:
    """Write one .safetensors file as one transaction."""
    replace_file(path, encode_tensors(tensors))


def ensure_directory(directory: Path) -> None:
    """Make a directory and its parents, so that they last."""
    try:
        with inside.folder(directory):
            pass
    except FileNotFoundError:
        if directory.parent != directory:
            ensure_directory(directory.parent)
        make_directory(directory)
        sync_directory(directory.parent)


def discard(path: Path) -> None:
    """Remove what is no longer needed, such as the place of a fit whose task is committed."""
    _try_thrice(lambda: remove(path), path, lambda: 0)


def clear(directory: Path) -> None:
    """Remove what an interrupted writer left; for the one writer alone."""
    for name in inside.listing(directory):
        if name.startswith(TEMPORARY):
            remove(directory / name)


def need_space(directory: Path, needed: int) -> None:
    """Refuse to start what the disk has no room for."""
    free = _free_bytes(directory)
    if free is not None and free < needed:
        raise DiskTrouble(f"not enough room in {directory}: {needed:,} bytes needed, {free:,} free")


def _try_thrice(commit: Callable[[], None], target: Path, needed: Callable[[], int]) -> None:
    """Do it, again after a pause when the disk fails, and at the third failure say what is needed and what is free."""
    for pause in (*PAUSES, None):
        try:
            commit()
            return
        except OSError as error:
            if pause is None:
                with contextlib.suppress(OSError):  # half a file would keep a full disk full
                    remove(target.with_name(TEMPORARY + target.name))
                room = f"{needed():,} bytes needed, {_free(target.parent)} free"
                raise DiskTrouble(f"cannot write {target}: {error.strerror or error}; {room}") from error
            time.sleep(pause)


def _free(directory: Path) -> str:
    """The free bytes, or that there is room for no more files, however short: a disk can run out of either."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has no statvfs
        found = os.statvfs(directory)
        if found.f_files and not found.f_favail:
            return "no further file (inodes are used up)"
    free = _free_bytes(directory)
    return "unknown" if free is None else format(free, ",")


def _free_bytes(directory: Path) -> int | None:
    for path in (directory, *directory.absolute().parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(path).free
    return None


# ---- load


def load(path: Path) -> Saved:
    """Read what `save` wrote, after checking every byte of it; raises Damaged.

    A file that is missing, added, a link, of another size or of other content is refused.
    """
    with _telling_damage(path):
        manifest, listed = _manifest(path)
        tensors, documents = {}, {}
        for name, entry in listed.items():
            data = _checked(path / name, *entry)
            key, _, kind = name.rpartition(".")
            if kind == "json":
                documents[key] = parse_document(data)
            else:
                tensors[key] = parse_tensors(data)
        return Saved(tensors, documents, hashlib.sha256(manifest).hexdigest())


def load_document(path: Path, key: str) -> Any:
    """One document of a save, after checking its own bytes alone; raises Damaged, or FileNotFoundError."""
    with _telling_damage(path):
        _, listed = _manifest(path)
        if f"{key}.json" in listed:
            return parse_document(_checked(path / f"{key}.json", *listed[f"{key}.json"]))
    raise FileNotFoundError(f"{path} has no {key}.json")


def _manifest(path: Path) -> tuple[bytes, dict[str, tuple[str, int]]]:
    """The manifest, if the files that it lists are there, and no others."""
    if inside.kind(path) != "folder":
        raise Damaged(f"{path} is not a directory")
    present = inside.listing(path)
    if odd := [name for name, kind in present.items() if kind != "file"]:
        raise Damaged(f"{path / odd[0]} is not a regular file")
    if MANIFEST not in present:
        raise Damaged(f"{path} has no {MANIFEST}")
    manifest = inside.read(path / MANIFEST, MAX_HEADER)
    listed = parse_manifest(manifest)
    if differ := sorted(set(listed) ^ (set(present) - {MANIFEST})):
        raise Damaged(f"{path / differ[0]} is {'missing' if differ[0] in listed else 'not in the manifest'}")
    return manifest, listed


def _checked(path: Path, sha256: str, size: int) -> bytes:
    if (found := inside.size(path)) != size:
        raise Damaged(f"{path} has {found:,} bytes, not {size:,}")
    data = inside.read(path, size)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(f"{path} has changed since it was written")
    return data


@contextlib.contextmanager
def _telling_damage(path: Path) -> Iterator[None]:
    """Whatever is wrong with a save, said with its place."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(f"{path / str(error.filename)} is missing") from error
    except OSError as error:
        if error.errno == errno.EIO:  # a bad sector: as good as a changed byte
            raise Damaged(f"{path} cannot be read: {error.strerror}") from error
        raise DiskTrouble(f"cannot read {path}: {error.strerror or error}") from error
    except Damaged as error:
        if str(path) in str(error):
            raise
        raise Damaged(f"{path}: {error}") from error


def names(directory: Path) -> list[str]:
    """The names of the saves in a directory, oldest first."""
    found = (name for name, kind in inside.listing(directory).items() if kind == "folder")
    return [name for name in found if not name.startswith(".") and BAD not in name]


def latest(directory: Path, tell: Callable[[str], object] = warnings.warn) -> tuple[str, Saved] | None:
    """The newest good save, or None when nothing was ever saved; for the one writer alone.

    A damaged one is set aside as NAME.bad and the one before it used; `tell` hears which. All damaged: Damaged.
    """
    for name in reversed(names(directory)):
        try:
            saved = load(directory / name)
        except Damaged as error:
            aside = set_aside(directory / name)
            tell(f"{error}; set aside as {aside.name}, going back to the save before it")
        else:
            return name, saved
    if bad := [name for name in inside.listing(directory) if BAD in name]:
        raise Damaged(f"every save in {directory} is damaged: {', '.join(bad)}")
    return None


def set_aside(path: Path) -> Path:
    """Rename a damaged save to NAME.bad, where nobody takes it for a good one; returns its new name."""
    numbers = ("", *range(2, 10_000))
    aside = next(p for number in numbers if not inside.kind(p := path.with_name(f"{path.name}{BAD}{number}")))
    _try_thrice(lambda: rename(path, aside), aside, lambda: 0)
    return aside


def read_document(path: Path) -> Any:
    """Read one JSON document; raises Damaged, which names the file, or FileNotFoundError."""
    try:
        return parse_document(inside.read(path, MAX_DOCUMENT))
    except Damaged as error:
        error.where = error.where or str(path)
        raise


def read_lines(path: Path) -> list[Any]:
    """Read a .jsonl file; raises Damaged, which names the file, or FileNotFoundError."""
    try:
        return [parse_document(line) for line in inside.read(path, MAX_DOCUMENT).splitlines()]
    except Damaged as error:
        error.where = error.where or str(path)
        raise


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read one .safetensors file; raises Damaged, or FileNotFoundError."""
    return parse_tensors(path.read_bytes())


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file is there and has these bytes."""
    if inside.kind(path) != "file" or inside.size(path) != len(data):
        return False
    return inside.read(path, len(data)) == data
