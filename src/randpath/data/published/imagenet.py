"""ImageNet (ILSVRC 2012): train/ and val/ with one folder a class; all 1,000 classes or iCaRL's hundred."""

from pathlib import Path

import numpy as np

from randpath.data._files import FilesDone, in_class_folders, pictures
from randpath.data.dataset import Source
from randpath.errors import DataError


def load(root: Path, size: int = 224, tick: FilesDone | None = None) -> Source:
    """All classes of root/imagenet; the validation images are the test set, as in every paper."""
    return _load("imagenet", root, None, size, tick)


def load_100(root: Path, size: int = 224, tick: FilesDone | None = None) -> Source:
    """The first hundred of `RandomState(1993).permutation(1000)`, in that order: ImageNet-100 (iCaRL).

    The permutation numbers the classes by their sorted names, as iCaRL's successors do; a file classes.txt (one name a
    line, in the order of the devkit) makes it iCaRL's own numbering.
    """
    return _load("imagenet100", root, 100, size, tick)


def _load(name: str, root: Path, number: int | None, size: int, tick: FilesDone | None) -> Source:
    folder = root / "imagenet"
    train, test = in_class_folders(name, folder, "train"), in_class_folders(name, folder, "val")
    if not test:
        raise DataError(
            f"{name}: {folder / 'val'} has no class folders",
            where=str(folder),
            next="move each validation image into the folder of its class, named like those of train/",
        )
    listed = folder / "classes.txt"
    names = listed.read_text().split() if listed.is_file() else sorted({c for _, c in train})
    if number is not None:
        names = [names[i] for i in np.random.RandomState(1993).permutation(len(names))[:number]]
    unknown = sorted(set(names) - {c for _, c in train})
    if unknown:
        raise DataError(f"{name}: no training images of {', '.join(unknown[:5])}", where=str(folder))
    wanted = set(names)
    train, test = ([(file, c) for file, c in part if c in wanted] for part in (train, test))
    return pictures(name, folder, train, test, tuple(names), size, tick)
