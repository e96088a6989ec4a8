"""SHA-256 of many files, remembered by size and time of change, so that a second look at a large dataset is quick."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from randpath.errors import DataError


def digests(root: Path, files: Sequence[str], tick: Callable[[int, int], None] | None = None) -> dict[str, str]:
    """The SHA-256 of each file below `root`. An edit that keeps both size and time is not noticed, as in git."""
    known = _remembered(root)
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(2, thread_name_prefix="hash") as pool:
        for i in range(0, len(files), 256):  # by parts, or a million futures would wait in memory
            part = files[i : i + 256]
            found.update(zip(part, pool.map(lambda file: _one(root / file, known.get(file)), part)))
            if tick is not None:
                tick(len(found), len(files))
    if any(known.get(file) != entry for file, entry in found.items()):
        _remember(root, found)
    return {file: entry[2] for file, entry in found.items()}


def _one(path: Path, known: list[str] | None) -> list[str]:
    try:
        status = path.stat()
        size, changed = str(status.st_size), str(status.st_mtime_ns)
        if known is not None and known[:2] == [size, changed]:
            return known
        with path.open("rb") as file:
            return [size, changed, hashlib.file_digest(file, "sha256").hexdigest()]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", where=str(path)) from error


def _place(root: Path) -> Path:
    return (
        Path.home()
        / ".cache"
        / "randpath"
        / "hashes"
        / f"{hashlib.sha256(bytes(root.resolve())).hexdigest()[:16]}.json"
    )


def _remembered(root: Path) -> dict[str, list[str]]:
    with contextlib.suppress(OSError, ValueError):  # only a shortcut: without it the files are read
        known = json.loads(_place(root).read_text())
        if isinstance(known, dict):
            return {k: v for k, v in known.items() if isinstance(v, list) and len(v) == 3 and all(map(_is_text, v))}
    return {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _remember(root: Path, found: dict[str, list[str]]) -> None:
    with contextlib.suppress(OSError):
        place = _place(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
            json.dump(found, file)
        Path(file.name).replace(place)
