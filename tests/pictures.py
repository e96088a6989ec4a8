"""Small pictures for the tests of the data."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.keyed import rng


def pixels(key: int | str, h: int = 8, w: int = 8, c: int = 3) -> np.ndarray:
    """Noise that depends on the key alone."""
    return rng("picture", key).integers(0, 256, (h, w, c), np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str = "png", **options: object) -> bytes:
    file = io.BytesIO()
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    image.save(file, kind, **options)
    return file.getvalue()


def put(path: Path, key: int | str, h: int = 8, w: int = 8) -> Path:
    """A PNG (or what the suffix says) of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {".jpg": "jpeg", ".JPEG": "jpeg"}.get(path.suffix, path.suffix[1:])
    path.write_bytes(encoded(pixels(key, h, w), kind))
    return path
