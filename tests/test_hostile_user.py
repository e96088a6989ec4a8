"""What a hostile half hour at the keyboard found: odd names, odd outputs, a full disk, a server beside it."""

import errno
import io
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from randpath.commands import ask
from randpath.commands.app import main
from randpath.model import asking, versions
from randpath.model.asking import Asker
from randpath.model.classifier import PathClassifier
from randpath.storage import checkpoint, inside
from tests.commands import ran, run, run_json
from tests.school import tiny, two_versions


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


def printed(monkeypatch, encoding: str, *typed: object) -> bytes:
    """What a command prints to a terminal or a pipe of that encoding."""
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as left:
            main([*map(str, typed)])
    assert left.value.code == 0
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_name_that_the_output_has_no_letters_for_is_escaped(model, monkeypatch, encoding):
    name = "\u65e5\u672c \u00e7 \U0001f41e"
    assert b"\\u65e5\\u672c" in printed(monkeypatch, encoding, "rename", model, "a", name)
    assert b"\\U0001f41e" in printed(monkeypatch, encoding, "info", model)
    assert json.loads(printed(monkeypatch, encoding, "info", model, "--json").decode(encoding))["classes"][0] == name


def test_a_file_whose_name_is_no_text_is_told_and_tabled(model, two, tmp_path, monkeypatch):
    odd = tmp_path / "\udcff.png"
    try:
        odd.write_bytes((two / "ab" / "a" / "0.png").read_bytes())
    except (OSError, UnicodeError):
        pytest.skip("this system takes no such name")
    typed = ("predict", model, odd, "--csv", tmp_path / "table.csv")
    told = json.loads(printed(monkeypatch, "utf-8", *typed, "--json"))
    assert told["predictions"][0]["file"].endswith("/\udcff.png")
    assert "\\udcff.png" in (tmp_path / "table.csv").read_text()


def test_a_class_may_be_called_like_an_option(model):
    run("rename", model, "a", "--", "--json")
    assert run_json("info", model)["classes"] == ["--json", "b", "c"]
    assert "no class '--for-good'" in ran("forget", model, "--", "--for-good").stderr
    assert (
        "has no class 'x'" in ran("merge", model, "--", "x", "--json").stderr
    )  # told in words: no --json was asked for
    run("forget", model, "--for-good", "--", "--json")
    assert run_json("info", model)["classes"] == ["b", "c"]


def test_a_model_may_be_called_like_an_option(model, tmp_path):
    model.rename(tmp_path / "-m")
    said = run("rename", "--", "-m", "a", "z", cwd=tmp_path)
    assert "randpath rollback ./-m" in said
    run("rollback", "./-m", cwd=tmp_path)


@pytest.mark.parametrize("typed", [("rename", "a", "z"), ("forget", "a"), ("merge", "a", "b"), ("rollback",)])
def test_a_full_disk_leaves_no_half_file_and_says_what_is_kept(model, monkeypatch, typed):
    write = inside.write

    def fills_up(path: Path, data: bytes) -> None:
        if path.name == checkpoint.MANIFEST:
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(inside, "write", fills_up)
    monkeypatch.setattr(checkpoint, "PAUSES", (0.0, 0.0))
    told = run_json(typed[0], model, *typed[1:], code=74)
    assert "No space left" in told["error"]
    assert told["kept"] == f"{model} is unchanged, at version 2"
    assert sorted(path.name for path in (model / "versions").iterdir()) == ["000001", "000002"]


def test_a_table_on_a_full_disk_leaves_no_half_file(model, two, tmp_path, monkeypatch):
    def fills_up(path: Path, data: bytes) -> None:
        path.write_bytes(data[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(inside, "write", fills_up)
    monkeypatch.setattr(checkpoint, "PAUSES", (0.0, 0.0))
    (tmp_path / "out").mkdir()
    run("predict", model, two / "ab", "--csv", tmp_path / "out" / "table.csv", code=74)
    assert not list((tmp_path / "out").iterdir())


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def looks(asker: Asker, times: int = 3) -> None:
    for _ in range(times):
        asker.looked = -asking.LOOK
        asker._renew()


@pytest.fixture
def asker_of(monkeypatch):
    """A server's half that answers; looks for new versions only when it is told to."""
    monkeypatch.setattr(asking, "LOOK", 1e6)
    made = []

    def make(model: Path, told: list[str]) -> Asker:
        made.append(Asker(model, told.append))
        return made[-1]

    yield make
    for asker in made:
        asker.close()


def test_a_server_beside_a_damaged_version_reads_it_once(model, asker_of):
    told: list[str] = []
    flip(versions.place(model, 2) / "weights.safetensors")
    asker = asker_of(model, told)
    looks(asker)
    assert (asker.version, len(told)) == (1, 1)
    model.rename(model.with_name("moved"))
    looks(asker)
    assert len(told) == 2
    assert "goes on to answer" in told[1]
    model.with_name("moved").rename(model)
    run("rename", model, "a", "z")
    looks(asker)
    assert (asker.version, asker.model.names, len(told)) == (2, ["z", "b"], 2)


def test_a_server_takes_up_a_version_that_bears_the_number_of_a_damaged_one(model, asker_of):
    """Else it would go on to name a class that was forgotten for good."""
    asker = asker_of(model, [])
    assert (asker.version, asker.model.names) == (2, ["a", "b", "c"])
    flip(versions.place(model, 2) / "weights.safetensors")
    assert run_json("forget", model, "a", "--for-good")["version"] == 2
    looks(asker)
    assert (asker.version, asker.model.names) == (2, ["b"])


def test_evaluate_ends_well_though_its_version_is_removed_meanwhile(model, two, monkeypatch):
    looking = ask.pictures_in

    def meanwhile(*args):
        run("forget", model, "a", "--for-good")
        return looking(*args)

    monkeypatch.setattr(ask, "pictures_in", meanwhile)
    told = run_json("evaluate", model, two / "ab")
    assert (set(told["by_class"]), told["forgetting"]) == ({"a", "b"}, None)


def test_labels_of_several_parts_are_shown_as_they_are_typed(tmp_path):
    X = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    PathClassifier(epochs=1, threads=1, width=8).fit(X, [("a", 1)] * 4 + [("b", 2)] * 4).save(tmp_path)
    assert "task 1: ('a', 1), ('b', 2)" in run("info", tmp_path)
    run("forget", tmp_path, "('a', 1)")
    assert "task 1: ('b', 2)" in run("info", tmp_path)
