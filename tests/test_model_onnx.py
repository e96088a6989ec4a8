"""Folded, unfolded and ONNX give the same probabilities; the file runs without randpath and torch."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from randpath.data.dataset import Arrays
from randpath.data.decode import decode
from randpath.model.model import Model
from randpath.model.sizing import Plan
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.path import Path as ModulePath

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'randpath[onnx]'")
pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")

ATTENTIONS = ("peak", "mean", "conv", "channel", "none")


@pytest.fixture(scope="module", autouse=True)
def one_table_of_operators() -> Iterator[None]:
    """Torch reads its table of operators anew for each export, a third of the time that one takes: once is enough."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    table = ONNXRegistry.from_torchlib()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", lambda *_, **__: table)
        yield


def shaken(backbone: str, shape: tuple[int, ...], attention: str, width: int, num_classes: int = 7) -> Model:
    """A model with two frozen paths and one on top, every number of it random, as training would leave it."""
    plan = Plan(shape, (0.4,) * shape[-1], (0.3,) * shape[-1], backbone, width, modules=3, threads=1)
    model = Model(plan)
    method = model.method
    method.setting = method.setting.__class__(
        **{**vars(method.setting), "backbone": Backbone(backbone, shape, 3, attention, width)}  # type: ignore[arg-type]
    )
    method.net = method.setting.backbone.build(0)
    method.net.grow_head(num_classes)
    rng = np.random.default_rng(0)
    L = method.net.L
    method.P_fixed, method.P = ModulePath.random(L, 3, rng) | ModulePath.random(L, 3, rng), ModulePath.random(L, 3, rng)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in method.net.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2.0, generator=generator)
            elif tensor.is_floating_point() and ("running_mean" in name or tensor.ndim == 1):
                tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.3)  # some batch-norm scales go negative
        # A deep untrained network answers nearly the same to everything: stretch the head until the answers differ.
        q = method.net.eval()(plan.augment().plain(torch.from_numpy(items(shape, 64))), method.P_ts)
        method.net.head.weight /= q.std(dim=0).mean()
        method.net.head.bias.copy_((method.net.head.bias - q.mean(dim=0)) / q.std(dim=0).mean())
    model.names = [f"class {c}" for c in range(num_classes)]
    model.temperature, model.threshold = 1.7, 0.25
    model._fold_for_answers()
    return model


def items(shape: tuple[int, ...], count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    if len(shape) == 1:
        return rng.normal(size=(count, *shape)).astype(np.float32)
    return rng.integers(0, 256, (count, *shape)).astype(np.uint8)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    ("backbone", "shape", "width", "count"),
    [
        ("mlp", (20,), 16, 1000),
        ("mlp", (8, 8, 1), 16, 1000),
        ("compact", (16, 16, 3), 8, 1000),
        ("resnet18_cifar", (16, 16, 3), 8, 64),
        ("resnet18_imagenet", (33, 33, 3), 8, 64),
    ],
)
def test_folded_unfolded_and_onnx_agree(backbone, shape, width, count, attention):
    from randpath.model.onnx import to_onnx

    model = shaken(backbone, shape, attention, width)
    x = items(shape, count)
    with torch.no_grad():
        net, path = model.method.net.eval(), model.method.P_ts
        plain = model.plan.augment().plain(torch.from_numpy(x))
        unfolded = (net(plain, path) / model.temperature).softmax(dim=1).numpy()
        folded = (fold(net, path)(plain) / model.temperature).softmax(dim=1).numpy()
    np.testing.assert_allclose(folded, unfolded, atol=1e-4)
    assert unfolded.max(axis=1).std() > 0.03  # the answers differ from item to item
    session = onnxruntime.InferenceSession(to_onnx(model))
    for part in (x, x[:1], x[:33]):
        (answer,) = session.run(["probabilities"], {"images": part})
        np.testing.assert_allclose(answer, unfolded[: len(part)], atol=1e-4)
    np.testing.assert_allclose(model.probabilities(Arrays(x, np.zeros(count, np.int64))), unfolded, atol=1e-4)
    named = session.get_modelmeta().custom_metadata_map
    assert json.loads(named["names"]) == model.names
    assert float(named["threshold"]) == 0.25


def test_a_power_is_exported():
    from randpath.model.onnx import to_onnx

    model, x = shaken("mlp", (20,), "none", 16), items((20,), 100)
    plain = model.probabilities(Arrays(x, np.zeros(100, np.int64)))
    model.power, model.doubt = 2.0, 0.05
    expected = model.probabilities(Arrays(x, np.zeros(100, np.int64)))
    assert np.abs(expected - plain).max() > 0.05
    (answer,) = onnxruntime.InferenceSession(to_onnx(model)).run(["probabilities"], {"images": x})
    np.testing.assert_allclose(answer, expected, atol=1e-4)


def test_the_ten_lines_of_the_docs_run_in_a_fresh_process_without_torch(tmp_path):
    from PIL import Image

    from randpath.model.onnx import to_onnx

    model = shaken("compact", (16, 16, 3), "peak", 8)
    (tmp_path / "birds.onnx").write_bytes(to_onnx(model))
    Image.fromarray(items((75, 130, 3), 1)[0]).save(tmp_path / "picture.png")  # four times as large, and wider
    picture = decode((tmp_path / "picture.png").read_bytes(), (16, 16, 3))  # as `predict` sees it
    page = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text()
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    assert len(code.strip().splitlines()) <= 15
    code += "\nimport sys\nassert not {'torch', 'randpath', 'onnx'} & set(sys.modules)\nprint(p.tolist())"
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    said, p = process.stdout.splitlines()
    expected = model.probabilities(Arrays(picture[None], np.zeros(1, np.int64)))[0]
    np.testing.assert_allclose(json.loads(p), expected, atol=1e-4)
    assert said.rsplit(" ", 1)[0] in [*model.names, "unknown"]


def test_a_forged_or_untrained_model_is_not_exported(tmp_path):
    from randpath.commands.app import main

    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path), str(tmp_path / "x.onnx")])
    assert left.value.code == 65
    assert not (tmp_path / "x.onnx").exists()
