"""Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28 x 28, brought to 32 x 32 like MNIST."""

from pathlib import Path

from randpath.data._files import need, padded, source
from randpath.data.dataset import Source
from randpath.data.download import Remote

_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
REMOTE = (
    Remote(_URL + "train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
    Remote(_URL + "train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe", 29_515),
    Remote(_URL + "t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79", 4_422_102),
    Remote(_URL + "t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310", 5_148),
)
NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def load(root: Path) -> Source:
    """Ten classes from the four idx files, plain or .gz, in root/fashion_mnist."""
    files = [remote.file.removesuffix(".gz") for remote in REMOTE]
    paths = need("fashion_mnist", root, *files, what="the four idx files (train-images-idx3-ubyte.gz, ...)")
    return source(
        "fashion_mnist",
        padded(*paths[:2]),
        padded(*paths[2:]),
        NAMES,
        mean=(0.2190,),
        std=(0.3318,),
        mirror=True,
        paths=paths,
    )
