"""SVHN (cropped digits): street numbers of 32 x 32 in ten classes, from the published .mat files."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, need, source
from randpath.data.dataset import Arrays, Source
from randpath.data.download import Remote
from randpath.errors import DataError

REMOTE = (
    Remote(
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794
    ),
    Remote("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64_275_384),
)


def load(root: Path) -> Source:
    """Ten digits from train_32x32.mat and test_32x32.mat in root/svhn; they are 32 x 32 already."""
    train, test = need("svhn", root, "train_32x32.mat", "test_32x32.mat", what="train_32x32.mat and test_32x32.mat")
    return source(
        "svhn",
        read(train),
        read(test),
        tuple(str(c) for c in range(10)),
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        mirror=False,
        paths=[train, test],
    )


def read(path: Path) -> Arrays:
    """X is (32, 32, 3, n); y is 1..10, where 10 means the digit 0."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"]
    except Exception as error:  # scipy's readers raise many kinds on a damaged file
        raise DataError(f"{path.name} cannot be read as the SVHN .mat file: {error}", where=str(path)) from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise DataError(f"{path.name}: X is {images.dtype} {images.shape}, not uint8 (32, 32, 3, n)", where=str(path))
    digits = labels.astype(np.int64).ravel()
    return arrays(np.ascontiguousarray(images.transpose(3, 0, 1, 2)), np.where(digits == 10, 0, digits), 10, path)
