"""Pictures as small lossy files, for a memory that is counted in bytes."""

import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.data.dataset import Arrays, Dataset, Files, Joined


def compressed(data: Dataset, quality: int, most: float = math.inf) -> Dataset:
    """The first pictures of `data` as WebP files, as many as `most` bytes hold; feature vectors stay as they are.

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
    chunks = (np.arange(i, min(i + 64, len(data))) for i in range(0, len(data), 64))
    for x, _ in data.batches(chunks):
        for pixels in x.numpy():
            file = BytesIO()
            Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "webp", quality=quality)
            yield file.getvalue()


def any_lossy(data: Dataset) -> bool:
    """Whether a file of it may be one that `compressed` has made: a WebP."""
    if isinstance(data, Joined):
        return any(map(any_lossy, data.parts))
    items = map(data.item, range(len(data))) if isinstance(data, Files) else ()
    return any(isinstance(item, bytes) and item[8:12] == b"WEBP" for item in items)


def item_sizes(data: Dataset) -> list[int]:
    """Bytes of each item as it is stored, without its label."""
    if isinstance(data, Joined):
        return [size for part in data.parts for size in item_sizes(part)]
    if isinstance(data, Files):
        return [len(item) for item in map(data.self_contained().item, range(len(data))) if isinstance(item, bytes)]
    assert isinstance(data, Arrays)
    return [data.items[0].nbytes] * len(data) if len(data) else []
