"""MNIST: 60,000 + 10,000 digits of 28 x 28, brought to 32 x 32 by two black pixels on each side."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, idx, need, source
from randpath.images import Source

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load(root: Path) -> Source:
    """Ten digits from the four idx files, plain or .gz, in root/mnist.

    The paper resizes to 32 x 32 "as in Hsu et al. 2018", whose code pads; padding also leaves every pixel as published.
    """
    paths = need("mnist", root, *FILES, what="the four idx files (train-images-idx3-ubyte.gz, ...)")
    train, train_labels, test, test_labels = (idx(path) for path in paths)
    border = ((0, 0), (2, 2), (2, 2))
    return source(
        "mnist",
        arrays(np.pad(train, border), train_labels, 10, paths[1]),
        arrays(np.pad(test, border), test_labels, 10, paths[3]),
        tuple(str(c) for c in range(10)),
        mean=(0.1000,),
        std=(0.2752,),
        mirror=False,
    )
