"""Every fault of a data folder in one pass, before any training."""

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from randpath.data._tree import Fault, Picture, Tree, scan, shown
from randpath.data.decode import EXTENSIONS, PictureError, decode, decode_both, read, sniff

SMALL = 2**29  # bytes of pixels that one look hands on
FilesDone = Callable[[int, int], None]  # files done, files in all


@dataclass(frozen=True)
class Seen:
    """What one look at a picture found: the digests of its bytes and of its pixels, or the fault."""

    content: str = ""
    pixels: str = ""
    fault: Fault | None = None


def check(folder: Path, tick: FilesDone | None = None) -> list[Fault]:
    """All faults of a folder (or .csv list) of pictures; nothing is changed."""
    return looked_through(folder, tick)[0]


def looked_through(folder: Path, tick: FilesDone | None = None) -> tuple[list[Fault], int, int]:
    """The faults of a folder, and the number of its pictures and of its classes."""
    tree = scan(Path(folder))
    return inspect(tree, tick)[0], len(tree.pictures), len({picture.label for picture in tree.pictures})


def render(faults: Iterable[Fault], pictures: int, classes: int) -> list[str]:
    """One line per fault, severe ones first, and a summary.

    >>> render([], 12, 1)
    ['12 pictures of 1 class: no faults']
    """
    ordered = sorted(faults, key=lambda fault: (not fault.severe, fault.kind, fault.where))
    severe = sum(fault.severe for fault in ordered)
    lines = [f"{'fault  ' if fault.severe else 'caution'} {fault}" for fault in ordered]
    found = f"{_count(severe, 'fault')}, {_count(len(ordered) - severe, 'caution')}" if lines else "no faults"
    return [*lines, f"{_count(pictures, 'picture')} of {_count(classes, 'class')}: {found}"]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def inspect(
    tree: Tree, tick: FilesDone | None = None, shape: tuple[int, ...] | None = None
) -> tuple[list[Fault], dict[str, Seen], dict[str, np.ndarray]]:
    """The faults of the structure and of every file, what was seen of each, and the pixels at `shape` of the first."""
    seen: dict[str, Seen] = {}
    small: dict[str, np.ndarray] = {}
    most = 0 if shape is None else SMALL // math.prod(shape)
    files = [picture.file for picture in tree.pictures]
    parts = [files[i : i + 64] for i in range(0, len(files), 64)]
    # Looking at a small picture is all Python, where a second thread is in the way (50,000: 19 s alone, 29 s by two).
    large = any((tree.root / file).stat().st_size > 20_000 for file in files[:: max(1, len(files) // 50)])
    with ThreadPoolExecutor(2 if large else 1, thread_name_prefix="check") as pool:
        for part in pool.map(lambda part: [_look(tree.root, file, shape, small, most) for file in part], parts):
            seen |= zip(files[len(seen) :], part)
            if tick is not None:
                tick(len(seen), len(files))
    faults = [*tree.faults, *(look.fault for look in seen.values() if look.fault is not None)]
    faults += _duplicates(tree.pictures, seen)
    return faults, seen, small


def _look(root: Path, file: str, shape: tuple[int, ...] | None, small: dict[str, np.ndarray], most: int) -> Seen:
    """One file; while there is room, its pixels at `shape` are put into `small`, so that it is decoded once."""
    content = ""
    try:
        data = read(root / file)
        content = hashlib.sha256(data).hexdigest()
        if shape is not None and len(small) < most:
            pixels, small[file] = decode_both(data, shape)
        else:
            pixels = decode(data, strict=True)
    except PictureError as error:
        return Seen(content, "", Fault(error.kind, shown(file), error.fault, drop=(file,)))
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(pixels.data)
    kind, suffix = sniff(data), Path(file).suffix
    fault = None
    if EXTENSIONS.get(suffix.lower()) != kind:
        fault = Fault(
            "wrong extension", shown(file), f"{shown(suffix) or 'no extension'} on a {kind} file", severe=False
        )
    return Seen(content, digest.hexdigest(), fault)


def _duplicates(pictures: list[Picture], seen: dict[str, Seen]) -> list[Fault]:
    """Pictures with the same pixels: in two classes, in training and test, or twice in one class."""
    groups: dict[str, list[Picture]] = {}
    for picture in pictures:
        if seen[picture.file].pixels:
            groups.setdefault(seen[picture.file].pixels, []).append(picture)
    faults = []
    for group in groups.values():
        first = group[0]
        everyone = tuple(picture.file for picture in group)
        training = tuple(picture.file for picture in group if picture.split == "train")
        for copy in group[1:]:
            where, like = shown(copy.file), f"the same picture as {shown(first.file)}"
            if len({picture.label for picture in group}) > 1:
                faults.append(Fault("in two classes", where, like, drop=everyone))
            elif len({picture.split for picture in group}) > 1:
                faults.append(Fault("in training and test", where, like, drop=training))
            else:
                faults.append(Fault("duplicate", where, like, severe=False, drop=(copy.file,)))
    return faults
