"""CIFAR-100: 50,000 + 10,000 images of 32 x 32 in 100 classes, from the binary version (no pickle)."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, cifar, need, source
from randpath.data.dataset import Source
from randpath.data.download import Remote

REMOTE = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "md5:03b5dce01913d631647c71ecec9e9cb8",
        168_513_733,
        unpacks="cifar-100-binary",
    ),
)


def load(root: Path, num_classes: int = 100) -> Source:
    """The fine labels of train.bin and test.bin in root/cifar100; the first `num_classes` of them."""
    files = ("train.bin", "test.bin", "fine_label_names.txt")
    train, test, names = need("cifar100", root, *files, what="the contents of cifar-100-binary.tar.gz")
    # a coarse label, then the fine one
    one, two = (arrays(*cifar(file, label_bytes=2), 100, file) for file in (train, test))
    if num_classes < 100:
        one, two = (part.take(np.flatnonzero(part.labels < num_classes)) for part in (one, two))
    return source(
        f"cifar{num_classes}",
        one,
        two,
        tuple(names.read_text().split())[:num_classes],
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        mirror=True,
        paths=[train, test, names],
    )


def load_20(root: Path) -> Source:
    """The first twenty classes: real pictures for experiments that one core can afford."""
    return load(root, 20)
