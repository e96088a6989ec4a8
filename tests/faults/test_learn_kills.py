"""`randpath learn`, killed at 25 random moments: the model is the old one or the new one, loads and predicts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from test_learn_faults import School, digest
from tests.pictures import small_network

from randpath.data.dataset import Arrays
from randpath.model import versions
from randpath.model.model import Model
from randpath.storage import checkpoint

KILLS = 25


def killed(school: School, share: float, seconds: float) -> int:
    """The version that a learn killed after this share of its time leaves behind, once it was seen to be whole."""
    model = school.before("second")
    pid = school.server.start(*school.typed(model, "second"))
    time.sleep(share * seconds)
    with contextlib.suppress(ProcessLookupError):  # it was done already
        os.kill(pid, signal.SIGKILL)
    code = school.server.wait()
    number = versions.current(model)
    restored = Model.restore(versions.load(model, number), directory=model)
    shape = restored.start().shape if restored.plan.start else restored.plan.shape
    picture = Arrays(np.full((1, *shape), 128, np.uint8), np.zeros(1, np.int64))
    assert restored.probabilities(picture).shape == (1, 3 if number == 1 else 5)
    if code == 0:
        assert number == 2
    elif number == 1:
        school.check(model, "second")  # typed again, it ends as if it had never been killed
    else:
        checkpoint.remove(model)
    return number


@pytest.mark.faults
@pytest.mark.parametrize("start", [False, True], ids=["from scratch", "with a start"])
def test_the_model_is_always_the_old_or_the_new_one(tmp_path: Path, start: bool) -> None:
    options = []
    if start:
        pytest.importorskip("onnxruntime", reason="pip install 'randpath[start]'")
        (tmp_path / "small.onnx").write_bytes(small_network())
        options = ["--start", str(tmp_path / "small.onnx")]
    school, rng = School(tmp_path, *options), random.Random(0)
    try:
        model, began = school.before("second"), time.monotonic()
        assert school.server.do(*school.typed(model, "second")) == 0, school.server.output()
        seconds = time.monotonic() - began
        assert digest(model) == school.reference["second"]
        # Half of the moments lie anywhere, half near the end, where the directory changes.
        shares = [rng.uniform(0, 1) if kill % 2 else rng.uniform(0.7, 1) for kill in range(KILLS)]
        left = [killed(school, share, seconds) for share in shares]
    finally:
        school.server.close()
    print(f"{KILLS} kills: {left.count(1)} left the old model, {left.count(2)} the new one")
