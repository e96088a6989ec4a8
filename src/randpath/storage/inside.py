"""Files below a directory that is held by descriptor: no step on the way to them goes through a link.

A model directory may come from a stranger, who made `work` a link to somebody's pictures. So whoever reads or writes
one holds it (`with held(directory)`; the lock does that), and every path below it is opened step by step from its
descriptor. The last step of a path follows no link anywhere. Where a system has no such calls (Windows), each step is
looked at before the path is used. No torch.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from randpath.errors import Damaged, DiskTrouble

RELATIVE = {os.open, os.stat, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

Kind = Literal["file", "folder", "other"]  # a link is "other"


@dataclass(frozen=True)
class _Root:
    path: Path
    descriptor: int | None
    identity: tuple[int, int]
    writing: bool


_roots: ContextVar[tuple[_Root, ...]] = ContextVar("roots", default=())  # of this thread alone


@contextlib.contextmanager
def held(directory: Path, *, writing: bool = False) -> Iterator[None]:
    """Reach all that lies below a directory without a link; while `writing`, notice that it was moved or replaced."""
    path = directory.absolute()
    descriptor = os.open(path, FOLDER) if RELATIVE else None
    try:
        found = os.stat(path if descriptor is None else descriptor)
        token = _roots.set((*_roots.get(), _Root(path, descriptor, (found.st_dev, found.st_ino), writing)))
        try:
            yield
        finally:
            _roots.reset(token)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def folder(path: Path) -> Iterator[int | None]:
    """A descriptor of a directory; none where the system has no use for it."""
    path = path.absolute()
    root = next((root for root in reversed(_roots.get()) if path.is_relative_to(root.path)), None)
    if root is not None:
        _check_place(root)
    steps = path.relative_to(root.path).parts if root is not None else ()
    if not RELATIVE:
        for end in range(1, len(steps) + 1):
            assert root is not None
            _refuse_link(root.path.joinpath(*steps[:end]))
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        yield None
        return
    here = os.open(path, FOLDER) if root is None or root.descriptor is None else os.dup(root.descriptor)
    try:
        for number, step in enumerate(steps):
            inner = _enter(here, step, path, len(steps) - number - 1)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _enter(here: int, step: str, path: Path, below: int) -> int:
    try:
        return os.open(step, FOLDER | NO_LINK, dir_fd=here)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(step, dir_fd=here, follow_symlinks=False).st_mode):
                raise _linked(path.parents[below - 1] if below else path) from None
        raise


def _check_place(root: _Root) -> None:
    if not root.writing:
        return
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(root.path)
        if (found.st_dev, found.st_ino) == root.identity:
            return
    raise DiskTrouble(
        f"{root.path} was moved, removed or replaced while this command worked in it",
        where=str(root.path),
        kept="what it saved so far is where the directory is now",
        next="type the same command with the directory's new name",
    )


def _refuse_link(path: Path) -> None:
    """For systems without descriptors; a Windows junction is a link too."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_reparse_tag", 0)):
            raise _linked(path)


def _linked(path: Path) -> Damaged:
    return Damaged(f"{path} is a link, and randpath makes none: who made it?", where=str(path), next=f"look at {path}")


def refuse_links_below(path: Path) -> None:
    """Refuse a tree that is, or has in it, a link: for what another process will use, which holds no descriptor."""
    _refuse_link(path)
    for name, kind in listing(path).items():
        if kind == "folder":
            refuse_links_below(path / name)
        elif kind == "other":
            _refuse_link(path / name)


# ---- looking


def listing(path: Path) -> dict[str, Kind]:
    """What is in a directory, sorted by name; nothing where there is no directory."""
    try:
        with folder(path) as here, os.scandir(path if here is None else here) as entries:
            found = {entry.name: _kind_of(entry.stat(follow_symlinks=False).st_mode) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return dict(sorted(found.items()))


def kind(path: Path) -> Kind | None:
    """What a path is itself, or none where nothing is."""
    try:
        with folder(path.parent) as here:
            return _kind_of(os.stat(_name(here, path), dir_fd=here, follow_symlinks=False).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def size(path: Path) -> int:
    with folder(path.parent) as here:
        return os.stat(_name(here, path), dir_fd=here, follow_symlinks=False).st_size


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit`; raises Damaged, or FileNotFoundError."""
    with folder(path.parent) as here:
        found = os.stat(_name(here, path), dir_fd=here, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):  # a pipe would wait for ever
            raise Damaged(f"{path} is not a regular file", where=str(path))
        with open(os.open(_name(here, path), os.O_RDONLY | NO_LINK, dir_fd=here), "rb") as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        raise Damaged(f"{path} has more than {limit:,} bytes", where=str(path))
    return data


def _kind_of(mode: int) -> Kind:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _name(here: int | None, path: Path) -> str:
    """How to call a path from the descriptor of its directory."""
    return str(path) if here is None else path.name


# ---- changing; the five operations of checkpoint are made of these


def write(path: Path, data: bytes) -> None:
    """A new file, through to the disk; an old one of that name, or a link, is removed and not written through."""
    with folder(path.parent) as here:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_name(here, path), dir_fd=here)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
        with open(os.open(_name(here, path), flags, 0o666, dir_fd=here), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def link(twin: Path, path: Path) -> bool:
    """Give a file a second name; false where that cannot be done: a filesystem without links, or too many of them."""
    try:
        with folder(twin.parent) as there, folder(path.parent) as here:
            if there is None or here is None:
                os.link(twin, path)
            else:
                os.link(twin.name, path.name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        return True
    except (OSError, NotImplementedError, AttributeError):
        return False


def sync(path: Path) -> None:
    """Make the names in a directory last; a system without directory descriptors has no such call."""
    with folder(path) as here:
        if here is not None:
            os.fsync(here)


def rename(source: Path, target: Path) -> None:
    with folder(source.parent) as there, folder(target.parent) as here:
        if there is None or here is None:
            source.replace(target)
        else:
            os.replace(source.name, target.name, src_dir_fd=there, dst_dir_fd=here)


def remove(path: Path) -> None:
    """Remove a file, a link (not what it leads to) or a tree; nothing there will do."""
    what = kind(path)
    if what is None:
        return
    with folder(path.parent) as here:
        if what == "folder":
            shutil.rmtree(_name(here, path), dir_fd=here)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_name(here, path), dir_fd=here)


def make_folder(path: Path) -> None:
    """Make one directory; an existing one will do, a link to one will not."""
    with folder(path.parent) as here:
        try:
            os.mkdir(_name(here, path), dir_fd=here)
        except FileExistsError:
            with folder(path):  # refuses a link, or what is no directory
                pass
