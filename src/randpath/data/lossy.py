"""Pictures as small lossy files, for a memory that is counted in bytes."""

import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.data.dataset import Arrays, Dataset, Files, Joined
from randpath.data.decode import webp_size


def compressed(data: Dataset, quality: int, most: float = math.inf) -> Dataset:
    """The first pictures of `data` as WebP files, as many as `most` bytes hold; what is one already stays as it is.

    So do feature vectors.

    >>> noise = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3)).astype(np.uint8)
    >>> kept = compressed(Arrays(noise, np.arange(9)), 50, 5000)
    >>> 0 < sum(item_sizes(kept)) <= 5000, kept.labels.tolist() == list(range(len(kept)))
    (True, True)
    """
    if len(data.shape) != 3:
        return data
    h, w, c = data.shape
    items: list[Path | bytes] = []
    left = most
    for item in _files(data, quality):
        left -= len(item)
        if left < 0:
            break
        items.append(item)
    return Files(items, data.labels[: len(items)], (h, w, c))


def _files(data: Dataset, quality: int) -> Iterator[bytes]:
    if isinstance(data, Joined):
        for part in data.parts:
            yield from _files(part, quality)
        return
    for start in range(0, len(data), 64):
        chunk = range(start, min(start + 64, len(data)))
        kept = [_if_lossy(data, i) for i in chunk]
        others = [i for i, item in zip(chunk, kept) if item is None]
        made = iter(_encoded(data.take(np.array(others)), quality) if others else ())
        yield from (next(made) if item is None else item for item in kept)


def _encoded(data: Dataset, quality: int) -> list[bytes]:
    files = []
    x, _ = next(iter(data.batches([np.arange(len(data))])))
    for pixels in x.numpy():
        file = BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "webp", quality=quality)
        files.append(file.getvalue())
    return files


def _if_lossy(data: Dataset, i: int) -> bytes | None:
    """The file of an item if `compressed` has made it: a WebP of the data's own size, not a user's larger one."""
    item = data.item(i) if isinstance(data, Files) else None
    if isinstance(item, bytes) and item[8:12] == b"WEBP" and webp_size(item) == (data.shape[1], data.shape[0]):
        return item
    return None


def any_lossy(data: Dataset) -> bool:
    """Whether a file of it is one that `compressed` has made."""
    if isinstance(data, Joined):
        return any(map(any_lossy, data.parts))
    return any(_if_lossy(data, i) for i in range(len(data)))


def item_sizes(data: Dataset) -> list[int]:
    """Bytes of each item as it is stored, without its label."""
    if isinstance(data, Joined):
        return [size for part in data.parts for size in item_sizes(part)]
    if isinstance(data, Files):
        return [len(item) for item in map(data.self_contained().item, range(len(data))) if isinstance(item, bytes)]
    assert isinstance(data, Arrays)
    return [data.items[0].nbytes] * len(data) if len(data) else []
