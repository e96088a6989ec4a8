"""mirror=true: a run answers with the mean over a picture and its mirror image, and is exported so."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from randpath.bench.experiment import Experiment
from randpath.bench.load import load_run
from randpath.bench.run import run
from randpath.errors import UsageError
from randpath.learning.train import Training
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.mirrored import Mirrored
from randpath.network.path import Path


def folder(place):
    """Two classes of small photographs, told apart by where they are bright."""
    draw = np.random.default_rng(0)
    for c, name in enumerate(("left", "top")):
        (place / name).mkdir(parents=True)
        for i in range(24):
            pixels = draw.integers(0, 120, (16, 16, 3))
            pixels[(slice(None), slice(8)) if c == 0 else (slice(8), slice(None))] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(place / name / f"{i}.png")
    return Experiment(
        f"folder:{place}", 2, recipe="tiny", backbone="compact", width=8, modules=2, memory=16, size=16,
        training=Training(epochs=1, batch=8), options={"N": 1},
    )  # fmt: skip


def test_it_is_the_mean_of_both_and_the_same_for_a_picture_and_its_mirror_image():
    net = Backbone("compact", (16, 16, 3), 2, "peak", 8).build(0)
    net.grow_head(3)
    folded = fold(net, Path.full(net.L, 2))
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    q = Mirrored(folded)(x)
    assert torch.equal(q, (folded(x) + folded(x.flip(3))) / 2)
    assert torch.allclose(q, Mirrored(folded)(x.flip(3)), atol=1e-6)
    assert not torch.allclose(q, folded(x), atol=1e-4)


def test_a_run_is_judged_so_learns_the_same_and_costs_twice_as_much(tmp_path):
    plain = folder(tmp_path / "data")
    run(plain, tmp_path / "plain")
    run(replace(plain, mirror=True), tmp_path / "mirror")
    a, b = load_run(tmp_path / "plain"), load_run(tmp_path / "mirror")
    assert [line["flops"] for line in b.lines] == [2 * line["flops"] for line in a.lines]
    assert [line["parameters"] for line in b.lines] == [line["parameters"] for line in a.lines]
    assert (tmp_path / "plain" / "epochs.jsonl").read_bytes() == (tmp_path / "mirror" / "epochs.jsonl").read_bytes()
    confidence = [loaded.predictions()["confidence"] for loaded in (a, b)]
    assert not np.allclose(*confidence, atol=1e-6)


def test_of_several_networks_it_is_told_what_fewer_would_have_answered(tmp_path):
    plain = replace(folder(tmp_path / "data"), mirror=True)
    run(plain, tmp_path / "one")
    run(replace(plain, members=2), tmp_path / "two")
    alone = [line["own"]["network 1 alone"] for line in load_run(tmp_path / "two").lines]
    assert alone == load_run(tmp_path / "one").accuracy


def test_onnx_agrees(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'randpath[onnx]'")
    pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
    from randpath.model.onnx import run_to_onnx

    run(replace(folder(tmp_path / "data"), mirror=True), tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    session = onnxruntime.InferenceSession(run_to_onnx(loaded))
    images = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    q, mirrored = (session.run(None, {"images": x})[0] for x in (images, np.ascontiguousarray(images[:, :, ::-1])))
    np.testing.assert_allclose(q, mirrored, rtol=1e-4, atol=1e-5)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (loaded.source.mean, loaded.source.std))
    expected = Mirrored(loaded.method.inference())((x - mean) / std).numpy()
    np.testing.assert_allclose(q, expected, rtol=1e-3, atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["names"]) == ["left", "top"]


def test_it_is_refused_where_a_mirror_image_is_another_thing(tmp_path):
    with pytest.raises(UsageError, match="a mirrored item of digits is not one of its class"):
        run(Experiment("digits", 5, mirror=True), tmp_path)
    assert not list(tmp_path.iterdir())
