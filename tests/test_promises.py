"""Ten ways in which a promise was once broken (issue 15), each by combining two harmless things."""

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from randpath.data import decode
from randpath.errors import Stopped
from randpath.model import versions
from randpath.model.classifier import PathClassifier
from randpath.model.model import Model
from randpath.storage import inside
from tests.commands import interrupt, ran, run, run_json
from tests.pictures import pixels, put
from tests.school import learn, pictures, tiny, two_versions

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _tiny():
    with tiny():
        yield


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    return two_versions(tmp_path_factory.mktemp("two"))


@pytest.fixture
def model(two, tmp_path) -> Path:
    return Path(shutil.copytree(two / "model", tmp_path / "model"))


def classes(model: Path) -> list[str]:
    found: list[str] = run_json("info", model)["classes"]
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stopped(monkeypatch, *typed: object) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, 2, signal.SIGINT)
        assert run_json("learn", *typed, "--epochs", 2, code=130)["error"] == "interrupted"


# ---- 1


@pytest.mark.parametrize("between", [("rename", "a", "z"), ("rollback",)])
def test_unfinished_work_belongs_to_the_version_it_began_from(model, tmp_path, monkeypatch, between):
    folder = pictures(tmp_path / "d", "d")
    stopped(monkeypatch, model, folder)
    assert list((model / "work").iterdir())
    run(between[0], model, *between[1:])
    known = classes(model)
    assert "d" not in known
    assert learn(model, folder)["version"] == 4
    assert classes(model) == [*known, "d"]


def test_a_learn_that_died_after_its_commit_is_told_and_not_done_again(model, two, monkeypatch):
    whole = files(model / "versions" / "000002")
    shutil.rmtree(model / "versions" / "000002")
    (model / "current.json").write_text('{"version": 1}\n')

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(versions, "finish", dies)
        assert ran("learn", model, two / "c", "--epochs", 2).returncode == 130
    assert list((model / "work").iterdir())
    assert learn(model, two / "c")["version"] == 2
    assert versions.kept(model) == [1, 2]
    assert not (model / "work").exists()
    assert files(model / "versions" / "000002") == whole


# ---- 2 and 8


@pytest.mark.parametrize(
    "pointer", [None, b"", b"\0\0", b'{"version": 1}', b'{"version": 7}', b'{"version": "x"}', b"[]"]
)
def test_the_pointer_is_a_hint_and_the_versions_are_the_truth(model, tmp_path, pointer):
    before = files(model / "versions")
    if pointer is None:
        (model / "current.json").unlink()
    else:
        (model / "current.json").write_bytes(pointer)
    said = ran("info", model, "--json")
    assert (said.returncode, json.loads(said.stdout)["version"]) == (0, 2)
    lags = pointer == b'{"version": 1}'  # as if its writer had died before it
    assert ("Version 2 is used, the newest" in said.stderr) == (not lags)
    assert learn(model, pictures(tmp_path / "d", "d"))["version"] == 3
    assert before.items() <= files(model / "versions").items()
    assert classes(model) == ["a", "b", "c", "d"]
    assert ran("info", model).stderr == ""


def test_a_model_without_a_version_is_not_begun_afresh(model, tmp_path):
    shutil.rmtree(model / "versions")
    assert "no version is left" in learn(model, pictures(tmp_path / "d", "d"), code=65)["error"]


# ---- 3


@pytest.mark.parametrize("name", ["work", "versions", "lock", "lock.json", "current.json", ".tmp-current.json"])
@pytest.mark.parametrize("command", ["learn", "rename", "rollback"])
def test_a_link_in_a_model_harms_nobody(model, tmp_path, name, command):
    theirs = tmp_path / "theirs"
    put(theirs / "holiday" / "1.png", 1)
    (theirs / "000001").mkdir()
    (theirs / ".tmp-note").write_text("mine")
    before, place = files(theirs), model / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    place.symlink_to(theirs if name in ("work", "versions") else theirs / ".tmp-note")
    more = {"learn": (pictures(tmp_path / "d", "d"),), "rename": ("a", "z"), "rollback": ()}[command]
    done = ran(command, model, *more, "--json")
    assert done.returncode in (0, 65), done
    assert (files(theirs), (theirs / "000001").is_dir()) == (before, True)


