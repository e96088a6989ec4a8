"""The commands on models, as a person types them, on PNG files: coloured digits, and CIFAR-100 where it is there."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.model import versions
from randpath.storage.lock import lock
from tests.commands import interrupt, run, run_json

Pictures = tuple[Arrays, tuple[str, ...]]  # and the names of their classes


def coloured_digits() -> Pictures:
    """The embedded digits in three colours: 30 classes, "red-0" to "blue-9"."""
    digits = named.load("digits").train
    assert isinstance(digits, Arrays)
    colours = np.eye(3, dtype=np.uint8)
    items = np.concatenate([digits.items * colour for colour in colours])  # (n, 8, 8, 1) * (3,)
    labels = np.concatenate([digits.labels + 10 * c for c in range(3)])
    return Arrays(items, labels), tuple(f"{colour}-{d}" for colour in ("red", "green", "blue") for d in range(10))


@pytest.fixture(scope="module", params=["digits", "cifar100"])
def pictures(request, real_data) -> Pictures:
    if request.param == "digits":
        return coloured_digits()
    source = named.load("cifar100", real_data("cifar100"))
    assert isinstance(source.train, Arrays)
    return source.train, source.class_names


def png_folder(folder: Path, pictures: Pictures, classes: range, count: int, start: int = 0) -> Path:
    images, names = pictures
    for c in classes:
        place = folder / names[c]
        place.mkdir(parents=True)
        for i in np.flatnonzero(images.labels == c)[start : start + count]:
            Image.fromarray(images.items[i]).save(place / f"{i}.png")
    return folder


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of a model, without who wrote last."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.startswith("lock"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def grown(pictures, tmp_path_factory) -> Path:
    """A model of 10, then 5, then 1 class; the answers of each learn beside it."""
    place = tmp_path_factory.mktemp("grown")
    for name, classes in (("ten", range(10)), ("five", range(10, 15)), ("one", range(15, 16))):
        png_folder(place / name, pictures, classes, 12)
        answer = run_json("learn", place / "model", place / name, "--epochs", 2, "--budget", 100)
        (place / f"{name}.json").write_text(json.dumps(answer))
        if name == "five":
            shutil.copytree(place / "model", place / "before", copy_function=os.link)
    return place


def test_learn_ten_then_five_then_one(grown, pictures):
    answers = [json.loads((grown / f"{name}.json").read_text()) for name in ("ten", "five", "one")]
    keys = {"version", "classes_added", "accuracy_new", "accuracy_old", "dropped", "saturation", "megabytes"}
    assert all(set(answer) == {*keys, "fewer_right"} for answer in answers)
    assert [answer["version"] for answer in answers] == [1, 2, 3]
    assert [len(answer["classes_added"]) for answer in answers] == [10, 5, 1]
    assert answers[0]["accuracy_old"] is None
    assert 0 <= answers[2]["accuracy_old"] <= 1
    facts = run_json("info", grown / "model")
    assert set(facts) == {"classes", "tasks", "path_map", "saturation", "megabytes", "flops", "version"}
    assert facts["classes"] == list(pictures[1][:16])
    assert (facts["version"], [task["k"] for task in facts["tasks"]]) == (3, [1, 2, 3])
    assert facts["flops"] > 1e6
    assert "training pictures are stored inside" in run("info", grown / "model")


def test_evaluate(grown, pictures, tmp_path):
    test = png_folder(tmp_path / "test", pictures, range(16), 3, start=100)
    result = run_json("evaluate", grown / "model", test)
    assert set(result) == {"accuracy", "by_class", "forgetting", "confusion"}
    assert set(result["by_class"]) == set(pictures[1][:16])
    assert isinstance(result["forgetting"], float)
    assert sum(n for row in result["confusion"].values() for n in row.values()) == 48
    assert result["accuracy"] == pytest.approx(np.mean(list(result["by_class"].values())))
    png_folder(tmp_path / "more", pictures, range(15, 18), 2)
    told = run_json("evaluate", grown / "model", tmp_path / "more", code=65)
    assert pictures[1][16] in told["error"]
    assert "from other pictures than you test it on" in told["next"]  # not: learn the test set
    known = run_json("evaluate", grown / "model", tmp_path / "more", "--known-only")
    assert set(known["by_class"]) == {pictures[1][15]}
    assert sum(n for row in known["confusion"].values() for n in row.values()) == 2


def test_predict(grown, pictures):
    files = sorted((grown / "ten" / pictures[1][0]).iterdir())[:3]
    result = run_json("predict", grown / "model", *files)
    assert [one["file"] for one in result["predictions"]] == list(map(str, files))
    for one in result["predictions"]:
        assert set(one) == {"file", "label", "confidence", "unknown"}
        assert one["label"] in pictures[1]
        assert 0 < one["confidence"] <= 1
        assert one["unknown"] in (True, False)
    assert str(files[0]) in run("predict", grown / "model", files[0])


def test_rollback_restores_the_bytes_of_before(grown, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(grown / "model", model)
    assert run_json("rollback", model) == {"version": 4, "undone": 3, "same_as": 2}
    again, before = tree(versions.place(model, 4)), tree(versions.place(grown / "before", 2))
    assert {name for name in before if again[name] != before[name]} == {"line.json", "MANIFEST.json"}
    assert run_json("redo", model) == {"version": 5, "same_as": 3}
    run("rollback", model)
    run("rollback", model)
    told = run_json("rollback", model, code=65)
    assert "oldest one kept" in told["error"]
    assert "--keep" in told["next"]


def test_rename_keeps_what_was_learned_and_can_be_undone(grown, pictures, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(grown / "model", model)
    old = pictures[1][3]
    run("rename", model, old, "[grizzly] Bär 🐻")
    facts = run_json("info", model)
    assert facts["classes"][3] == "[grizzly] Bär 🐻"
    assert "[grizzly] Bär 🐻" in facts["tasks"][0]["classes"]
    third, fourth = (tree(versions.place(model, number)) for number in (3, 4))
    assert all(third[name] == fourth[name] for name in third if name.endswith(".safetensors"))
    assert "has no class" in run("rename", model, old, "x", code=64)
    assert "a class already" in run("rename", model, "[grizzly] Bär 🐻", pictures[1][0], code=64)
    run("rollback", model)
    assert run_json("info", model)["classes"][3] == old


def test_pictures_of_seen_classes_are_counted_aloud(grown, pictures, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(grown / "model", model)
    png_folder(tmp_path / "more", pictures, range(15, 17), 6, start=50)
    said = run("learn", model, tmp_path / "more", "--epochs", 1)
    assert "6 pictures are of classes seen before" in said
    assert f"version 4: {pictures[1][16]}" in said
    assert f"to undo: randpath rollback {model}" in said
    assert "capacity: there is room" in said or "capacity: the present modules are full" in said
    assert "mu_sat" not in said
    assert "mu_sat" in run("info", model)
    assert versions.kept(model) == [2, 3, 4]
    png_folder(tmp_path / "again", pictures, range(2), 6, start=80)
    said = run("learn", model, tmp_path / "again", "--epochs", 1, "--keep", 1)
    assert "no new class; the present task went on" in said
    assert versions.kept(model) == [5]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["predict", "nowhere", "x.png"], 65, "there is no model in nowhere"),
        (["info", "nowhere"], 65, "there is no model"),
        (["rollback", "nowhere"], 65, "there is no model"),
        (["export", "nowhere", "x.txt"], 64, "should end in .onnx"),
        (["learn", "new", "nowhere"], 65, "nowhere does not exist"),
        (["learn", "new"], 64, "requires an argument"),
        (["learn", "new", ".", "--epochs", "0"], 64, "--epochs must be at least 1"),
        (["learn", "new", ".", "--epochs", "x"], 64, "x"),
        (["learn", ".", "."], 64, "is not a model directory"),
        (["predict", "nowhere"], 64, "no picture was given"),
        (["no_such_command"], 64, "no_such_command"),
        (["check", "nowhere"], 65, "does not exist"),
    ],
)
def test_mistakes_end_in_a_sentence_and_an_exit_code(tmp_path, monkeypatch, capsys, arguments, code, says):
    from randpath.commands.app import main

    (tmp_path / "x.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--json"] if arguments[0] not in ("no_such_command",) else arguments)
    captured = capsys.readouterr()
    assert (left.value.code, "Traceback" in captured.err) == (code, False)
    assert says in captured.out + captured.err
    if "--json" in captured.out:
        assert set(json.loads(captured.out)) == {"error", "where", "kept", "next"}
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_device_bad_pictures_and_a_file_for_a_model(grown, pictures, tmp_path):
    told = run_json("predict", grown / "model", next((grown / "one").rglob("*.png")), "--device", "cuda", code=69)
    assert "cuda" in told["error"]
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "broken.png" in run("predict", grown / "model", tmp_path / "broken.png", code=65)
    png_folder(tmp_path / "folder", pictures, range(20, 22), 6)
    (tmp_path / "folder" / pictures[1][20] / "zero.png").write_bytes(b"")
    told = run_json("learn", tmp_path / "model", tmp_path / "folder", code=65)
    assert "zero.png" in told["error"]
    assert "--skip-bad" in told["next"]
    assert told["kept"] == "nothing was there before"
    assert run_json("learn", tmp_path / "model", tmp_path / "folder", "--skip-bad", "--epochs", 1)["version"] == 1
    assert "is a file" in run("learn", tmp_path / "broken.png", tmp_path / "folder", code=64)
    assert "(65)" not in run("check", tmp_path / "folder", code=65)


def test_an_interrupted_learn_goes_on_when_typed_again_and_ends_the_same(tmp_path, monkeypatch):
    """A real signal at the fifth of 18 steps, another one nine steps later."""
    folder = png_folder(tmp_path / "folder", coloured_digits(), range(3), 30)
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for steps, number, code in ((5, signal.SIGINT, 130), (9, signal.SIGTERM, 143)):
        with monkeypatch.context() as patched:
            interrupt(patched, steps, number)
            told = run_json("learn", stopped, folder, "--epochs", 3, code=code)
        assert set(told) == {"error", "where", "kept", "next"}
        assert not versions.is_model(stopped)
    run("learn", stopped, folder, "--epochs", 3)
    run("learn", straight, folder, "--epochs", 3)
    assert tree(stopped) == tree(straight)
    assert not (stopped / "work").exists()


def test_two_learns_at_once(grown, pictures, tmp_path):
    """One runs; the other leaves within a second with 73, says who holds the model, and never imported torch."""
    model = tmp_path / "model"
    with lock(model):
        code = (
            "import sys, time; from randpath.commands.app import main; began = time.monotonic()\n"
            "try: main(sys.argv[1:])\n"
            "except SystemExit as left: print(left.code, 'torch' in sys.modules, time.monotonic() - began < 1)\n"
        )
        arguments = [sys.executable, "-c", code, "learn", str(model), str(grown / "one"), "--json"]
        process = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    told, ended = process.stdout.splitlines()
    assert ended == "73 False True", process.stderr
    assert f"process {os.getpid()} on " in json.loads(told)["error"]
    assert not versions.is_model(model)
