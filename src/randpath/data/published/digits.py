"""Scikit-learn's handwritten digits: 1,797 images of 8 x 8, no download; a fixed quarter of each class is for test."""

from pathlib import Path

import numpy as np

from randpath.data._files import arrays, source
from randpath.data.dataset import Source
from randpath.keyed import rng


def load(root: Path) -> Source:
    """The ten digits; `root` is not needed.

    >>> digits = load(Path())
    >>> len(digits.train), len(digits.test), digits.train.shape
    (1347, 450, (8, 8, 1))
    """
    from sklearn.datasets import load_digits  # a second of import, only for those who use it

    images, labels = load_digits(return_X_y=True)
    pixels = np.round(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    test = np.zeros(len(labels), bool)
    for c in range(10):
        own = np.flatnonzero(labels == c)
        test[rng("digits", "test", c).permutation(own)[: round(len(own) / 4)]] = True
    return source(
        "digits",
        arrays(pixels[~test], labels[~test], 10, Path("digits")),
        arrays(pixels[test], labels[test], 10, Path("digits")),
        tuple(str(c) for c in range(10)),
        mean=(0.3043,),
        std=(0.3757,),
        mirror=False,
    )
