"""CIFAR-100: 50,000 + 10,000 images of 32 x 32 in 100 classes, from the binary version (no pickle)."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, need, source
from randpath.images import Arrays, DataError, Source


def load(root: Path) -> Source:
    """The fine labels of train.bin and test.bin in root/cifar100."""
    files = ("train.bin", "test.bin", "fine_label_names.txt")
    train, test, names = need("cifar100", root, *files, what="the contents of cifar-100-binary.tar.gz")
    return source(
        "cifar100",
        read(train),
        read(test),
        tuple(names.read_text().split()),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        mirror=True,
    )


def read(path: Path) -> Arrays:
    """Records of a coarse label, a fine label and 3 x 32 x 32 bytes."""
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % 3074:
        raise DataError(f"{path.name} is not made of records of 3,074 bytes", where=str(path))
    records = raw.reshape(-1, 3074)
    images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return arrays(np.ascontiguousarray(images), records[:, 1], 100, path)
