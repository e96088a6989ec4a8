"""Runs: same seed, same bytes; serial, parallel, killed; resumed; refused when something changed."""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from randpath.bench.experiment import Experiment
from randpath.bench.provenance import environment
from randpath.bench.run import run, steps
from randpath.data import named
from randpath.data.dataset import Arrays
from randpath.engines.processes import Processes
from randpath.engines.serial import Serial
from randpath.errors import Changed, DeviceMissing, Stopped
from randpath.learning.train import Training
from randpath.report.record import result_of
from randpath.storage import checkpoint
from tests.commands import run as run_command
from tests.commands import start, stop_after

TINY = Experiment(
    recipe="tiny",
    dataset="digits",
    tasks=(4, 3, 3),
    backbone="mlp",
    width=16,
    modules=3,
    memory=60,
    padding=1,
    training=Training(epochs=2, batch=64),
    options={"N": 3, "switch_every": 1},
)


def digest(directory: Path) -> dict[str, str]:
    """SHA-256 of all that must be identical: weights, exemplars, paths, metrics, predictions."""
    files = [directory / "metrics.jsonl", directory / "epochs.jsonl", *sorted((directory / "predictions").iterdir())]
    for task in sorted((directory / "checkpoints").iterdir()):
        files += [f for f in sorted(task.iterdir()) if f.name not in ("MANIFEST.json", "times.json")]
    return {str(f.relative_to(directory)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reference")
    run(TINY, directory)
    return digest(directory)


def test_same_seed_same_bytes_and_another_seed_others(tmp_path, reference):
    run(TINY, tmp_path / "again")
    assert digest(tmp_path / "again") == reference
    run(replace(TINY, seed=1), tmp_path / "other")
    assert digest(tmp_path / "other") != reference


def test_what_lies_on_disk_is_the_contract(tmp_path):
    matrix = run(replace(TINY, options={"N": 1}), tmp_path)
    assert [len(row) for row in matrix] == [1, 2, 3]
    lines = checkpoint.read_lines(tmp_path / "metrics.jsonl")
    assert set(lines[0]) == {
        "k", "classes", "accuracy", "accuracy_by_task", "forgetting", "backward_transfer", "top5",
        "saturation", "switched", "path", "parameters_trained", "parameters", "megabytes", "flops",
    }  # fmt: skip
    assert lines[0]["forgetting"] is None
    assert 0 <= lines[2]["accuracy"] <= 1
    assert [len(line["classes"]) for line in lines] == [4, 7, 10]
    epochs = checkpoint.read_lines(tmp_path / "epochs.jsonl")
    assert set(epochs[0]) == {"k", "candidate", "epoch", "lr", "visits", "loss_ce", "loss_dist", "phi", "validation"}
    predictions = checkpoint.read_tensors(tmp_path / "predictions" / "3.safetensors")
    assert set(predictions) == {"label", "predicted", "confidence", "rank"}
    right = predictions["label"] == predictions["predicted"]
    assert ((predictions["rank"] == 0) == right).float().mean() > 0.99, "but for ties"
    assert lines[2]["top5"] == pytest.approx((predictions["rank"] < 5).float().mean().item())
    assert lines[2]["accuracy"] <= lines[2]["top5"] <= 1
    assert lines[0]["top5"] is None, "of four classes all are among the first five"
    document = checkpoint.read_document(tmp_path / "experiment.json")
    assert Experiment.from_json(document["experiment"]) == replace(TINY, options={"N": 1})
    assert document["data_fingerprint"]
    assert not (tmp_path / "work").exists()


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A run by a pool of two, and the CPU seconds of its workers."""
    directory = tmp_path_factory.mktemp("pooled")
    with Processes(2) as pool:
        run(TINY, directory, engine=pool)
        return directory, pool.cpu_seconds


def test_a_process_pool_gives_the_same_bytes_also_when_a_worker_is_killed(tmp_path, reference, pooled):
    assert digest(pooled[0]) == reference

    killed = []
    with Processes(2) as pool:

        class KillOnce:
            tick = staticmethod(pool.tick)
            cpu_seconds = 0.0

            def map(self, function, arguments):
                if not killed and pool._workers:
                    killed.append(pool._workers[0].process.pid)
                    os.kill(killed[0], signal.SIGKILL)
                return pool.map(function, arguments)

        run(TINY, tmp_path / "killed", engine=KillOnce())
    assert killed
    assert digest(tmp_path / "killed") == reference


@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_stopped_run_goes_on_exactly(tmp_path, reference, after):
    left = after

    def tick(done):
        nonlocal left
        left -= 1
        if left == 0:
            raise Stopped()

    with pytest.raises(Stopped):
        run(TINY, tmp_path, engine=Serial(tick))
    run(TINY, tmp_path)
    assert digest(tmp_path) == reference


def test_what_a_run_costs_is_recorded(tmp_path, pooled):
    directory, by_workers = pooled
    recorded = result_of(directory, "randpath bench tiny")
    train = checkpoint.read_lines(directory / "epochs.jsonl")
    assert sum(recorded["visits"]) == sum(line["visits"] for line in train)
    assert recorded["visits"][0] == 3 * 2 * train[0]["visits"]  # three candidates, two epochs
    assert min(recorded["cpu_seconds"]) > 0
    assert sum(recorded["cpu_seconds"]) > by_workers > 0

    def tick(done):
        if done > 0.4:
            raise Stopped()

    with pytest.raises(Stopped):
        run(TINY, tmp_path / "stopped", engine=Serial(tick))
    run(TINY, tmp_path / "stopped")
    again = result_of(tmp_path / "stopped", "randpath bench tiny")
    assert again["cpu_seconds"][0] is None  # what the first process spent, nobody counted
    assert min(again["cpu_seconds"][1:]) > 0
    assert again["visits"] == recorded["visits"]


def test_a_finished_run_is_only_read(tmp_path, reference, monkeypatch):
    run(TINY, tmp_path)
    document = (tmp_path / "experiment.json").read_bytes()
    monkeypatch.setattr("randpath.bench.begin.commit", lambda: "another")
    assert len(run(TINY, tmp_path)) == 3
    assert digest(tmp_path) == reference
    assert (tmp_path / "experiment.json").read_bytes() == document


def test_a_changed_setting_is_refused_by_name(tmp_path):
    next(steps(TINY, tmp_path))
    with pytest.raises(Changed, match=r"memory: 60 then, 61 now"):
        run(replace(TINY, memory=61), tmp_path)


def test_a_run_that_began_before_a_setting_existed_goes_on(tmp_path, reference):
    next(steps(TINY, tmp_path))
    name, saved = checkpoint.latest(tmp_path / "checkpoints")
    del saved.documents["run"]["experiment"]["validation"]
    del saved.documents["run"]["experiment"]["jitter"]  # its default is a tuple, in files a list
    del saved.documents["run"]["experiment"]["training"]["first_factor"]
    checkpoint.discard(tmp_path / "checkpoints")
    checkpoint.save(tmp_path / "checkpoints", name, saved.tensors, saved.documents)
    assert len(run(TINY, tmp_path)) == 3
    after = digest(tmp_path)
    assert all(after[f] == reference[f] for f in after if not f.endswith("run.json"))


def test_one_task_is_a_run(tmp_path):
    run(replace(TINY, tasks=1), tmp_path)
    recorded = result_of(tmp_path, "randpath bench tiny")
    assert (recorded["num_tasks"], recorded["forgetting"]) == (1, None)
    assert recorded["accuracy"][0] == recorded["average"]


def test_other_test_images_change_no_weight(tmp_path, monkeypatch):
    digits = named.load("digits")
    run(TINY, tmp_path / "as-they-are")
    noise = np.random.default_rng(0).integers(0, 256, digits.test.items.shape).astype(np.uint8)
    monkeypatch.setattr(
        "randpath.bench.run.named.load", lambda *_, **__: replace(digits, test=Arrays(noise, digits.test.labels))
    )
    run(TINY, tmp_path / "noise")
    last = [checkpoint.latest(tmp_path / name / "checkpoints")[1] for name in ("as-they-are", "noise")]
    assert last[0].documents["metrics"] != last[1].documents["metrics"]
    assert last[0].documents["epochs"] == last[1].documents["epochs"]
    for group, tensors in last[0].tensors.items():
        assert all(np.array_equal(tensor, last[1].tensors[group][name]) for name, tensor in tensors.items())


def test_without_validation_all_images_train_one_candidate_and_fill_the_memory(tmp_path):
    run(replace(TINY, validation=False), tmp_path)
    lines = checkpoint.read_lines(tmp_path / "epochs.jsonl")
    assert {line["candidate"] for line in lines} == {0}
    assert {line["validation"] for line in lines} == {None}
    _, saved = checkpoint.latest(tmp_path / "checkpoints")
    assert "memory_val" not in saved.tensors
    assert len(saved.tensors["memory_train"]["labels"]) == 60


def test_another_environment_is_refused_unless_inexact(tmp_path, monkeypatch):
    next(steps(TINY, tmp_path))
    now = environment()
    monkeypatch.setattr("randpath.bench.begin.environment", lambda: {**now, "torch": "2.0.0"})
    with pytest.raises(Changed, match=r"torch: '.*' then, '2.0.0' now"):
        run(TINY, tmp_path)
    assert len(run(TINY, tmp_path, inexact=True)) == 3
    assert checkpoint.read_document(tmp_path / "experiment.json")["inexact"]


def test_unknown_settings_methods_and_options_are_named():
    with pytest.raises(ValueError, match="there is no setting 'epochs'"):
        TINY.changed("epochs", 3)
    with pytest.raises(ValueError, match="training has no 'epoch'"):
        TINY.changed("training.epoch", 3)
    with pytest.raises(ValueError, match="there is no method 'ewd'"):
        next(steps(replace(TINY, method="ewd"), Path("unused")))
    with pytest.raises(ValueError, match="gama"):
        next(steps(TINY.changed("options.gama", 1), Path("unused")))
    assert not Path("unused").exists()


@pytest.mark.parametrize(
    "setting",
    [
        "tasks=2.5", "tasks=true", "tasks=[]", "class_order=[0,1]", "class_order=-1", "threads=0", "width=-1",
        "width=0", "degrees=abc", "dataset=3", 'dataset=""',
        "skip_bad=maybe", "validation=maybe", "processes=0", "memory=abc", "padding=-1",
        "jitter=0.5", "jitter=[0.5,2,0]", "jitter=[0.5]",
        "attention=foo", "modules=0", "seed=-1", "options.N=0", "options.threshold=abc", "options.switch_every=0",
        "options.temperature=0", "training.epochs=0", "training.batch=abc", "training.lr=fast", "training.lr=-1",
        "training.optimizer=lion", "training.schedule=constant", "memory=3", "backbone=resnet",
        "training.halve_after=0.5", "training.halve_after=[2]", "training.smoothing=2", "training.small_side=-3",
        "training.first_factor=-1", "options.controller=x", "variant=paper", "recipe=mnist_5",
        "training.small_side=16", "options=3", "training=3", "nonsense=1", "memory",
    ],
)  # fmt: skip
def test_a_setting_that_no_run_can_use_is_refused_before_anything_is_written(setting, tmp_path):
    with pytest.raises(ValueError):
        next(steps(TINY.with_settings([setting]), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_missing_device_is_named(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceMissing, match="cuda"):
        run(replace(TINY, device="cuda"), tmp_path)


@pytest.mark.parametrize("method", ["finetune", "rehearsal", "joint"])
def test_the_baselines_run_and_the_result_is_complete(tmp_path, method):
    run(replace(TINY, method=method, options={}), tmp_path)
    recorded = result_of(tmp_path, "randpath bench tiny")
    assert recorded["num_tasks"] == 3
    assert recorded["forgetting"] is not None
    assert recorded["switched"] == [None] * 3


SLOW = """
from dataclasses import replace
from randpath.bench.experiment import Experiment
from randpath.learning.train import Training
paper = Experiment(recipe="slow", dataset="digits", tasks=(2, 8), backbone="mlp", width=16, modules=2, memory=60,
                   training=Training(epochs=5, batch=16), options={"N": 1})
tuned = replace(paper, variant="tuned")
"""


def test_ctrl_c_saves_says_how_to_go_on_and_the_end_is_the_same(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    code, said = stop_after(start("bench", "slow.py", "--out", "cut", cwd=tmp_path), "task 1 of 2", signal.SIGINT)
    assert code == 130, said
    assert "randpath resume cut" in said
    run_command("bench", "slow.py", "--out", "whole", cwd=tmp_path)
    run_command("resume", "cut", cwd=tmp_path)
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")
    assert "accuracy" in run_command("resume", "cut", cwd=tmp_path), "a finished run shows its table again"
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["bench", "nonesuch"], 64, "there is no recipe 'nonesuch'; there are"),
        (["bench", "digits_5", "--sed", "1"], 64, "--seed"),
        (["bench", "digits_5", "--set", "memory"], 64, "key=value"),
        (["bench", "digits_5", "--set", "memory=-3"], 64, "memory must be a whole number of at least 0"),
        (["bench", "digits_5", "--set", "device=cuda"], 69, "cuda"),
        (["bench", "digits_5", "--set", "training.optimizer=sgd", "--set", "training.lr=1e30"], 70, "not finite"),
        (["bench", "digits_5", "--record"], 64, "docs/results"),
        (["resume", "nowhere"], 64, "not a run directory"),
        (["nonesuch"], 64, "nonesuch"),
    ],
)
def test_mistakes_end_in_a_sentence_and_an_exit_code(arguments, code, says, tmp_path):
    assert says in " ".join(run_command(*arguments, code=code, cwd=tmp_path).split())


def test_help_imports_no_torch():
    code = (
        "import sys; from randpath.commands.app import main\n"
        "try: main(['--help'])\nexcept SystemExit as e: assert e.code in (0, None)\n"
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_bench_refuses_a_directory_that_holds_a_run(tmp_path):
    next(steps(TINY, tmp_path / "held"))
    assert "randpath resume held" in run_command("bench", "digits_5", "--out", "held", code=64, cwd=tmp_path)
