"""A run becomes a recorded result when it is finished, and not before."""

from itertools import islice

import pytest

from randpath.bench.experiment import Experiment
from randpath.bench.run import run, steps
from randpath.errors import RandpathError
from randpath.learning.train import Training
from randpath.report.record import append_result, result_of, results_of

TINY = Experiment(
    recipe="tiny",
    dataset="digits",
    tasks=(4, 6),
    backbone="mlp",
    width=16,
    modules=2,
    memory=60,
    training=Training(epochs=1, batch=64),
    options={"N": 1},
)


def test_an_unfinished_run_is_refused_until_it_is_resumed(tmp_path):
    assert len(list(islice(steps(TINY, tmp_path, command="randpath bench tiny"), 1))) == 1
    with pytest.raises(RandpathError, match="1 of 2 tasks are learned") as refused:
        result_of(tmp_path, "randpath bench tiny")
    assert refused.value.next == f"randpath resume {tmp_path}"
    assert refused.value.exit_code == 64
    run(TINY, tmp_path)
    result = result_of(tmp_path, "randpath bench tiny")
    assert result["num_tasks"] == len(result["accuracy"]) == 2


def test_the_same_command_replaces_its_older_record(tmp_path):
    file = tmp_path / "tiny.json"
    for accuracy, command in ((0.1, "a"), (0.2, "b"), (0.3, "a")):
        append_result(file, {"command": command, "accuracy": accuracy})
    assert [r["accuracy"] for r in results_of(tmp_path, "tiny")] == [0.2, 0.3]
    assert results_of(tmp_path, "other") == []
