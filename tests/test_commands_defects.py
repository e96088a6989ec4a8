"""What new users stumbled over (issue 12), each with the test that failed before it was mended."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from randpath.commands import reading
from randpath.errors import UsageError
from randpath.model import calibration, versions
from randpath.model.classifier import PathClassifier
from tests.commands import interrupt, run, run_json
from tests.pictures import put
from tests.school import learn, pictures, tiny

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _tiny():
    with tiny():
        yield


def test_commands_to_type_are_quoted(tmp_path):
    model, folder = tmp_path / "my birds", pictures(tmp_path / "two words", "a", "b")
    said = run("learn", model, folder, "--epochs", 1)
    assert f"to undo: randpath rollback '{model}'" in said
    assert f"randpath redo '{model}'" in run("rename", model, "a", "c") + run("rollback", model)
    put(folder / "a" / "bad.png", 1).write_bytes(b"")
    assert f"`randpath check '{folder}'`" in run_json("learn", model, folder, code=65)["next"]
    assert (
        f"randpath learn '{tmp_path / 'no model'}' FOLDER" in run_json("info", tmp_path / "no model", code=65)["next"]
    )


def test_an_interrupted_first_learn_says_a_whole_sentence(tmp_path, monkeypatch):
    interrupt(monkeypatch, 2, signal.SIGINT)
    said = run("learn", tmp_path / "model", pictures(tmp_path / "ab", "a", "b"), "--epochs", 2, code=130)
    assert "interrupted; the unfinished work is saved. To go on, type the same command again." in said


def test_export_makes_no_directories(tmp_path):
    learn(tmp_path / "model", pictures(tmp_path / "ab", "a", "b"))
    told = run_json("export", tmp_path / "model", tmp_path / "typo" / "birds.onnx", code=64)
    assert "there is no folder" in told["error"]
    assert not (tmp_path / "typo").exists()


def test_a_failed_learn_leaves_no_directory(tmp_path):
    folder = pictures(tmp_path / "ab", "a")
    put(folder / "a" / "bad.png", 1).write_bytes(b"")
    learn(tmp_path / "models" / "of" / "birds", folder, code=65)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ab"]


def test_check_says_what_it_looked_at(tmp_path):
    folder = pictures(tmp_path / "ab", "a", "b")
    assert run("check", folder) == "8 pictures of 2 classes: no faults\n"
    put(folder / "a" / "bad.png", 1).write_bytes(b"")
    assert "9 pictures of 2 classes: 1 fault, 0 cautions" in run("check", folder, code=65)
    told = run_json("check", folder, code=65)
    assert (told["pictures"], told["classes"], len(told["faults"])) == (9, 2, 1)


def test_an_absolute_path_in_a_list_is_called_so(tmp_path):
    file = put(tmp_path / "a" / "0.png", 0)
    (tmp_path / "list.csv").write_text(f"file,label\n{file},a\n")
    said = run("check", tmp_path / "list.csv", code=65)
    assert "absolute path: write" in said
    assert "link" not in said


def test_features_of_another_width_end_in_a_sentence(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), np.arange(40) % 2
    PathClassifier(epochs=1, features=lambda x: x).fit(X, y).save(tmp_path / "model")
    again = PathClassifier.load(tmp_path / "model", features=lambda x: x[:, :5])
    with pytest.raises(UsageError, match="vectors of 6 numbers, got 5"):
        again.predict(X)
    with pytest.raises(UsageError, match="vectors of 6 numbers, got 5"):
        again.partial_fit(X, y + 2)
    said = run("info", tmp_path / "model")
    assert re.search(r"\d+ training vectors are stored inside", said)
    assert "picture" not in said


def test_a_rename_costs_no_version_that_could_be_rolled_back_to(tmp_path):
    model = tmp_path / "model"
    for name in "abc":
        learn(model, pictures(tmp_path / name, name))
    run("rename", model, "a", "x")
    assert versions.kept(model) == [1, 2, 3, 4]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("wait", [0.05, 0.15, 0.4])
def test_ctrl_c_while_the_libraries_load_prints_no_traceback(wait):
    """From the moment that Python runs our code; what it does before that is its own."""
    code = "import sys, randpath.__main__ as m; print('up', flush=True); m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode in (0, 130), said) == (True, "")


def test_the_install_line_for_cpus_does_not_pull_cuda():
    lines = re.findall(r"^pip install .*torch.*$", (ROOT / "README.md").read_text(), re.M)
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned
    assert lines
    assert all(f"torch=={pinned[1]}+cpu" in line for line in lines)


@pytest.mark.parametrize("classes", [2, 11])
def test_what_is_said_of_the_highest_confidence_is_what_predict_may_say(classes):
    doubt = calibration.doubt(32)
    sure = calibration.probabilities(1e6 * np.eye(classes)[:1], 1.0, doubt)[0, 0]
    model = SimpleNamespace(
        history=[{"calibration_error": None}], doubt=doubt, novelty=None, names=list(range(classes))
    )
    (line,) = reading.confidence(model)
    assert f"above{reading.percent(sure)}:" in line
