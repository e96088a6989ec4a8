"""What several dataset files share: finding their files, reading idx, finishing a Source."""

import gzip
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from randpath.data._hashes import digests
from randpath.data.dataset import Arrays, Files, Source
from randpath.errors import DataError


def need(name: str, root: Path, *files: str, what: str, offered: bool = True) -> list[Path]:
    """The files of dataset `name` in root/name, each plain or with .gz added; all must be there.

    `offered`: whether `randpath data` can download them.
    """
    folder = root / name
    found = [next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None) for file in files]
    missing = [file for file, path in zip(files, found) if path is None]
    if missing:
        raise DataError(
            f"{name}: {', '.join(missing)} not found in {folder}",
            where=str(folder),
            next=(f"randpath data {name}   (or " if offered else "") + f"put {what} into {folder}" + ")" * offered,
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


def padded(images: Path, labels: Path) -> Arrays:
    """28 x 28 images of idx files with two black pixels on each side, and their labels 0..9."""
    pixels, numbers = idx(images), idx(labels)
    if pixels.shape[1:] != (28, 28) or numbers.ndim != 1:
        raise DataError(
            f"{images.name} and {labels.name} hold {pixels.shape} and {numbers.shape}, not (n, 28, 28) and (n,)",
            where=str(images),
        )
    return arrays(np.pad(pixels, ((0, 0), (2, 2), (2, 2))), numbers, 10, labels)


def cifar(path: Path, *, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of the binary version: records of labels (the last one counts) and 3 x 32 x 32 bytes."""
    length = label_bytes + 3072
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % length:
        raise DataError(f"{path.name} is not made of records of {length:,} bytes", where=str(path))
    records = raw.reshape(-1, length)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, label_bytes - 1]


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
    paths: Sequence[Path] = (),
) -> Source:
    """An in-memory Source with its fingerprint, and the digests of the files it was read from."""
    digest = hashlib.sha256("\0".join(class_names).encode())
    for part in (train, test):
        digest.update(repr(part.items.shape).encode())
        digest.update(np.ascontiguousarray(part.items).data)
        digest.update(part.labels.astype("<i8").tobytes())
    files = digests(paths[0].parent, [path.name for path in paths]) if paths else {}
    return Source(name, train, test, class_names, mean, std, mirror, digest.hexdigest(), files)


FilesDone = Callable[[int, int], None]  # files done, files in all
Listed = Sequence[tuple[str, str]]  # (file below the dataset's folder, class name)


def pictures(
    name: str,
    folder: Path,
    train: Listed,
    test: Listed,
    class_names: tuple[str, ...],
    size: int,
    tick: FilesDone | None,
) -> Source:
    """A file-backed Source: pictures of any size, brought to size x size when they are decoded."""
    number = {c: i for i, c in enumerate(class_names)}
    content = digests(folder, sorted({file for file, _ in (*train, *test)}), tick)
    digest = hashlib.sha256("\0".join(class_names).encode())
    for split, part in (("train", train), ("test", test)):
        for file, label in sorted(part):
            digest.update(repr((split, label, file, content[file])).encode())
    parts = [
        Files([folder / file for file, _ in part], np.array([number[c] for _, c in part], np.int64), (size, size, 3))
        for part in (train, test)
    ]
    return Source(
        name,
        parts[0],
        parts[1],
        class_names,
        mean=(0.485, 0.456, 0.406),  # ImageNet's, as everybody uses
        std=(0.229, 0.224, 0.225),
        mirror=True,
        fingerprint=digest.hexdigest(),
        files=content,
    )


def in_class_folders(name: str, folder: Path, split: str) -> list[tuple[str, str]]:
    """(file, class) for every file in folder/split/CLASS/, sorted."""
    top = folder / split
    if not top.is_dir():
        raise DataError(
            f"{name}: {top} not found",
            where=str(folder),
            next=f"put one sub-folder per class into {top} (docs/data.md says where to get them)",
        )
    return [
        (file.relative_to(folder).as_posix(), c.name)
        for c in sorted(top.iterdir())
        if c.is_dir()
        for file in sorted(c.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    ]