def test_the_same_where_a_system_has_no_descriptors_and_no_hard_links(model, tmp_path, monkeypatch):
    monkeypatch.setattr(inside, "RELATIVE", False)
    monkeypatch.delattr(os, "link")
    learn(model, pictures(tmp_path / "d", "d"))
    run("rename", model, "a", "z")
    run("rollback", model)
    assert classes(model) == ["a", "b", "c", "d"]
    run("redo", model)
    assert classes(model) == ["z", "b", "c", "d"]
    (model / "work").symlink_to(tmp_path)
    assert "is a link" in run("rollback", model, code=65)


# ---- 6


def test_pictures_that_change_while_they_are_learned_do_not_enter_the_memory(model, tmp_path, monkeypatch):
    folder = pictures(tmp_path / "d", "d", "e")
    before, changed, taught = files(model / "versions"), [], Model._taught

    def overwrite(*args):
        changed.extend(put(folder / "d" / f"{i}.png", f"other {i}") for i in range(4))
        return taught(*args)

    with monkeypatch.context() as patched:
        patched.setattr(Model, "_taught", overwrite)
        told = learn(model, folder, code=65)
    assert "has changed since it was checked" in told["error"]
    assert (len(changed), files(model / "versions")) == (4, before)
    assert learn(model, folder)["version"] == 3
    memory = Model.restore(versions.load(model, 3)).method.memory
    pixels_of_d = [x.numpy().tobytes() for x, _ in memory.train[3].batches([np.array([0]), np.array([1])])]
    assert set(pixels_of_d) <= {pixels(f"other {i}").tobytes() for i in range(4)}


# ---- 7


def test_kept_versions_share_no_file(model):
    for i in range(3):
        run("rename", model, "a" if not i else f"a{i}", f"a{i + 1}")
    run("rollback", model)
    numbers = [path.stat().st_ino for path in (model / "versions").rglob("*") if path.is_file()]
    assert len(set(numbers)) == len(numbers)
    newest = versions.place(model, versions.current(model)) / "weights.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    with newest.open("r+b") as file:  # in place, as a bad disk does it
        file.write(data)
    said = ran("info", model, "--json")
    assert (said.returncode, "is damaged" in said.stderr) == (0, True)


# ---- 9


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\u202eb", "", "  ", "x" * 256, "two\nlines", "\ud800"])
def test_what_is_no_name_is_refused(model, name):
    told = run_json("rename", model, "a", name, code=64)
    assert "no name for a class" in told["error"]
    assert told["error"].isprintable()
    assert classes(model) == ["a", "b", "c"]


def test_names_are_compared_and_kept_in_one_form(model, tmp_path):
    composed, typed = "caf\u00e9", "cafe\u0301"
    run("rename", model, "a", typed)
    assert classes(model)[0] == composed
    assert "a class already" in run("rename", model, "b", composed, code=64)
    run("rename", model, typed, "z")
    run("rename", model, "z", composed)
    learn(model, pictures(tmp_path / "more", typed, start=10))
    assert classes(model) == [composed, "b", "c"]


def test_rename_of_a_newer_format_is_refused(model):
    from tests.test_model_hostile import document

    document("format", value=2)(model)
    shutil.rmtree(model / "versions" / "000001")
    before = files(model / "versions")
    assert "format 2" in run_json("rename", model, "a", "z", code=65)["error"]
    assert files(model / "versions") == before


