"""One file a dataset; DATASETS lists them all."""

import os
from collections.abc import Callable
from pathlib import Path

from randpath.data import cifar100, digits, mnist, svhn
from randpath.images import Source

DATASETS: dict[str, Callable[[Path], Source]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "cifar100": cifar100.load,
    "svhn": svhn.load,
}


def default_root() -> Path:
    """$RANDPATH_DATA, else ~/.cache/randpath/data; each dataset has a folder of its name in it."""
    given = os.environ.get("RANDPATH_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "randpath" / "data"


def load(name: str, root: Path | None = None) -> Source:
    """The dataset of that name.

    >>> load("digits").class_names[:3]
    ('0', '1', '2')
    """
    if name not in DATASETS:
        raise ValueError(f"there is no dataset {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name](default_root() if root is None else Path(root))
