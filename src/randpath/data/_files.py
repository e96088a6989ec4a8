"""What several dataset files share: finding their files, reading idx, finishing a Source."""

import gzip
import hashlib
from pathlib import Path

import numpy as np

from randpath.images import Arrays, DataError, Source


def need(name: str, root: Path, *files: str, what: str) -> list[Path]:
    """The files of dataset `name` in root/name, each plain or with .gz added; all must be there."""
    folder = root / name
    found = [next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None) for file in files]
    missing = [file for file, path in zip(files, found) if path is None]
    if missing:
        raise DataError(
            f"{name}: {', '.join(missing)} not found in {folder}",
            where=str(folder),
            next=f"`randpath data {name}`, or put {what} into {folder}",
        )
    return [path for path in found if path is not None]


def idx(path: Path) -> np.ndarray:
    """The uint8 array of an idx file, plain or gzipped."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise DataError(f"{path.name} cannot be read: {error}", where=str(path)) from error
    dims = raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * dims
    if raw[:3] != b"\0\0\x08" or not dims or len(raw) < start:
        raise DataError(f"{path.name} is not an idx file of bytes", where=str(path))
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", dims, offset=4))
    if len(raw) - start != int(np.prod(shape, dtype=object)):
        raise DataError(f"{path.name} holds {len(raw) - start} bytes, its header says {shape}", where=str(path))
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def arrays(items: np.ndarray, labels: np.ndarray, num_classes: int, path: Path) -> Arrays:
    """Items and labels as a dataset, once the labels are known to be right."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path.name}: label {labels[row]} of item {row} is not in 0..{num_classes - 1}", where=str(path)
        )
    if len(items) != len(labels):
        raise DataError(f"{path.name}: {len(items)} images but {len(labels)} labels", where=str(path))
    return Arrays(items, labels.astype(np.int64))


def source(
    name: str,
    train: Arrays,
    test: Arrays,
    class_names: tuple[str, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    *,
    mirror: bool,
) -> Source:
    """An in-memory Source with its fingerprint."""
    digest = hashlib.sha256("\0".join(class_names).encode())
    for part in (train, test):
        digest.update(repr(part.items.shape).encode())
        digest.update(np.ascontiguousarray(part.items).data)
        digest.update(part.labels.astype("<i8").tobytes())
    return Source(name, train, test, class_names, mean, std, mirror, digest.hexdigest())
