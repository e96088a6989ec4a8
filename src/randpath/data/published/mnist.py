"""MNIST: 60,000 + 10,000 digits of 28 x 28, brought to 32 x 32 by two black pixels on each side."""

from pathlib import Path

from randpath.data._files import need, padded, source
from randpath.data.dataset import Source
from randpath.data.download import Remote

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the publisher's own page no longer serves them
REMOTE = (
    Remote(_URL + "train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
    Remote(_URL + "train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
    Remote(_URL + "t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
    Remote(_URL + "t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
)


def load(root: Path) -> Source:
    """Ten digits from the four idx files, plain or .gz, in root/mnist.

    The paper resizes to 32 x 32 "as in Hsu et al. 2018", whose code pads; padding also leaves every pixel as published.
    """
    files = [remote.file.removesuffix(".gz") for remote in REMOTE]
    paths = need("mnist", root, *files, what="the four idx files (train-images-idx3-ubyte.gz, ...)")
    return source(
        "mnist",
        padded(*paths[:2]),
        padded(*paths[2:]),
        tuple(str(c) for c in range(10)),
        mean=(0.1000,),
        std=(0.2752,),
        mirror=False,
        paths=paths,
    )
