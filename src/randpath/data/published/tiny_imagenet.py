"""Tiny-ImageNet: 200 classes, 500 + 50 images each, 64 x 64; its labelled validation images are the test set."""

from pathlib import Path

from randpath.data._files import FilesDone, need, pictures
from randpath.data.dataset import Source
from randpath.data.download import Remote
from randpath.errors import DataError

REMOTE = (
    Remote(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
        248_100_043,
        unpacks="tiny-imagenet-200",
    ),
)


def load(root: Path, size: int = 64, tick: FilesDone | None = None) -> Source:
    """root/tiny_imagenet with wnids.txt, train/CLASS/images/ and val/val_annotations.txt, val/images/."""
    wnids, annotations = need(
        "tiny_imagenet", root, "wnids.txt", "val/val_annotations.txt", what="the contents of tiny-imagenet-200.zip"
    )
    folder = wnids.parent
    names = tuple(sorted(wnids.read_text().split()))
    train = [
        (file.relative_to(folder).as_posix(), c)
        for c in names
        for file in sorted((folder / "train" / c / "images").glob("*.JPEG"))
    ]
    test = []
    for number, line in enumerate(annotations.read_text().splitlines(), 1):
        file, label, *_ = [*line.split("\t"), "", ""]
        if label not in names:
            raise DataError(
                f"{annotations}: line {number}: class {label!r} is not in wnids.txt", where=str(annotations)
            )
        test.append((f"val/images/{file}", label))
    return pictures("tiny_imagenet", folder, train, test, names, size, tick)
