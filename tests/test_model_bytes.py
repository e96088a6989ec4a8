"""`learn --budget 6MB`: as many exemplars as fit, as lossy files; on real pictures where they are on this machine."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.data.lossy import any_lossy, item_sizes
from randpath.model.classifier import PathClassifier
from randpath.model.model import Model
from randpath.storage import checkpoint
from tests.commands import interrupt, run, run_json
from tests.test_commands_learn import Pictures, png_folder, tree

LIMIT = 60_000  # bytes: about twenty raw pictures of CIFAR


@pytest.fixture(scope="module")
def pictures(real_data) -> Pictures:
    source = named.load("cifar100", real_data("cifar100"))
    assert isinstance(source.train, Arrays)
    return source.train, source.class_names


def stored(model: Path) -> Model:
    return PathClassifier.load(model)._model


def used(model: Path) -> int:
    return sum(sum(item_sizes(part)) for part in stored(model).method.memory.exemplars())


def in_files(model: Path) -> int:
    """Bytes of pictures in the newest version's own files."""
    newest = max((model / "versions").iterdir(), key=lambda place: int(place.name))
    parts = [checkpoint.read_tensors(file) for file in newest.glob("memory_*.safetensors")]
    return sum(len(part["blob"]) for part in parts)


@pytest.fixture(scope="module")
def grown(pictures, tmp_path_factory) -> Path:
    """Three classes of sixty, then two more, in 60 kB."""
    place = tmp_path_factory.mktemp("bytes")
    png_folder(place / "three", pictures, range(3), 60)
    png_folder(place / "two", pictures, range(3, 5), 60)
    run("learn", place / "model", place / "three", "--epochs", 1, "--threads", 1, "--budget", "60kB")
    (place / "first").write_text(str(used(place / "model")))
    run("learn", place / "model", place / "two", "--epochs", 1, "--threads", 1)  # the budget stays
    return place


def test_it_holds_several_times_as_many_pictures_within_its_bytes(grown):
    model = stored(grown / "model")
    assert model.plan.budget == "60kB"
    assert int((grown / "first").read_text()) <= LIMIT
    assert 0.9 * LIMIT < used(grown / "model") == in_files(grown / "model") <= LIMIT
    counts = [len(part) for part in model.method.memory.train.values()]
    assert len(counts) == 5 and max(counts) - min(counts) <= 1
    assert len(model.method.memory) > 2 * LIMIT / (32 * 32 * 3)
    assert model.method.memory.val  # a tenth is for validation
    assert any(map(any_lossy, model.method.memory.exemplars()))


def test_info_and_the_report_tell_it(grown, tmp_path):
    said = run("info", grown / "model")
    count = len(stored(grown / "model").method.memory)
    assert f"{count} training pictures are stored inside, in at most 60kB" in said
    run("report", grown / "model", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "in at most 60kB are stored" in page
    assert "data:image/" in page


def test_it_survives_rollback_redo_and_forget(grown, pictures, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(grown / "model", model)
    before = used(model)
    run("rollback", model)
    assert used(model) == int((grown / "first").read_text())
    run("redo", model)
    assert (used(model), stored(model).plan.budget) == (before, "60kB")
    run("forget", model, pictures[1][0])
    assert 0 < used(model) < before


def test_the_same_pictures_again_are_known_though_the_memory_holds_lossy_copies(grown, tmp_path):
    """None is kept twice, and none that is held out is trained on."""
    model = tmp_path / "model"
    shutil.copytree(grown / "model", model)
    held = {c: {bytes(x) for x in _pixels(part)} for c, part in stored(model).method.memory.val.items()}
    run("learn", model, grown / "two", "--epochs", 1)
    memory = stored(model).method.memory
    for c, part in memory.train.items():
        kept = [bytes(x) for x in _pixels(part)]
        assert len(kept) == len(set(kept))
        assert not held.get(c, set()) & set(kept)
    assert used(model) <= LIMIT


def _pixels(data) -> np.ndarray:
    (x, _) = next(iter(data.batches([np.arange(len(data))])))
    return x.numpy()


def test_an_interrupted_learn_ends_the_same(grown, tmp_path, monkeypatch):
    options = ("--epochs", 2, "--threads", 1, "--budget", "60kB")
    with monkeypatch.context() as patched:
        interrupt(patched, 8, signal.SIGINT)
        run_json("learn", tmp_path / "stopped", grown / "three", *options, code=130)
    assert (tmp_path / "stopped" / "work").exists()
    run("learn", tmp_path / "stopped", grown / "three", *options)
    run("learn", tmp_path / "straight", grown / "three", *options)
    assert tree(tmp_path / "stopped") == tree(tmp_path / "straight")


def test_a_number_may_become_a_size_and_back(grown, tmp_path):
    model = tmp_path / "model"
    run("learn", model, grown / "three", "--epochs", 1, "--budget", 30)
    assert len(stored(model).method.memory) <= 30
    run("learn", model, grown / "two", "--epochs", 1, "--budget", "60kB")
    assert used(model) <= LIMIT
    run("learn", model, grown / "two", "--epochs", 1, "--budget", 25)
    assert len(stored(model).method.memory) <= 25


@pytest.mark.parametrize("wrong", ["6 megabytes", "MB", "-1MB", "many"])
def test_what_is_no_size_is_refused_before_anything(grown, tmp_path, wrong):
    told = run_json("learn", tmp_path / "model", grown / "three", f"--budget={wrong}", code=64)
    assert "--budget must be a whole number of at least 0, or a size such as 6MB" in told["error"]
    assert not (tmp_path / "model").exists()


def test_a_size_that_cannot_hold_one_picture_of_each_class_is_refused_and_nothing_changes(grown, tmp_path):
    told = run_json("learn", tmp_path / "model", grown / "three", "--budget", "100B", code=64)
    assert told["error"].startswith("a memory of 100 bytes cannot hold one picture of each of 3 classes")


def test_in_python(tmp_path):
    draw = np.random.default_rng(0)
    X, y = draw.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8), ["a", "b"] * 30
    model = PathClassifier(budget="9kB", epochs=1, threads=1, width=8).fit(X, y)
    model.save(tmp_path / "model")
    again = PathClassifier.load(tmp_path / "model")
    assert again.get_params()["budget"] == "9kB"
    assert json.loads(json.dumps(again._model.state()[1]))["plan"]["budget"] == "9kB"
    assert 0 < used(tmp_path / "model") <= 9000
    again.partial_fit(X[:20], ["c"] * 20)
    assert sum(sum(item_sizes(part)) for part in again._model.method.memory.exemplars()) <= 9000
    with pytest.raises(
        ValueError, match='budget must be a whole number from 0 to 1,000,000,000 or a size such as "6MB"'
    ):
        PathClassifier(budget="9 of them", epochs=1).fit(X, y)
    vectors = PathClassifier(budget="1kB", epochs=1, threads=1, width=8).fit(draw.normal(size=(60, 5)), y)
    assert sum(map(len, vectors._model.method.memory.exemplars())) <= 1000 // 20
