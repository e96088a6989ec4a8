"""Kill `randpath learn` at random moments: the model is the old one or the new one, loads and predicts."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from randpath import versions
from randpath.images import Arrays
from randpath.keyed import rng
from randpath.model import Model
from tests.pictures import pixels, put
from tests.test_model_commands import ENVIRONMENT, run, tree

KILLS = 25


def learn(model: Path, folder: Path) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-m", "randpath.cli", "learn", str(model), str(folder), "--epochs", "4"]
    return subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.faults
def test_the_model_is_always_the_old_or_the_new_one(tmp_path):
    for number in range(4):
        for i in range(12):
            put(tmp_path / ("first" if number < 2 else "second") / f"class {number}" / f"{i}.png", f"{number}-{i}")
    old, new = tmp_path / "old", tmp_path / "new"
    run("learn", old, tmp_path / "first", "--epochs", 4)
    shutil.copytree(old, new)
    began = time.monotonic()
    run("learn", new, tmp_path / "second", "--epochs", 4)
    seconds = time.monotonic() - began  # how long one takes; the moments are shares of it, however busy the machine
    before, after = tree(old), tree(new)
    picture = Arrays(np.stack([pixels(0, 32, 32)]), np.zeros(1, np.int64))
    ended = {"old": 0, "new": 0}
    for kill in range(KILLS):
        model = tmp_path / f"killed-{kill}"
        shutil.copytree(old, model)
        process = learn(model, tmp_path / "second")
        try:
            # Half of the moments lie anywhere, half of them near the end, where the directory changes.
            share = rng("kill", kill).uniform(*((0.0, 1.1) if kill % 2 else (0.8, 1.1)))
            process.wait(share * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        number, saved = versions.load(model)
        p = Model.restore(saved).probabilities(picture)
        assert p.shape == (1, 2 if number == 1 else 4)
        whole = {name: data for name, data in tree(model).items() if f"versions/{number:06d}" in name}
        assert whole == {name: data for name, data in (before if number == 1 else after).items() if name in whole}
        ended["old" if number == 1 else "new"] += 1
        if kill % 5 == 0:  # typed again, it comes to the same end
            if number == 1:
                run("learn", model, tmp_path / "second", "--epochs", 4)
            assert tree(model).items() >= {k: v for k, v in after.items() if "000002" in k}.items()
        shutil.rmtree(model)
    print(f"{KILLS} kills: {ended['old']} left the old model, {ended['new']} the new one")
