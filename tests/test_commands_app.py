"""What a command ends in: a sentence and an exit code for a user's mistake, a traceback and 1 for a bug of ours."""

import subprocess
import sys

import pytest

from randpath import errors
from randpath.bench.cells import NAMED
from randpath.methods import METHODS
from randpath.settings import declared
from tests.commands import ran, run

RAISING = """
import sys
from randpath import errors
from randpath.commands import app, recipe
def check_there(name): raise {error}
recipe.check_there = check_there
app.main(["bench", "digits_5"])
"""


def ended(error: str) -> "subprocess.CompletedProcess[str]":
    """How a command ends when something inside raises this."""
    return subprocess.run([sys.executable, "-c", RAISING.format(error=error)], capture_output=True, text=True)


@pytest.mark.parametrize("error", ["ValueError('from inside')", "KeyError('from inside')"])
def test_a_bug_shows_its_traceback_and_exits_with_1(error):
    done = ended(error)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "from inside" in done.stderr


@pytest.mark.parametrize("kind", ["UsageError", "DataError", "DeviceMissing", "Locked", "DiskTrouble"])
def test_a_mistake_ends_in_its_sentence_and_its_exit_code(kind):
    done = ended(f"errors.{kind}('what happened', kept='all [of] it', next='do this')")
    assert done.returncode == getattr(errors, kind).exit_code > 1
    assert done.stderr.split("\n") == ["randpath: what happened", "  kept: all [of] it", "  next: do this", ""]


@pytest.mark.parametrize("error", ["MemoryError()", 'RuntimeError("DefaultCPUAllocator: can\'t allocate memory")'])
def test_no_memory_ends_in_a_sentence(error):
    done = ended(error)
    assert (done.returncode, "Traceback" in done.stderr) == (71, False)
    assert "not enough memory" in done.stderr


def test_a_recipe_that_leaves_is_told_and_one_with_a_dataclass_is_read(tmp_path):
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(0)")
    done = ran("bench", tmp_path / "leaves.py", "--out", tmp_path / "run")
    assert (done.returncode, "ends the program" in done.stderr.replace("\n", " ")) == (64, True)
    (tmp_path / "own.py").write_text(OWN)
    done = ran("bench", tmp_path / "own.py", "--out", tmp_path / "run")
    assert (done.returncode, "does not define 'tuned'" in done.stderr) == (64, True)
    assert "own" not in sys.modules


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
@dataclass
class Options:
    a: ClassVar[int] = 1
    b: int = 2
tuned = Options()
"""


@pytest.mark.parametrize("name", METHODS)
def test_methods_name_lists_the_options_with_default_and_meaning(name):
    said = run("methods", name)
    for setting in declared(METHODS[name]).values():
        assert setting.meaning, f"{name}.{setting.name} does not say what it means"
        assert all(word in said for word in (setting.name, setting.meaning.split()[0]))
    assert name in said


def test_methods_lists_all_and_refuses_others():
    assert [line.split()[0] for line in run("methods").splitlines()] == [*METHODS, *NAMED]
    assert "there is no method 'ewd'; there are rps" in run("methods", "ewd", code=64)
