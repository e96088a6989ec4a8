"""Your own pictures: a sub-folder a class, or train/ and test/ with such, or a CSV of file,label[,split]."""

import hashlib
from pathlib import Path

import numpy as np

from randpath.data._tree import Fault, Picture, scan
from randpath.data.check import FilesDone, Seen, inspect
from randpath.data.dataset import Files, Source
from randpath.errors import DataError, as_typed
from randpath.keyed import rng


def load(
    folder: Path,
    *,
    size: int = 64,
    shape: tuple[int, int, int] | None = None,
    test: float = 0.2,
    skip_bad: bool = False,
    tick: FilesDone | None = None,
) -> Source:
    """The pictures at size x size, or another shape, once every file has been looked at.

    A severe fault stops it; with `skip_bad` the files at fault are left out and listed in `skipped`. Where the folder
    has no test split of its own, the share `test` of each class is drawn for it, the same on every machine.
    """
    tree = scan(Path(folder))
    shape = shape or (size, size, 3)
    faults, seen, small = inspect(tree, tick, shape)
    severe = [fault for fault in faults if fault.severe]
    hopeless = [fault for fault in severe if fault.drop is None]
    if hopeless or (severe and not skip_bad):
        raise _refusal(folder, hopeless or severe, skipping=bool(hopeless))
    dropped = {file for fault in faults for file in fault.drop or ()} if skip_bad else set()
    pictures = [picture for picture in tree.pictures if picture.file not in dropped]
    skipped = [str(fault) for fault in faults if fault.drop or fault.severe] if skip_bad else []
    names = tuple(sorted({picture.label for picture in pictures if picture.split != "test"}))
    if not names:
        raise DataError(f"no picture in {folder} can be used", where=str(folder), next=as_typed("check", folder))
    skipped += [f"{name}: no picture is left" for name in sorted({p.label for p in tree.pictures} - set(names))]
    pictures = [picture for picture in pictures if picture.label in names]
    drawn = _drawn(pictures, test, seen)
    number = {name: i for i, name in enumerate(names)}
    parts = [[p for p in pictures if (p.file in drawn) == wanted] for wanted in (False, True)]
    train, held = (
        Files(
            [tree.root / p.file for p in part],
            np.array([number[p.label] for p in part], np.int64),
            shape,
            [seen[p.file].content for p in part],
        )
        for part in parts
    )
    for data, part in zip((train, held), parts):
        data.remember(small.pop(p.file, None) for p in part)
    digest = hashlib.sha256(repr(names).encode())
    for p in pictures:
        digest.update(repr((p.split, p.label, p.file, seen[p.file].content)).encode())
    return Source(
        "folder",
        train,
        held,
        names,
        mean=(0.485, 0.456, 0.406),  # ImageNet's: a user's first classes say little about the next
        std=(0.229, 0.224, 0.225),
        mirror=True,
        fingerprint=digest.hexdigest(),
        files={p.file: seen[p.file].content for p in pictures},
        skipped=tuple(skipped),
    )


def _drawn(pictures: list[Picture], share: float, seen: dict[str, Seen]) -> set[str]:
    """The files for test: those of the test split, or a share of each class; every class keeps one for training.

    Copies of a picture are one draw: a picture that was trained on is no test.
    """
    if any(picture.split for picture in pictures):
        return {picture.file for picture in pictures if picture.split == "test"}
    by_class: dict[str, dict[str, list[str]]] = {}
    for picture in pictures:
        by_class.setdefault(picture.label, {}).setdefault(seen[picture.file].pixels, []).append(picture.file)
    drawn: set[str] = set()
    for label, copies in by_class.items():
        own = list(copies.values())
        number = min(len(own) - 1, max(1, round(len(own) * share))) if share else 0
        drawn.update(file for i in rng("folder", "test", label).permutation(len(own))[:number] for file in own[i])
    return drawn


def _refusal(folder: Path, faults: list[Fault], *, skipping: bool) -> DataError:
    shown = "\n".join(f"  {fault}" for fault in faults[:20])
    more = f"\n  and {len(faults) - 20} more" if len(faults) > 20 else ""
    return DataError(
        f"{len(faults)} fault{'s' if len(faults) > 1 else ''} in {folder}:\n{shown}{more}\n",
        where=str(folder),
        next=f"mend them (`{as_typed('check', folder)}` lists all)"
        + ("" if skipping else ", or leave them out: --skip-bad"),
    )
