"""The examples run, on few pictures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from randpath.data import named
from randpath.model import pretrained

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["features.py"], "learned (9,): right on"),
        (["grow.py", "--images", "20", "--epochs", "2", "--first", "20", "--more", "1"], "it now knows 21 classes"),
        (["unknown.py", "--images", "10", "--epochs", "1", "--steps", "2"], '"auroc": 0.'),
        (
            ["start.py", "--only", "mnist", "--digits", "5", "--tests", "2", "--epochs", "1"],
            "learn --start none, afresh",
        ),
        (["small_tree.py", "--images", "2"], "randpath paper large"),
        (["unknown_few.py", "--images", "5", "--seeds", "1"], '"strangers_above_99_percent": 0.0'),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_example(arguments, says, real_data, tmp_path):
    if arguments[0] == "start.py" and not pretrained.is_installed():
        pytest.skip("pip install 'randpath[start]'")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    if arguments[0] == "small_tree.py":
        arguments = [*arguments, str(tmp_path)]
    if arguments[0] != "features.py":
        environment["RANDPATH_DATA"] = str(
            real_data("mnist" if arguments[0] in ("start.py", "unknown_few.py") else "cifar100")
        )
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert process.returncode == 0, process.stderr
    assert says in process.stdout
    if arguments[0] == "small_tree.py":
        large, faces = (named.load(name, tmp_path, size=32) for name in ("imagenet100", "ms_celeb"))
        assert (len(large.train), len(large.test), len(large.class_names)) == (200, 2000, 100)
        assert (len(faces.train), len(faces.test), len(faces.class_names)) == (200, 2000, 100)