def test_rename_costs_no_version_that_could_be_rolled_back_to(model, tmp_path):
    learn(model, pictures(tmp_path / "d", "d"))
    run("rename", model, "a", "z")
    seen = [classes(model)]
    for _ in range(3):
        run("rollback", model)
        seen.append(classes(model))
    assert seen == [["z", "b", "c", "d"], ["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b"]]
    for known in reversed(seen[:-1]):
        run("redo", model)
        assert classes(model) == known
    assert "nothing was undone" in run("redo", model, code=65)


def test_a_refused_redo_changes_nothing(model):
    weights = versions.place(model, 2) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    before = files(model)
    assert "nothing was undone" in run("redo", model, code=65)
    assert {**files(model), "lock.json": b""} == {**before, "lock.json": b""}


# ---- 10


def test_a_model_inside_of_its_pictures_is_refused_and_leaves_nothing(tmp_path):
    folder = pictures(tmp_path / "d", "d")
    before = files(folder)
    assert "lies inside of" in learn(folder / "model", folder, code=64)["error"]
    assert files(folder) == before
    assert not (folder / "model").exists()


def test_a_refused_learn_leaves_no_directory(tmp_path):
    (tmp_path / "empty").mkdir()
    learn(tmp_path / "model", tmp_path / "empty", code=65)
    assert not (tmp_path / "model").exists()


def test_export_replaces_no_device(model, tmp_path):
    pytest.importorskip("onnxscript")
    os.mkfifo(tmp_path / "x.onnx")
    assert "not a regular file" in run("export", model, tmp_path / "x.onnx", code=64)


# ---- models of older releases


@pytest.mark.parametrize("release", [path.name for path in sorted(GOLDEN.glob("model-*"))])
def test_a_model_of_an_older_release_loads_learns_and_rolls_back(tmp_path, release):
    model = Path(shutil.copytree(GOLDEN / release, tmp_path / "model"))
    assert classes(model) == ["a", "b", "c"]
    X = np.stack([pixels(i) for i in range(3)])
    p = PathClassifier.load(model).predict_proba(X)
    np.testing.assert_allclose(p[0], [0.676285703232733, 0.07899605883023039, 0.24471823793703656], atol=1e-6)
    assert learn(model, pictures(tmp_path / "d", "d"))["version"] == 3
    assert classes(model) == ["a", "b", "c", "d"]
    run("rollback", model)
    np.testing.assert_array_equal(PathClassifier.load(model).predict_proba(X), p)
    run("rollback", model)
    assert classes(model) == ["a", "b"]
    run("redo", model)
    run("redo", model)
    assert classes(model) == ["a", "b", "c", "d"]


# ---- 4


@pytest.mark.parametrize("option", [("--budget", 2 * 10**9), ("--seed", 10**20)])
def test_what_could_not_be_read_again_is_refused_before_training(tmp_path, option):
    told = learn(tmp_path / "model", pictures(tmp_path / "ab", "a", "b"), *option, code=64)
    assert f"{option[0][2:]} must be" in told["error"]
    assert not (tmp_path / "model").exists()


VECTORS = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
TWO = [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "choices",
    [
        *({name: value} for name, value in (("width", 5000), ("width", 0), ("modules", 70), ("candidates", 65))),
        *({name: value} for name, value in (("threads", 300), ("epochs", True), ("epochs", 0), ("seed", 1.5))),
        *({name: value} for name, value in (("seed", 10**20), ("budget", -1), ("budget", 2 * 10**9), ("mirror", 1))),
        *({name: value} for name, value in (("backbone", "os.system"), ("width", "8"), ("modules", None))),
    ],
    ids=str,
)
def test_odd_choices_are_refused_or_come_back(tmp_path, choices):
    try:
        model = PathClassifier(**{"epochs": 1, "threads": 1, "width": 8, **choices}).fit(VECTORS, TWO)
    except ValueError as error:
        assert next(iter(choices)) in str(error)
    else:
        model.save(tmp_path)
        assert PathClassifier.load(tmp_path).predict(VECTORS).tolist() == model.predict(VECTORS).tolist()


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numbers_of_numpy_are_numbers(tmp_path, kind):
    choices = {name: kind(value) for name, value in (("epochs", 1), ("threads", 1), ("width", 8), ("seed", 3))}
    model = PathClassifier(**choices, budget=kind(20)).fit(VECTORS, TWO).partial_fit(VECTORS + 9, [2] * 8)
    model.save(tmp_path)
    assert PathClassifier.load(tmp_path)._model.plan == model._model.plan


