"""Pretrained starts: an ONNX file in, feature vectors out. The only file that imports onnxruntime.

One picture is one run on one thread, so that its bits depend on nothing else: neither on the pictures beside it nor on
the number of cores, which run pictures side by side.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from randpath.data.dataset import Arrays, Dataset
from randpath.data.decode import cover
from randpath.errors import Damaged, DataError, MissingExtra
from randpath.storage import checkpoint

EXTRA = "'randpath[start]'"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's: what most files that do not tell were made with
SIZE = 224  # likewise
MOST_BYTES = 2**31  # of a file: protobuf knows no larger ones
CHUNK = 64  # pictures between two saves


@dataclass(frozen=True)
class Start:
    """A network that turns pictures into feature vectors, and how it wants them."""

    name: str
    sha256: str  # of its file
    licence: str
    size: int  # pictures are size x size
    mean: tuple[float, ...]  # per channel, in 0..1
    std: tuple[float, ...]
    layout: str  # NCHW or NHWC
    num_features: int
    session: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the pictures that it takes."""
        return self.size, self.size, 3

    def vectors(
        self, data: Dataset, *, place: Path | None = None, tick: Callable[[float], object] = lambda done: None
    ) -> Arrays:
        """The features of every picture, (n, d), as float16: what is learned from is what is stored.

        `place` keeps what is computed, by the content of the pictures: nothing is computed twice.
        """
        found: list[np.ndarray] = [np.empty((0, self.num_features), np.float16)]
        chunks = [np.arange(i, min(i + CHUNK, len(data))) for i in range(0, len(data), CHUNK)]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="features") as pool:
            for done, (x, _) in enumerate(data.batches(chunks), start=1):
                found.append(self._chunk(x.numpy(), place, pool))
                tick(done / len(chunks))
        return Arrays(np.concatenate(found), data.labels)

    def _chunk(self, pictures: np.ndarray, place: Path | None, pool: ThreadPoolExecutor) -> np.ndarray:
        contents = hashlib.sha256(repr((self.sha256, pictures.shape)).encode() + pictures.tobytes()).hexdigest()
        if place is not None and (known := _known(place / contents)) is not None:
            return known
        rows = np.concatenate(list(pool.map(self._one, pictures)))
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float16)
        if not np.isfinite(rows).all():
            raise DataError(f"the start {self.name} gives features that are not finite, or beyond 65504")
        if place is not None:
            checkpoint.save(place, contents, {"features": {"items": rows}}, {})
        return rows

    def _one(self, picture: np.ndarray) -> np.ndarray:
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        x = (as_shape(picture, self.shape).astype(np.float32) / 255 - mean) / std
        x = x[None] if self.layout == "NHWC" else x.transpose(2, 0, 1)[None]
        f: np.ndarray = self.session.run(None, {self.session.get_inputs()[0].name: np.ascontiguousarray(x)})[0]
        return f


def as_shape(picture: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """A decoded picture (h, w, 1 or 3) as decoding would have given it at another size, in three channels.

    >>> as_shape(np.zeros((8, 8, 1), np.uint8), (16, 16, 3)).shape
    (16, 16, 3)
    """
    if picture.shape[2] == 1:
        picture = np.repeat(picture, 3, axis=2)
    if picture.shape == shape:
        return picture
    return np.asarray(cover(Image.fromarray(picture), shape[0], shape[1]))


def _known(path: Path) -> np.ndarray | None:
    try:
        items: np.ndarray = checkpoint.load(path).tensors["features"]["items"].numpy()
    except (Damaged, FileNotFoundError, KeyError):
        checkpoint.discard(path)
        return None
    return items


def open_start(data: bytes, name: str = "") -> Start:
    """The network of a .onnx file; what its metadata does not tell is guessed as the module says."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(f"a start needs ONNX Runtime: pip install {EXTRA}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        about = session.get_modelmeta().custom_metadata_map
        shape = session.get_inputs()[0].shape
        layout = about.get("layout") or ("NHWC" if len(shape) == 4 and shape[3] == 3 else "NCHW")
        side = shape[1] if layout == "NHWC" else shape[2]
        size = int(about.get("size") or (side if isinstance(side, int) else SIZE))
        mean, std = (tuple(map(float, json.loads(about.get(key, "null")) or known)) for key, known in _guesses())
        start = Start(
            about.get("name") or name, hashlib.sha256(data).hexdigest(), about.get("licence", "not told"),
            size, mean, std, layout, 0, session,
        )  # fmt: skip
        if layout not in ("NCHW", "NHWC") or not 8 <= size <= 1024 or len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise ValueError(f"size {size}, mean {mean}, std {std}, layout {layout}")
        tried = start._one(np.zeros(start.shape, np.uint8))
    except Exception as error:  # ONNX Runtime raises a dozen kinds
        raise DataError(
            f"{name or 'this file'} is no feature network that ONNX Runtime can run: {str(error)[:300]}",
            where=name,
            next="randpath start efficientnet_lite0 FILE.onnx makes one",
        ) from error
    if tried.ndim != 2 or tried.dtype != np.float32:
        raise DataError(
            f"{name} gives {tried.dtype} of shape {tried.shape}, not float32 vectors (batch, d)", where=name
        )
    return Start(**{**vars(start), "num_features": tried.shape[1]})


def _guesses() -> Iterator[tuple[str, tuple[float, ...]]]:
    yield "mean", MEAN
    yield "std", STD
