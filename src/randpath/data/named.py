"""Every dataset by its name: the published ones, folder:PATH for one's own pictures, NAME@START for their features."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from randpath.data import folder
from randpath.data._files import source as source  # for a dataset of one's own
from randpath.data.dataset import Arrays, Source
from randpath.data.download import BytesDone, Remote, fetch
from randpath.data.features import open_start
from randpath.data.published import (
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    imagenet,
    mnist,
    ms_celeb,
    svhn,
    tiny_imagenet,
)
from randpath.errors import DataError, UsageError

DATASETS: dict[str, Callable[..., Source]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "fashion_mnist": fashion_mnist.load,
    "svhn": svhn.load,
    "cifar10": cifar10.load,
    "cifar100": cifar100.load,
    "cifar20": cifar100.load_20,
    "tiny_imagenet": tiny_imagenet.load,
    "imagenet100": imagenet.load_100,
    "imagenet": imagenet.load,
    "ms_celeb": ms_celeb.load,
}
REMOTES: dict[str, Sequence[Remote]] = {
    "mnist": mnist.REMOTE,
    "fashion_mnist": fashion_mnist.REMOTE,
    "svhn": svhn.REMOTE,
    "cifar10": cifar10.REMOTE,
    "cifar100": cifar100.REMOTE,
    "tiny_imagenet": tiny_imagenet.REMOTE,
}


def default_root() -> Path:
    """$RANDPATH_DATA, else ~/.cache/randpath/data; each dataset has a folder of its name in it."""
    given = os.environ.get("RANDPATH_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "randpath" / "data"


def load(
    name: str,
    root: Path | None = None,
    *,
    size: int | None = None,
    skip_bad: bool = False,
    tick: Callable[[int, int], None] | None = None,
) -> Source:
    """The dataset of that name, or "folder:PATH" for your own pictures; the options are for pictures kept as files.

    "NAME@START" has the features of its pictures, by the network in root/start/START.onnx; root/features keeps them.

    >>> load("digits").class_names[:3]
    ('0', '1', '2')
    """
    if "@" in name and not name.startswith("folder:"):
        name, _, network = name.partition("@")
        root = default_root() if root is None else Path(root)
        return _seen_through(load(name, root, size=size, skip_bad=skip_bad, tick=tick), network, root, tick)
    if name.startswith("folder:"):
        path = Path(name.removeprefix("folder:")).expanduser()
        return folder.load(path, size=64 if size is None else size, skip_bad=skip_bad, tick=tick)
    if name not in DATASETS:
        raise UsageError(f"there is no dataset {name!r}; there are {', '.join(DATASETS)} and folder:PATH")
    root = default_root() if root is None else Path(root)
    if name in ("tiny_imagenet", "imagenet100", "imagenet", "ms_celeb"):
        return DATASETS[name](root, tick=tick) if size is None else DATASETS[name](root, size=size, tick=tick)
    if size is not None:
        raise UsageError(f"{name} has a size of its own; leave out size={size}")
    return DATASETS[name](root)


def _seen_through(source: Source, network: str, root: Path, tick: Callable[[int, int], None] | None) -> Source:
    """The vectors of all pictures, scaled to one length, so that no method has to."""
    file = root / "start" / f"{network}.onnx"
    if not file.is_file():
        raise DataError(
            f"the features of {source.name} need {file}, which is not there",
            where=str(file),
            next=f"randpath start {network} {file}",
        )
    start = open_start(file.read_bytes(), network)

    def told(done: float) -> None:
        if tick is not None:
            tick(round(1000 * done), 1000)

    parts = [start.vectors(part, place=root / "features", tick=told) for part in (source.train, source.test)]
    train, test = (Arrays(_of_one_length(part.items), part.labels) for part in parts)
    return replace(
        source,
        name=f"{source.name}@{network}",
        train=train,
        test=test,
        mean=(0.0,),
        std=(1.0,),
        mirror=False,
        fingerprint=hashlib.sha256(f"{source.fingerprint} {start.sha256}".encode()).hexdigest(),
    )


def _of_one_length(items: np.ndarray) -> np.ndarray:
    """|f|^2 = d, as float16.

    >>> _of_one_length(np.array([[3.0, 4.0]], np.float16)).tolist()
    [[0.8486328125, 1.1318359375]]
    """
    f = items.astype(np.float32)
    length = np.linalg.norm(f, axis=1, keepdims=True) / math.sqrt(f.shape[1])
    scaled: np.ndarray = (f / np.maximum(length, 1e-6)).astype(np.float16)
    return scaled


def unlabelled(name: str, shape: tuple[int, ...], root: Path | None = None) -> Arrays:
    """The training pictures of a dataset without their labels, in the size and colours of `shape`.

    >>> unlabelled("digits", (6, 6, 3)).shape
    (6, 6, 3)
    """
    data = load(name, root).train
    if not isinstance(data, Arrays) or len(data.shape) != 3 or len(shape) != 3:
        raise UsageError(f"the items of {name} have shape {data.shape}: they cannot serve beside {shape}")
    items = data.items
    if items.shape[1:3] != shape[:2]:
        items = np.concatenate([_resized(part, shape) for part in np.array_split(items, 1 + len(items) // 4096)])
    if items.shape[3] != shape[2]:
        grey = items.mean(axis=3, keepdims=True).round().astype(np.uint8)
        items = np.repeat(grey, shape[2], axis=3)
    return Arrays(items, np.zeros(len(items), np.int64))


def _resized(items: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    x = torch.from_numpy(items).permute(0, 3, 1, 2).float()
    x = torch.nn.functional.interpolate(x, size=shape[:2], mode="bilinear", antialias=True)
    resized: np.ndarray = x.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return resized


def download(name: str, root: Path | None = None, tick: BytesDone | None = None) -> Path | None:
    """Make dataset `name` loadable and say where it lies; None if it needs no files."""
    if name == "digits":
        return None
    if name not in DATASETS:
        raise UsageError(f"there is no dataset {name!r}; there are {', '.join(DATASETS)}")
    root = default_root() if root is None else Path(root)
    try:
        load(name, root)
    except DataError:
        if name not in REMOTES:  # its licence asks for a form to be signed first; the error says what to put where
            raise
        fetch(REMOTES[name], root / _folder(name), tick)
        load(name, root)
    return root / _folder(name)


def _folder(name: str) -> str:
    """Where the files of a dataset lie: some are a part of another one."""
    return {"imagenet100": "imagenet", "cifar20": "cifar100"}.get(name, name)
