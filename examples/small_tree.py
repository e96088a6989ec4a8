"""A small tree laid out like ImageNet and MS-Celeb, for `randpath paper large` on a machine that has neither.

    python examples/small_tree.py DIR
    RANDPATH_DATA=DIR randpath paper large

Its pictures are CIFAR-100's: imagenet/train and imagenet/val with a folder of JPEG files for each class, and ms_celeb
with train.txt and test.txt, from other pictures of the same classes. It shows that the recipes run to their end.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.data.dataset import Arrays
from randpath.data.named import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=50, help="training pictures of each class; test pictures: 20")
    given = parser.parse_args()
    source = load("cifar100")
    folder, n = given.folder / "imagenet", given.images
    _write((folder / "train" / name for name in source.class_names), source.train, range(n), ".JPEG")
    _write((folder / "val" / name for name in source.class_names), source.test, range(20), ".JPEG")
    faces = given.folder / "ms_celeb"
    for file, part, numbers in (
        ("train.txt", source.train, range(n, 2 * n)),
        ("test.txt", source.test, range(20, 40)),
    ):
        written = _write((faces / file[:-4] / str(c) for c in range(100)), part, numbers, ".jpg")
        (faces / file).write_text("".join(f"{f.relative_to(faces).as_posix()} {f.parent.name}\n" for f in written))
    print(f"written to {given.folder}; next: RANDPATH_DATA={given.folder} randpath paper large")


def _write(folders: Iterable[Path], part: Arrays, numbers: range, ending: str) -> list[Path]:
    """The pictures of those numbers, of each class into its folder."""
    files = []
    for c, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        for i in np.flatnonzero(part.labels == c)[numbers.start : numbers.stop]:
            files.append(folder / f"{i:05d}{ending}")
            Image.fromarray(part.items[i]).save(files[-1], quality=95)
    return files


if __name__ == "__main__":
    main()
