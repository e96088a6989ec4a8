"""Unpacking an archive from outside: files and folders only, inside the target only, within caps, all or nothing."""

import contextlib
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from randpath.errors import DataError

MAX_BYTES = 4 * 2**30
MAX_ENTRIES = 200_000
MAX_DIRECTORY = 2**25  # bytes of a zip's own list of contents
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, struct.error, RuntimeError, ValueError)

Reader = Callable[[], IO[bytes]]
Entry = tuple[str, int, Reader | None]  # name, bytes, how to read it (None: a folder)


def unpack(archive: Path, target: Path, inner: str) -> None:
    """Put the contents of the archive's folder `inner` into `target`; on any refusal nothing is left behind."""
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target))
    try:
        try:
            with _opened(archive) as entries:
                for path, size, reader in _checked(archive, entries, temporary):
                    (path if reader is None else path.parent).mkdir(parents=True, exist_ok=True)
                    if reader is not None:
                        with reader() as source, path.open("xb") as file:
                            _copy(archive, source, file, size)
        except DataError:
            raise
        except _BROKEN as error:
            raise _refuse(archive, f"cannot be read ({error})") from error
        if not (temporary / inner).is_dir():
            raise _refuse(archive, f"has no folder {inner}")
        wanted = sorted((temporary / inner).iterdir())
        in_the_way = [path.name for path in wanted if (target / path.name).exists()]
        if in_the_way:
            raise DataError(
                f"{', '.join(in_the_way[:5])} in {target} would be overwritten",
                where=str(target),
                next="move them away",
            )
        for path in wanted:
            path.replace(target / path.name)
    finally:
        shutil.rmtree(temporary)


def _checked(archive: Path, entries: Iterator[Entry], folder: Path) -> list[tuple[Path, int, Reader | None]]:
    """Where each entry goes, once all of them are known to be harmless."""
    folders: set[str] = set()
    files: set[str] = set()
    total = 0
    checked: list[tuple[Path, int, Reader | None]] = []
    for number, (name, size, reader) in enumerate(entries, 1):
        parts = _parts(archive, name)
        total += size
        if number > MAX_ENTRIES or total > MAX_BYTES:
            raise _refuse(archive, f"holds more than {MAX_ENTRIES:,} entries or {MAX_BYTES:,} bytes")
        # Folded, because "A" and "a" are one file on some systems.
        folded = [unicodedata.normalize("NFC", part).casefold() for part in parts]
        above = {"/".join(folded[:depth]) for depth in range(1, len(folded) + (reader is None))}
        own = "/".join(folded)
        if above & files or (reader is not None and (own in files or own in folders)):
            raise _refuse(archive, f"has {name[:80]!a} twice")
        folders |= above
        if reader is not None:
            files.add(own)
        checked.append((folder.joinpath(*parts), size, reader))
    return checked


def _copy(archive: Path, source: IO[bytes], file: IO[bytes], size: int) -> None:
    left = size
    while chunk := source.read(min(2**20, left + 1)):
        left -= len(chunk)
        if left < 0:
            break
        file.write(chunk)
    if left:
        raise _refuse(archive, "has an entry that is not as long as it says")


def _parts(archive: Path, name: str) -> list[str]:
    """The parts of a harmless name; everything else is refused."""
    plain = name.removeprefix("./").rstrip("/")
    parts = plain.split("/")
    if (
        any(
            part in ("", ".", "..") or part != part.rstrip(" .") or len(part.encode(errors="replace")) > 200
            for part in parts
        )
        or len(parts) > 16
        or any(not c.isprintable() or c in '\\:*?"<>|' for c in plain)
    ):
        raise _refuse(archive, f"has an entry with the name {name[:80]!a}")
    return parts


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[Iterator[Entry]]:
    if not zipfile.is_zipfile(archive):
        with tarfile.open(archive, "r:*") as tar:
            yield _tarred(archive, tar)
        return
    with archive.open("rb") as file:  # before zipfile reads the whole list into memory
        file.seek(max(0, archive.stat().st_size - 65_557))
        tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if int.from_bytes(tail[end + 12 : end + 16], "little") > MAX_DIRECTORY:
        raise _refuse(archive, "has too long a list of contents")
    with zipfile.ZipFile(archive) as zipped:
        yield _zipped(archive, zipped)


def _tarred(archive: Path, tar: tarfile.TarFile) -> Iterator[Entry]:
    for member in tar:
        if member.isdir():
            if member.name not in (".", "./"):
                yield member.name, 0, None
        elif member.isreg() and not member.issparse():
            yield member.name, member.size, partial(_regular, tar, member)
        else:
            raise _refuse(archive, f"has a link, a device or a sparse file: {member.name[:80]!a}")


def _regular(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    assert file is not None, "a regular file"
    return file


def _zipped(archive: Path, zipped: zipfile.ZipFile) -> Iterator[Entry]:
    for info in zipped.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or info.flag_bits & 1:
            raise _refuse(archive, f"has a link, a device or an encrypted file: {info.filename[:80]!a}")
        if "\0" in info.orig_filename:
            raise _refuse(archive, f"has an entry with the name {info.orig_filename[:80]!a}")
        if info.is_dir():
            yield info.filename, 0, None
        else:
            yield info.filename, info.file_size, partial(zipped.open, info)


def _refuse(archive: Path, why: str) -> DataError:
    return DataError(f"the archive {archive.name} {why}: refused", where=str(archive))
