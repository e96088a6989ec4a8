"""The model as one ONNX file: pictures in, probabilities out. With model/pretrained.py, what imports onnx."""

import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from randpath.errors import MissingExtra
from randpath.model.model import Model
from randpath.model.stored import encode_label

if TYPE_CHECKING:
    import onnx

OPSET = 20


class Deployed(nn.Module):
    """uint8 images (b, h, w, c), or float32 vectors (b, d), to calibrated probabilities (b, classes)."""

    def __init__(self, model: Model):
        super().__init__()
        self.inference = model.method.inference().cpu().float()
        self.augment = model.plan.augment()
        self.temperature, self.doubt, self.num_classes = model.temperature, model.doubt, len(model.names)
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        q: Tensor = self.inference(self.augment.plain(images))
        return (1 - self.doubt) * torch.softmax(q / self.temperature, dim=1) + self.doubt / self.num_classes


def export(module: nn.Module, example: Tensor, taken: str, given: str) -> "onnx.ModelProto":
    """A module as ONNX, with a free batch size, the names of what it takes and gives, and no trace of where it ran."""
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ImportError as error:
        raise MissingExtra("export needs onnx and onnxscript: pip install 'randpath[onnx]'") from error
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own future
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            module, (example,), file, dynamo=True, verbose=False, opset_version=OPSET, external_data=False,
            input_names=[taken], output_names=[given], dynamic_shapes=({0: torch.export.Dim("batch")},),
        )  # fmt: skip
        proto: onnx.ModelProto = onnx.load(file)
    for node in proto.graph.node:  # the exporter notes the lines of source behind each
        node.ClearField("metadata_props")
    return proto


def to_onnx(model: Model) -> bytes:
    """The bytes of a .onnx file with a free batch size, the names and the threshold in its metadata."""
    is_image = len(model.plan.shape) == 3
    example = torch.zeros(2, *model.plan.shape, dtype=torch.uint8 if is_image else torch.float32)
    proto = export(Deployed(model), example, "images", "probabilities")
    described = {
        "names": json.dumps([encode_label(name) for name in model.names], ensure_ascii=False),
        "threshold": repr(model.threshold),
        "shape": json.dumps(model.plan.shape),
    }
    for key, value in described.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    import onnx

    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data
