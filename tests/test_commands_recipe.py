"""A recipe file of one's own: where its runs go, and what `resume` needs of it."""

import runpy
import signal
from pathlib import Path

import numpy as np
import pytest

from randpath import load_run
from randpath.data.named import DATASETS
from randpath.errors import UsageError
from randpath.methods import METHODS
from randpath.network.backbones import BACKBONES
from randpath.storage import checkpoint
from tests.commands import interrupt, run
from tests.test_bench_run import digest

EXAMPLE = Path(__file__).parents[1] / "examples" / "add_a_method.py"
FEW = ("--set", "tasks=2", "--set", "training.epochs=1")
PLAIN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from randpath import Experiment, Training
@dataclass
class Sizes:
    kind: ClassVar[str] = "mlp"
    width: int = 8
short = Training(epochs=1)
tuned = Experiment("digits", 2, backbone=Sizes.kind, width=Sizes().width, method="finetune", training=short)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with the example in it as mine.py; the methods and the home directory are as before afterwards."""
    known = dict(METHODS)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    yield tmp_path
    _as_in_a_new_process(known)


def _as_in_a_new_process(known: dict) -> None:
    METHODS.clear()
    METHODS.update(known)


@pytest.fixture
def cut(here, monkeypatch) -> Path:
    """A run of mine.py that was interrupted, as a new process finds it."""
    known = dict(METHODS)
    with monkeypatch.context() as patched:
        interrupt(patched, 12, signal.SIGINT)
        run("bench", "mine.py", *FEW, code=130, cwd=here)
    _as_in_a_new_process(known)
    return here / "runs" / "mine-near-tuned-0"  # its own method, not rps


def test_resume_finds_the_method_of_the_file_again_and_ends_the_same(here, cut):
    run("bench", "mine.py", *FEW, "--out", "whole", cwd=here)
    del METHODS["near"]
    run("resume", cut, cwd=here)
    assert digest(cut) == digest(here / "whole")
    document = checkpoint.read_document(cut / "experiment.json")
    assert document["recipe_file"]["path"] == str(here / "mine.py")
    assert document["recipe_file"]["defines"] == ["near"]
    assert document["environment"]["recipe_file"] == document["recipe_file"]["sha256"]


def test_a_dataset_and_a_network_of_ones_own_are_found_again(here, monkeypatch):
    (here / "own.py").write_text((EXAMPLE.parent / "add_a_dataset.py").read_text())
    run("bench", "own.py", "--set", "training.epochs=1", "--out", "whole", cwd=here)
    with monkeypatch.context() as patched:
        interrupt(patched, 12, signal.SIGINT)
        run("bench", "own.py", "--set", "training.epochs=1", code=130, cwd=here)
    del DATASETS["stripes"], BACKBONES["two_convolutions"]
    cut = here / "runs" / "own-rehearsal-tuned-0"
    with pytest.raises(UsageError, match="needs stripes, two_convolutions from the recipe file"):
        _ = load_run(cut).method
    run("resume", cut, cwd=here)
    assert digest(cut) == digest(here / "whole")
    assert load_run(cut).features(np.zeros((3, 12, 12, 1), np.uint8)).shape == (3, 16)
    del DATASETS["stripes"], BACKBONES["two_convolutions"]


def test_load_run_asks_for_the_file_that_defines_the_method(here, monkeypatch):
    run("bench", "mine.py", *FEW, cwd=here)
    loaded = load_run(here / "runs" / "mine-near-tuned-0")
    assert type(loaded.method).__name__ == "Near"
    assert loaded.features(np.zeros((3, 8, 8, 1), np.uint8)).shape == (3, 100)
    del METHODS["near"]
    again = load_run(here / "runs" / "mine-near-tuned-0")
    assert again.accuracy == loaded.accuracy, "what needs no method is there"
    with pytest.raises(UsageError, match="needs near from the recipe file") as refused:
        _ = again.method
    assert "import" in refused.value.next
    runpy.run_path(str(here / "mine.py"))
    assert again.features(np.zeros((3, 8, 8, 1), np.uint8)).shape == (3, 100)


def test_a_changed_file_is_refused_unless_inexact_and_then_told(here, cut):
    with (here / "mine.py").open("a") as file:
        file.write("# another\n")
    said = run("resume", cut, code=64, cwd=here)
    assert "mine.py, from which" in said
    assert "has changed since the run began" in said
    assert "you have not run" in run("resume", cut, "--inexact", code=64, cwd=here)
    run("resume", cut, "--inexact", "--recipe", "mine.py", cwd=here)
    assert "recipe_file" in checkpoint.read_document(cut / "experiment.json")["inexact"][0]


def test_a_moved_file_is_asked_for(here, cut):
    (here / "elsewhere").mkdir()
    (here / "mine.py").rename(here / "elsewhere" / "yours.py")
    assert "--recipe FILE" in run("resume", cut, code=64, cwd=here)
    run("resume", cut, "--recipe", here / "elsewhere" / "yours.py", cwd=here)
    assert checkpoint.read_document(cut / "experiment.json")["recipe_file"]["path"].endswith("yours.py")


def test_a_file_that_only_a_run_directory_names_is_not_run(here, cut, monkeypatch):
    (here / "home of another").mkdir()
    monkeypatch.setenv("HOME", str(here / "home of another"))
    said = run("resume", cut, code=64, cwd=here)
    assert "you have not run on this machine before" in said
    assert f"--recipe {here / 'mine.py'}" in said
    assert "near" not in METHODS


def test_a_file_that_defines_only_settings_is_not_needed_again(here, monkeypatch):
    (here / "plain.py").write_text(PLAIN)
    with monkeypatch.context() as patched:
        interrupt(patched, 3, signal.SIGINT)
        run("bench", "plain.py", code=130, cwd=here)
    (here / "plain.py").unlink()
    run("resume", "runs/plain-finetune-tuned-0", cwd=here)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import sys\nsys.exit(0)\n",
            "ends the program (sys.exit) instead of defining an Experiment where: {}, line 2",
        ),
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax ({}, line 2)"),
        ("import nonesuch\n", "No module named 'nonesuch' where: {}, line 1"),
        ("tuned = 3\n", "does not define 'tuned' as an Experiment"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(here, text, says):
    (here / "bad.py").write_text(text)
    said = run("bench", "bad.py", code=64, cwd=here)
    assert says.format("bad.py") in " ".join(said.split())
    assert not (here / "runs").exists()


def test_what_names_the_run_directory_is_not_set_by_set(here):
    for setting in ("seed=3", "method=joint"):
        assert "is set by --" in run("bench", "digits_5", "--set", setting, code=64, cwd=here)
    assert not list((here / "runs").glob("*"))
