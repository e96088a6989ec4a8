"""The model as one ONNX file: pictures in, probabilities out; a run: logits. With pretrained.py, what imports onnx."""

import copy
import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from randpath.bench.load import Run
from randpath.bench.run import answer
from randpath.data.augment import Augment
from randpath.errors import MissingExtra, UsageError, as_typed
from randpath.model.model import Model
from randpath.model.start import kept_file
from randpath.model.stored import encode_label

if TYPE_CHECKING:
    import onnx

OPSET = 20


class Deployed(nn.Module):
    """uint8 images (b, h, w, c), or float32 vectors (b, d), to calibrated probabilities (b, classes)."""

    def __init__(self, model: Model):
        super().__init__()
        self.inference = copy.deepcopy(model.inference).cpu().float()
        self.augment = model.plan.augment()
        self.temperature, self.doubt, self.num_classes = model.temperature, model.doubt, len(model.names)
        self.power = model.power
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        q: Tensor = self.inference(self.augment.plain(images))
        z = (q - q.amax(dim=1, keepdim=True)) / self.temperature
        if self.power is not None:  # as calibration.probabilities has it
            z = -self.power * torch.log1p(-z / self.power)
        return (1 - self.doubt) * torch.softmax(z, dim=1) + self.doubt / self.num_classes


class Answering(nn.Module):
    """uint8 images (b, h, w, c), or float32 vectors (b, d), to a method's logits (b, classes)."""

    def __init__(self, inference: nn.Module, augment: Augment):
        super().__init__()
        self.inference, self.augment = inference.cpu().float(), augment
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        q: Tensor = self.inference(self.augment.plain(images))
        return q


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


def _behind(model: Model, path: "onnx.ModelProto") -> "onnx.ModelProto":
    """Pictures, as the start takes them, the start itself, vectors rounded as they are learned from, the network."""
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper

    start, network = model.start(), onnx.load_from_string(kept_file(*model.start_place()))
    taken, given = network.graph.input[0].name, network.graph.output[0].name
    if [opset.version for opset in network.opset_import if not opset.domain] != [OPSET]:
        network = onnx.version_converter.convert_version(network, OPSET)
    constants = {"whole": 255.0, "mean": start.mean, "std": start.std}
    nodes = [
        helper.make_node("Cast", ["images"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["real", "whole"], ["share"]),
        helper.make_node("Sub", ["share", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["scaled"]),
    ]
    order = [0, 3, 1, 2] if start.layout == "NCHW" else [0, 1, 2, 3]
    nodes.append(helper.make_node("Transpose", ["scaled"], ["normal"], perm=order))
    side = [start.shape[i - 1] for i in order[1:]]
    before = _model(
        nodes,
        helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", *start.shape]),
        helper.make_tensor_value_info("normal", TensorProto.FLOAT, ["batch", *side]),
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    vector: list[str | int | None] = ["batch", start.num_features]
    between = _model(
        [
            helper.make_node("Cast", ["exact"], ["half"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["half"], ["rounded"], to=TensorProto.FLOAT),
        ],
        helper.make_tensor_value_info("exact", TensorProto.FLOAT, vector),
        helper.make_tensor_value_info("rounded", TensorProto.FLOAT, vector),
        [],
    )
    network.ir_version = before.ir_version = between.ir_version = path.ir_version
    for part in (network, path):
        del part.metadata_props[:]
    whole = compose.merge_models(before, network, [("normal", taken)], prefix2="start/")
    whole = compose.merge_models(whole, between, [(f"start/{given}", "exact")])
    whole = compose.merge_models(whole, path, [("rounded", "images")], prefix2="path/")
    whole.graph.output[0].name = "probabilities"
    whole.graph.node.append(helper.make_node("Identity", ["path/probabilities"], ["probabilities"]))
    return whole


def _model(nodes: list[Any], taken: Any, given: Any, constants: list[Any]) -> "onnx.ModelProto":
    from onnx import helper

    graph = helper.make_graph(nodes, "pictures", [taken], [given], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def to_onnx(model: Model) -> bytes:
    """The bytes of a .onnx file with a free batch size, the names and the threshold in its metadata."""
    shape, is_image = model.plan.shape, len(model.plan.shape) == 3
    example = torch.zeros(2, *model.plan.shape, dtype=torch.uint8 if is_image else torch.float32)
    proto = export(Deployed(model), example, "images", "probabilities")
    if model.plan.start is not None:
        shape = model.start().shape
        proto = _behind(model, proto)
    return _described(
        proto,
        {
            "names": json.dumps([encode_label(name) for name in model.names], ensure_ascii=False),
            "threshold": repr(model.threshold),
            "shape": json.dumps(shape),
        },
    )


def run_to_onnx(run: Run) -> bytes:
    """The method of a run as it answers after the last committed task, with the names in the metadata."""
    if not run.lines:
        raise UsageError(
            f"{run.directory} has learned no task yet", where=str(run.directory), next=as_typed("resume", run.directory)
        )
    shape, name = run.source.train.shape, run.experiment.method
    example = torch.zeros(2, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)
    inference = answer(run.method.inference(), run.experiment)
    module = Answering(inference, Augment(run.source.mean, run.source.std))
    try:
        proto = export(module, example, "images", "logits")
    except torch.onnx.errors.OnnxExporterError as error:
        raise UsageError(
            f"the answer of {name} cannot be written as ONNX: torch's exporter knows no way for a step of it",
            where=str(run.directory),
            next="use it in Python: randpath.load_run(DIRECTORY).method.inference() is a torch module",
        ) from error
    names = json.dumps(run.lines[-1]["classes"], ensure_ascii=False)
    return _described(proto, {"names": names, "shape": json.dumps(shape), "method": name})


def _described(proto: "onnx.ModelProto", notes: dict[str, str]) -> bytes:
    """With notes in its metadata, checked, as bytes."""
    for key, value in notes.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    import onnx

    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data
