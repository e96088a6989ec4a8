"""CIFAR-100: 50,000 + 10,000 images of 32 x 32 in 100 classes, from the binary version (no pickle)."""

from pathlib import Path

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


def load(root: Path) -> Source:
    """The fine labels of train.bin and test.bin in root/cifar100."""
    files = ("train.bin", "test.bin", "fine_label_names.txt")
    train, test, names = need("cifar100", root, *files, what="the contents of cifar-100-binary.tar.gz")
    return source(
        "cifar100",
        arrays(*cifar(train, label_bytes=2), 100, train),  # a coarse label, then the fine one
        arrays(*cifar(test, label_bytes=2), 100, test),
        tuple(names.read_text().split()),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        mirror=True,
        paths=[train, test, names],
    )