LABELS = (
    ("a", "\x1b[0m"), ("a", "\ud800"), ("a", "x" * 300), (1, "1"), (0, 10**30), (0.5, float("inf")), (b"a", b"b"),
    ("caf\u00e9", "tea"), ("cafe\u0301", "tea"), (np.int64(1), np.int64(2)), (("a", np.int64(1)), ("b", 2)), (-1, 7),
    ((("a",),), (("b",),)), (None, "y"), (True, False), ("", "a"), (np.str_("a"), np.str_("b")),
)  # fmt: skip


@pytest.mark.parametrize("labels", LABELS, ids=ascii)
def test_odd_labels_are_refused_or_come_back(tmp_path, labels):
    y = [labels[i] for i in TWO]
    try:
        model = PathClassifier(epochs=1, threads=1, width=8).fit(VECTORS, y)
    except ValueError:
        return
    model.save(tmp_path)
    again = PathClassifier.load(tmp_path)
    assert again.classes_.tolist() == model.classes_.tolist()
    assert [type(c) for c in again.classes_.tolist()] == [type(c) for c in model.classes_.tolist()]
    if labels[0] == "cafe\u0301":
        assert again.score(VECTORS, y) == np.mean(again.predict(VECTORS) == np.array(["caf\u00e9", "tea"])[TWO])


def test_too_many_features_are_refused_before_training():
    with pytest.raises(ValueError, match="shape must be one or three whole numbers from 1 to 65,536"):
        PathClassifier(epochs=1, width=1, modules=1).fit(np.zeros((4, 70_000), np.float32), [0, 0, 1, 1])


# ---- small ones of issue 10


def test_held_out_pictures_that_come_again_are_not_trained_on(tmp_path):
    from randpath.model.doubles import _digests

    X = np.stack([pixels(i) for i in range(40)])
    model = PathClassifier(epochs=1, threads=1, width=8).fit(X, [0] * 20 + [1] * 20)
    memory = model._model.method.memory
    held = np.concatenate([x.numpy() for part in memory.val.values() for x, _ in part.batches([np.arange(len(part))])])
    with pytest.raises(ValueError, match="held out already"):
        model.partial_fit(held, [0] * (len(held) // 2) + [1] * (len(held) - len(held) // 2))
    model.partial_fit(np.concatenate([held[:1], X[:1] ^ 255]), [0, 0])
    memory = model._model.method.memory
    train, val = ({d for part in side.values() for d in _digests(part)} for side in (memory.train, memory.val))
    assert not train & val


def test_every_picture_is_decoded_once_before_training_begins(model, tmp_path, monkeypatch):
    folder, opened = pictures(tmp_path / "d", "d", "e", count=6), []
    for i in range(6):
        Image.fromarray(pixels(f"jpeg {i}", 40, 30)).save(folder / "e" / f"{i}.jpg")
    open_picture = decode._open

    def counting(data, name):
        opened.append(hashlib.sha256(data).hexdigest())
        return open_picture(data, name)

    def stop(*_):
        raise Stopped

    monkeypatch.setattr(decode, "_open", counting)
    monkeypatch.setattr(Model, "_taught", stop)
    assert ran("learn", model, folder).returncode == 128
    ours = [hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.*g")]
    twice = {digest for digest in ours if opened.count(digest) != 1}
    # A JPEG of more than four times the size is decoded at a smaller scale too, which is quick.
    assert twice <= {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.jpg")}
