"""MS-Celeb-10K: faces listed as `path label` lines in train.txt and test.txt."""

from pathlib import Path

from randpath.data._files import FilesDone, need, pictures
from randpath.data.dataset import Source
from randpath.errors import DataError


def load(root: Path, size: int = 224, tick: FilesDone | None = None) -> Source:
    """root/ms_celeb with train.txt, test.txt and the pictures they list, relative to that folder."""
    lists = need(
        "ms_celeb",
        root,
        "train.txt",
        "test.txt",
        what="train.txt and test.txt (`path label` lines) and the images",
        offered=False,
    )
    train, test = (read(path) for path in lists)
    labels = {label for _, label in train}
    names = tuple(
        sorted(labels, key=lambda label: (not label.isdecimal(), label.zfill(12) if label.isdecimal() else label))
    )
    unknown = sorted({label for _, label in test} - labels)
    if unknown:
        raise DataError(f"{lists[1]}: label {unknown[0]} does not occur in train.txt", where=str(lists[1]))
    return pictures("ms_celeb", lists[0].parent, train, test, names, size, tick)


def read(path: Path) -> list[tuple[str, str]]:
    """(file, label) of each line; a path may have spaces in it, a label may not."""
    listed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        file, _, label = line.strip().rpartition(" ")
        if not file:
            raise DataError(f"{path}: line {number} is not `path label`: {line!r}", where=str(path))
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise DataError(f"{path}: line {number}: {file} leads out of {path.parent}", where=str(path))
        listed.append((file.strip(), label))
    return listed
