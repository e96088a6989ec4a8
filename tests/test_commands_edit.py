"""forget and merge: transactions that rollback undoes; for good means for good. predict: folders, tables, bad files."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from randpath.commands import edit
from randpath.commands.reading import open_model
from randpath.data.dataset import Files, Joined
from randpath.model import versions
from randpath.storage import checkpoint
from tests.commands import ran, run, run_json
from tests.pictures import put
from tests.school import learn, pictures, tiny


@pytest.fixture(autouse=True)
def _tiny():
    with tiny():
        yield


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Path:
    """a and b, then c, then d and e; the folders beside the model."""
    place = tmp_path_factory.mktemp("three")
    with tiny():
        for name in ("ab", "c", "de"):
            learn(place / "model", pictures(place / name, *name, count=10))
    return place


@pytest.fixture
def model(three, tmp_path) -> Path:
    return Path(shutil.copytree(three / "model", tmp_path / "model"))


def classes(model: Path) -> list[str]:
    found: list[str] = run_json("info", model)["classes"]
    return found


def stored_pictures(directory: Path) -> list[bytes]:
    """The bytes of every picture in every kept version."""
    found = []
    for number in versions.kept(directory):
        saved = versions.load(directory, number)
        for file in ("memory_train", "memory_val"):
            if file in saved.tensors:
                part = saved.tensors[file]
                ends = np.cumsum(part["lengths"].numpy())
                blob = part["blob"].numpy()
                found += [blob[e - n : e].tobytes() for e, n in zip(ends, part["lengths"].numpy())]
    return found


@pytest.mark.parametrize("name", ["a", "c", "e"])
def test_forget_takes_a_class_out_and_rollback_brings_it_back(model, three, tmp_path, name):
    before = open_model(model)[1]
    assert run_json("forget", model, name) == {"version": 4, "forgotten": name, "for_good": False}
    left = [c for c in "abcde" if c != name]
    assert classes(model) == left
    after = open_model(model)[1]
    data = Joined([part for c, part in before.method.memory.train.items() if before.names[c] != name])
    columns = [c for c in range(5) if before.names[c] != name]
    assert np.allclose(after.logits(data), before.logits(data)[:, columns], atol=1e-5)
    memory = after.method.memory
    assert sorted(memory.train) == [0, 1, 2, 3]
    own = set(before.method.memory.train[before.names.index(name)].self_contained().tensors()["lengths"].tolist())
    assert own
    assert not {*map(bytes, stored_of(after))} & {*map(bytes, stored_of(before, name))}
    assert learn(model, pictures(tmp_path / "f", "f"))["version"] == 5  # it goes on learning
    assert classes(model) == [*left, "f"]
    run("rollback", model)
    run("rollback", model)
    assert classes(model) == list("abcde")
    again = open_model(model)[1]
    assert np.array_equal(again.logits(data), before.logits(data))


def stored_of(model, name: str | None = None) -> list[bytes]:
    parts = [*model.method.memory.train.items(), *model.method.memory.val.items()]
    files = [part for c, part in parts if name is None or model.names[c] == name]
    assert all(isinstance(part, Files) for part in files)
    return [item for part in files for item in map(part.item, range(len(part))) if isinstance(item, bytes)]


def test_forget_for_good_leaves_no_picture_in_any_version(model):
    loaded = open_model(model)[1]
    theirs = set(stored_of(loaded, "a"))
    assert theirs & set(stored_pictures(model))
    (model / "versions" / "000002.bad").mkdir()
    told = run_json("forget", model, "a", "--for-good")
    assert (told["version"], told["for_good"]) == (6, True)
    assert versions.kept(model) == [4, 5, 6]
    assert classes(model) == list("bcde")
    assert not theirs & set(stored_pictures(model))
    assert not list((model / "versions").glob("*.bad*"))
    names = [json.loads((versions.place(model, n) / "model.json").read_text())["names"] for n in (4, 5, 6)]
    assert names == [["b"], ["b", "c"], ["b", "c", "d", "e"]]
    assert all(b'"a"' not in path.read_bytes() for path in model.rglob("*.json"))
    run("rollback", model)
    assert classes(model) == ["b", "c"]
    assert "has no class 'a'" in run_json("forget", model, "a", "--for-good", code=64)["error"]


@pytest.mark.parametrize("saves", [0, 1, 2])
def test_forget_for_good_cut_short_is_old_or_new_and_can_be_typed_again(model, monkeypatch, saves):
    theirs = set(stored_of(open_model(model)[1], "a"))
    save, left = checkpoint.save, saves

    def dies(*args, **more):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return save(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", dies)
        assert ran("forget", model, "a", "--for-good").returncode == 130
    assert classes(model) == (list("bcde") if saves else list("abcde"))
    run("forget", model, "a", "--for-good")
    assert classes(model) == list("bcde")
    assert not theirs & set(stored_pictures(model))


@pytest.mark.parametrize("edits", [[("rename", "a", "z")], [("merge", "z", "a"), ("rename", "z", "y")]])
def test_forget_for_good_finds_a_class_under_its_earlier_names(model, three, tmp_path, edits):
    learn(model, pictures(tmp_path / "z", "z", count=10), "--keep", 9)
    before = open_model(model)[1]
    theirs = {*stored_of(before, "a")} | ({*stored_of(before, "z")} if len(edits) > 1 else set())
    if len(edits) == 1:
        run("forget", model, "z")
    for command, *typed in edits:
        run(command, model, *typed)
    assert "is z now" in run("forget", model, "a", "--for-good", code=64) or len(edits) > 1
    assert theirs & set(stored_pictures(model))
    run("forget", model, edits[-1][2], "--for-good")
    assert not theirs & set(stored_pictures(model))
    assert len(versions.kept(model)) >= 4
    for _ in versions.kept(model)[1:]:
        run("rollback", model)
    assert classes(model) == ["b"]


def test_forget_for_good_spares_what_only_bore_the_name_once(model, tmp_path):
    run("rename", model, "a", "z")
    learn(model, pictures(tmp_path / "a", "a", start=20, count=10), "--keep", 9)
    theirs = set(stored_of(open_model(model)[1], "a"))
    run("forget", model, "a", "--for-good")
    assert not theirs & set(stored_pictures(model))
    for _ in versions.kept(model)[1:]:
        run("rollback", model)
    assert classes(model) == ["a", "b"]


def test_forget_for_good_of_what_was_undone(model):
    run("rollback", model)
    theirs = {item for saved in (open_model(model)[1],) for item in stored_of(saved)}
    run("forget", model, "e", "--for-good")
    assert classes(model) == ["a", "b", "c"]
    assert set(stored_pictures(model)) <= theirs
    assert "nothing was undone" in run("redo", model, code=65)


@pytest.mark.parametrize("n", range(1, 60, 4))
def test_forget_for_good_killed_leaves_nothing_once_it_is_typed_again(model, monkeypatch, n):
    theirs = [item for item in stored_of(open_model(model)[1], "a") if len(item) > 20]
    versions.place(model, 1).rename(model / "versions" / "000001.bad")
    (model / "work" / "features").mkdir(parents=True)
    (model / "work" / "features" / "x").write_bytes(theirs[0])
    left = n

    def counting(operation):
        def dies(*args):
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            operation(*args)

        return dies

    with monkeypatch.context() as patched:
        for name in ("write_file", "sync_directory", "rename", "remove", "make_directory"):
            patched.setattr(checkpoint, name, counting(getattr(checkpoint, name)))
        ran("forget", model, "a", "--for-good")
    ran("forget", model, "a", "--for-good")
    assert classes(model) == list("bcde")
    everything = [path.read_bytes() for path in model.rglob("*") if path.is_file()]
    assert not [item for item in theirs for data in everything if item in data]


def test_forgetting_is_measured_on_the_same_classes_after_edits(model, three, tmp_path):
    def forgetting() -> float:
        found: float = run_json("evaluate", model, three / "c")["forgetting"]
        return found

    run("rename", model, "a", "z")
    before = forgetting()
    run("forget", model, "z")  # the numbers of the others change
    assert forgetting() == before
    run("rename", model, "d", "y")
    assert forgetting() == before


def test_what_was_said_of_a_class_is_renamed_and_forgotten_with_it(model):
    number, loaded = open_model(model)
    loaded.history[-1] |= {"dropped": {"a": 0.5}, "fewer_right": {"a": [3, 2, 3]}, "confusions": [["b", "a", 1]]}
    state, document = loaded.state()
    versions.save(model, state.tensors, document, base=number)
    run("rename", model, "a", "zebra")
    last = open_model(model)[1].history[-1]
    assert (last["dropped"], last["fewer_right"]) == ({"zebra": 0.5}, {"zebra": [3, 2, 3]})
    assert last["confusions"] == [["b", "zebra", 1]]
    run("forget", model, "zebra")
    newest = versions.place(model, versions.current(model)) / "model.json"
    assert b'"a"' not in newest.read_bytes()
    assert b"zebra" not in newest.read_bytes()


def test_what_cannot_be_forgotten_or_merged_is_said(model, tmp_path):
    assert "has no class 'x'" in run_json("forget", model, "x", code=64)["error"]
    assert "one class already" in run_json("merge", model, "a", "a", code=64)["error"]
    learn(tmp_path / "one", pictures(tmp_path / "z", "z"))
    for more in ([], ["--for-good"]):
        assert "is the only class" in run_json("forget", tmp_path / "one", "z", *more, code=64)["error"]
    learn(tmp_path / "none", pictures(tmp_path / "yz", "y", "z"), "--budget", 0)
    assert "keeps no pictures" in run_json("merge", tmp_path / "none", "y", "z", code=64)["error"]
    assert versions.kept(model) == [1, 2, 3]
    assert edit.merge.__doc__


@pytest.mark.parametrize(("kept", "other"), [("a", "b"), ("b", "a"), ("e", "c"), ("a", "e")])
def test_merge_gives_one_class_the_probability_of_both(model, three, tmp_path, kept, other):
    before = open_model(model)[1]
    data = Joined(list(before.method.memory.train.values()))
    p = np.exp(before.logits(data))
    p /= p.sum(axis=1, keepdims=True)
    assert run_json("merge", model, kept, other) == {"version": 4, "name": kept, "merged": other}
    left = [kept if c == min(kept, other) else c for c in "abcde" if c != max(kept, other)]
    assert classes(model) == left
    after = open_model(model)[1]
    q = np.exp(after.logits(data))
    q /= q.sum(axis=1, keepdims=True)
    both = p[:, "abcde".index(kept)] + p[:, "abcde".index(other)]
    assert np.abs(q[:, left.index(kept)] - both).mean() < 0.05
    assert sorted(after.method.memory.train) == [0, 1, 2, 3]
    assert sum(map(len, after.method.memory.train.values())) == len(data)
    assert learn(model, pictures(tmp_path / "f", "f"), "--keep", 9)["version"] == 5
    again = pictures(tmp_path / "again", "f", start=20)
    assert learn(model, again, "--keep", 9)["version"] == 6  # goes on with its teacher
    for _ in range(3):
        run("rollback", model)
    assert classes(model) == list("abcde")


def test_predict_folders_tables_and_bad_files(model, three, tmp_path):
    folder = pictures(tmp_path / "ask", "=cmd|x", count=3)
    put(folder / "deep" / "er" / "z.png", "z")
    (folder / "notes.txt").write_text("no picture")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    table = tmp_path / "table.csv"
    told = run_json("predict", model, folder, three / "c" / "c" / "0.png", "--top", 3, "--csv", table, code=65)
    assert len(told["predictions"]) == 5
    assert [fault["file"] for fault in told["faults"]] == [str(folder / "broken.png")]
    assert "1 of 6 pictures could not be read" in told["error"]
    for one in told["predictions"]:
        assert [*one] == ["file", "label", "confidence", "unknown", "top"]
        assert one["top"][0] == {"label": one["label"], "confidence": one["confidence"]}
        assert len(one["top"]) == 3
    rows = list(csv.reader(table.read_text().splitlines()))
    assert rows[0] == ["file", "label", "confidence", "unknown", "label_2", "confidence_2", "label_3", "confidence_3"]
    assert len(rows) == 6
    said = run("predict", model, folder, code=65)
    assert "100.0%" not in said
    assert "broken.png" in said
    (tmp_path / "empty").mkdir()
    assert "there is no picture" in run_json("predict", model, tmp_path / "empty", code=65)["error"]
    assert (
        "there is no folder" in run_json("predict", model, folder, "--csv", tmp_path / "x" / "y.csv", code=64)["error"]
    )


def test_a_table_holds_no_formula(tmp_path):
    learn(tmp_path / "model", pictures(tmp_path / "ab", "=1+1", "@b", count=6))
    run("predict", "model", "ab", "--csv", "table.csv", "--top", 2, cwd=tmp_path)
    rows = list(csv.reader((tmp_path / "table.csv").read_text().splitlines()))[1:]
    assert len(rows) == 12
    assert {row[1] for row in rows} | {row[4] for row in rows} == {"'=1+1", "'@b"}
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row)


@pytest.mark.parametrize("kind", ["gif", "tiff"])
def test_gif_and_tiff_are_read_and_their_first_frame_counts(model, three, tmp_path, kind):
    from PIL import Image

    frames = [Image.open(three / "c" / "c" / f"{i}.png").convert("RGB") for i in range(2)]
    frames[0].save(tmp_path / f"x.{kind}", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / f"y.{kind}")
    one, two = run_json("predict", model, tmp_path)["predictions"]
    assert (one["label"], one["confidence"]) == (two["label"], two["confidence"])
