"""Every method's answer as an ONNX file, by the same command; what cannot be written is refused with a next step."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from randpath.bench.experiment import Experiment
from randpath.bench.load import load_run
from randpath.bench.run import run, steps
from randpath.commands.ask import export as export_command
from randpath.data import named
from randpath.errors import UsageError
from randpath.learning.method import Work
from randpath.learning.train import Training
from randpath.methods import METHODS
from randpath.methods.finetune import FineTune
from randpath.model.onnx import Answering, export
from tests.checks import pictures, setting, tasks

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'randpath[onnx]'")
pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")

TINY = Experiment(
    "digits", (4, 3, 3), recipe="tiny", method="icarl", backbone="mlp", width=16, memory=60, padding=1,
    training=Training(epochs=1, batch=64),
)  # fmt: skip


def check_the_answer_is_the_same_in_onnx(method, sizes):
    for one in tasks(method, sizes):
        method.learn(one, Work())
    images = pictures(range(sum(sizes)), each=4, seed=5).items
    answering = Answering(method.inference(), method.setting.augment)
    proto = export(answering, torch.zeros(2, 8, 8, 1, dtype=torch.uint8), "images", "logits")
    q = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"images": images})[0]
    np.testing.assert_allclose(q, answering(torch.from_numpy(images)).numpy(), rtol=1e-3, atol=1e-4)
    assert q.shape == (len(images), sum(sizes))


@pytest.mark.parametrize("name", METHODS)
def test_the_answer_of_every_method_is_the_same_in_onnx(name):
    method = METHODS[name](setting(), **{"rps": {"N": 1}, "ranpac": {"width": 64}}.get(name, {}))
    check_the_answer_is_the_same_in_onnx(method, (2, 1))


@pytest.mark.parametrize("layers", [None, 1])
def test_lanes_are_the_same_in_onnx(layers):
    s = setting(backbone="compact")
    lanes = replace(s, backbone=replace(s.backbone, join="lanes", attention="none"))
    method = METHODS["rps"](lanes, switch_every=1, start="copy", views=2, open_layers=layers)
    check_the_answer_is_the_same_in_onnx(method, (2, 2, 2))
    assert method.inference().head.num_features == 3 * method.net.num_features


def test_a_run_is_exported_by_the_command_with_its_names(tmp_path, capsys):
    run(TINY, tmp_path / "run")
    assert export_command(tmp_path / "run", tmp_path / "icarl.onnx") == 0
    assert "10 classes" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "icarl.onnx")
    notes = session.get_modelmeta().custom_metadata_map
    loaded = load_run(tmp_path / "run")
    assert json.loads(notes["names"]) == loaded.lines[-1]["classes"]
    assert (json.loads(notes["shape"]), notes["method"]) == ([8, 8, 1], "icarl")
    test = named.load("digits").test
    guess = session.run(None, {"images": test.items})[0].argmax(axis=1)
    assert np.mean(guess == test.labels) == pytest.approx(loaded.accuracy[-1], abs=0.005)


def test_a_run_that_has_learned_nothing_is_not_exported(tmp_path):
    list(zip(range(1), steps(TINY, tmp_path)))
    for name in ("0001", "0002", "0003"):
        place = tmp_path / "checkpoints" / name
        if place.exists():
            place.rename(tmp_path / name)
    with pytest.raises(UsageError, match="has learned no task yet") as refused:
        export_command(tmp_path, tmp_path / "x.onnx")
    assert "resume" in refused.value.next


class Beyond(FineTune):
    """A method of one's own whose answer no exporter can follow."""

    def inference(self):
        inner = super().inference()

        class Reading(torch.nn.Module):
            def forward(self, x):
                q = inner(x)
                return q if float(q.sum()) > 0 else -q

        return Reading()


def test_an_answer_that_cannot_be_written_is_refused_with_a_next_step(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "beyond", Beyond)
    run(replace(TINY, method="beyond", tasks=1), tmp_path / "run")
    with pytest.raises(UsageError, match="beyond cannot be written as ONNX") as refused:
        export_command(tmp_path / "run", tmp_path / "x.onnx")
    assert "load_run" in refused.value.next
    assert refused.value.exit_code == 64
    assert not Path(tmp_path / "x.onnx").exists()
