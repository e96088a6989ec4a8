"""CIFAR-10: 50,000 + 10,000 images of 32 x 32 in ten classes, from the binary version (no pickle)."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, cifar, need, source
from randpath.data.dataset import Source
from randpath.data.download import Remote

REMOTE = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        170_052_171,
        unpacks="cifar-10-batches-bin",
    ),
)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(root: Path) -> Source:
    """The five training batches and the test batch in root/cifar10."""
    files = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    paths = need("cifar10", root, *files, what="the contents of cifar-10-binary.tar.gz")
    images, labels = zip(*(cifar(path, label_bytes=1) for path in paths))
    return source(
        "cifar10",
        arrays(np.concatenate(images[:5]), np.concatenate(labels[:5]), 10, paths[0]),
        arrays(images[5], labels[5], 10, paths[5]),
        NAMES,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        mirror=True,
        paths=paths,
    )
