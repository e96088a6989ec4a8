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


def small_network(size: int = 16, metadata: bool = True) -> bytes:
    """A feature network of twelve channels: one convolution, its mean over the picture."""
    import onnx
    from onnx import helper, numpy_helper

    from randpath.model import pretrained

    w = np.random.default_rng(0).normal(size=(12, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
    ]
    proto = helper.make_model(
        helper.make_graph(
            nodes, "small",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, size, size])],
            [helper.make_tensor_value_info("f", onnx.TensorProto.FLOAT, ["batch", 12])],
            [numpy_helper.from_array(w, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 20)], ir_version=9,
    )  # fmt: skip
    if not metadata:
        return bytes(proto.SerializeToString(deterministic=True))
    return bytes(pretrained.described(proto, "small.onnx", size, (0.5,) * 3, (0.25,) * 3, "none", "a test"))
