"""Many runs of a recipe: which, where, again; as a table, as curves, and loaded into Python."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch

from randpath import load_run
from randpath.bench.cells import NAMED, Cell, cells, typed
from randpath.bench.experiment import Experiment
from randpath.bench.load import Run
from randpath.bench.run import evaluate, run, steps
from randpath.commands import bench as commands
from randpath.commands.table import curves, table
from randpath.commands.terminal import task_line
from randpath.data import named
from randpath.data.augment import Augment
from randpath.data.stream import TaskStream
from randpath.errors import Damaged, DeviceMissing, UsageError
from randpath.learning import method as learning_method
from randpath.learning.train import Training
from randpath.methods import METHODS
from randpath.report.record import result_of
from randpath.storage import checkpoint
from tests.made_runs import made_run

RECIPE = """
from randpath import Experiment, Training, replace
paper = Experiment("digits", (4, 3, 3), backbone="mlp", width=16, modules=2, memory=60, padding=1,
                   training=Training(epochs=1, batch=64), options={"N": 1})
tuned = replace(paper, variant="tuned")
"""


def test_all_is_every_method_and_every_named_variant():
    every = cells("all", list(METHODS), "0,1")
    assert len(every) == 2 * (len(METHODS) + len(NAMED))
    genetic = next(cell for cell in every if cell.name == "genetic")
    assert genetic.arguments("mnist_5", "paper") == [
        "bench", "mnist_5", "--variant", "paper", "--method", "rps", "--seed", "0",
        "--set", "options.search=tournament", "--set", "options.N=8", "--set", "validation=true",
    ]  # fmt: skip


def test_a_grid_is_crossed_and_names_its_directory():
    made = cells("gem", ["gem"], "3", ["padding=1"], ["memory=50,100", "options.margin=0,0.5"])
    assert [cell.directory for cell in made] == [
        "gem-3-padding=1-memory=50-options.margin=0",
        "gem-3-padding=1-memory=50-options.margin=0.5",
        "gem-3-padding=1-memory=100-options.margin=0",
        "gem-3-padding=1-memory=100-options.margin=0.5",
    ]
    assert Cell("gem", 0, ("dataset=folder:/a b",)).directory == "gem-0-dataset=folder__a_b"


@pytest.mark.parametrize(
    ("methods", "seeds", "grid", "says"),
    [
        ("gme", "0", [], "there is no method 'gme'"),
        ("gem", "0;1", [], "whole numbers"),
        ("gem", "0", ["memory"], "key=value"),
    ],
)
def test_a_slip_is_named_before_anything_runs(methods, seeds, grid, says):
    with pytest.raises(UsageError, match=says):
        cells(methods, ["gem"], seeds, grid=grid)


def bench(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "randpath", "bench", "tiny.py", "--variant", "paper", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_failing_cell_is_named_and_the_others_finish_and_a_second_call_runs_only_what_is_left(tmp_path):
    (tmp_path / "tiny.py").write_text(RECIPE)
    first = bench(tmp_path, "--methods", "finetune,dmc,joint", "--seeds", "0", "--out", "runs", "--jobs", "2")
    assert first.returncode == UsageError.exit_code, first.stdout + first.stderr
    assert "2 of 3 runs are finished" in first.stdout
    assert "not dmc-0 (exit" in first.stdout
    assert "pictures of other things" in first.stdout
    again = bench(tmp_path, "--methods", "finetune,joint", "--seeds", "0", "--out", "runs")
    assert again.returncode == 0
    assert again.stdout.count("was finished before") == 2
    shown = subprocess.run(
        [sys.executable, "-m", "randpath", "table", "runs/finetune-0", "runs/joint-0", "runs/joint-0.txt"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.index("joint") < shown.stdout.index("finetune"), "the best first"


def test_a_run_with_other_settings_is_not_taken_for_finished_and_a_damaged_one_stops_no_other(tmp_path):
    (tmp_path / "tiny.py").write_text(RECIPE)
    assert bench(tmp_path, "--methods", "finetune", "--seeds", "0", "--out", "runs").returncode == 0
    (tmp_path / "tiny.py").write_text(RECIPE.replace("epochs=1", "epochs=2"))
    (tmp_path / "runs" / "lwf-0").mkdir()
    (tmp_path / "runs" / "lwf-0" / "experiment.json").write_text('{"experiment": {')
    again = bench(tmp_path, "--methods", "finetune,lwf,joint", "--seeds", "0", "--out", "runs", "--jobs", "2")
    assert again.returncode == UsageError.exit_code, again.stdout + again.stderr
    assert "holds another run (training.epochs: 1 then, 2 now)" in again.stdout
    assert f"not lwf-0 (exit {Damaged.exit_code})" in again.stdout
    assert "joint-0: finished" in again.stdout
    assert "Traceback" not in again.stderr


def test_a_table_tells_apart_what_the_commands_do_not(tmp_path, capsys):
    """Runs made from Python have no command, and those of a file that was changed have the same one."""
    small = [made_run(tmp_path / f"small{seed}", seed=seed, memory=20, command="") for seed in range(2)]
    large = made_run(tmp_path / "large", seed=2, memory=1000, command="")
    assert table(*small, large) == 0
    rows = [[cell.strip() for cell in line.split("|")[3:6]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert sorted((changed, n) for changed, n, _ in rows) == [("memory=1000", "1"), ("memory=20", "2")]
    one, other = "--set memory=20 --set width=7", "--set width=7 --set memory=20"
    same = [
        made_run(tmp_path / str(i), seed=i, memory=20, width=7, command=f"randpath bench made {typed}")
        for i, typed in enumerate((one, other))
    ]
    assert table(*same) == 0
    (row,) = capsys.readouterr().out.splitlines()[2:]
    assert [cell.strip() for cell in row.split("|")[3:5]] == ["memory=20, width=7", "2"]


def test_forward_transfer_is_against_the_one_joint_training_of_the_same_variant(tmp_path, capsys):
    ours = made_run(tmp_path / "ours", variant="tuned")
    joint = [
        made_run(tmp_path / variant, method="joint", variant=variant, seed=0, memory=i)
        for i, variant in enumerate(("tuned", "paper"))
    ]

    def forward(*runs):
        assert table(*runs) == 0
        head, _, *rows = [[c.strip() for c in line.split("|")] for line in capsys.readouterr().out.splitlines()]
        return next(row[head.index("forward, %")] for row in rows if row[1] == "rps")

    known = forward(ours, joint[0])
    assert known != "-"
    assert forward(ours, *joint) == known
    assert forward(ours, *joint, made_run(tmp_path / "again", method="joint", variant="tuned", memory=9)) == "-"


def test_a_table_names_the_damaged_file(tmp_path):
    run_ = made_run(tmp_path / "run")
    lines = (run_ / "metrics.jsonl").read_text()
    (run_ / "metrics.jsonl").write_text(lines.replace('"flops"', '"flips"'))
    with pytest.raises(Damaged, match="'flops' is missing") as refused:
        table(run_)
    assert "metrics.jsonl" in refused.value.where
    (run_ / "metrics.jsonl").write_text(lines[:-20])
    with pytest.raises(Damaged) as refused:
        table(run_)
    assert "metrics.jsonl" in refused.value.where


def test_a_table_has_mean_deviation_and_n_and_refuses_an_unfinished_run(tmp_path, capsys):
    runs = [made_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    assert table(*runs) == 0
    assert "±" in capsys.readouterr().out
    assert curves(*runs) == 0
    assert "A_3" in capsys.readouterr().out
    half = made_run(tmp_path / "half", learned=1)
    for command in (table, curves):
        with pytest.raises(UsageError, match="not finished"):
            command(*runs, half)
    with pytest.raises(UsageError, match="no run directory"):
        table(tmp_path)


@pytest.mark.parametrize("method", ["rps", "rehearsal"])
def test_a_run_is_loaded_with_its_weights(tmp_path, method):
    experiment = Experiment(
        "digits", (4, 3, 3), recipe="tiny", method=method, backbone="mlp", width=16, modules=2, memory=60, padding=1,
        training=Training(epochs=2, batch=64), options={"N": 1} if method == "rps" else {},
    )  # fmt: skip
    matrix = run(experiment, tmp_path)
    loaded = load_run(tmp_path)
    assert loaded.experiment == experiment
    assert loaded.matrix == matrix
    assert loaded.summary()["final"] == loaded.accuracy[-1]
    assert loaded.confusion().sum() == 450
    assert np.trace(loaded.confusion()) / 450 == pytest.approx(loaded.accuracy[-1])
    assert (loaded.paths[-1] is None) == (method != "rps")
    images = named.load("digits").test.items[:7]
    features = loaded.features(images)
    assert features.shape == (7, 16)
    q = loaded.method.inference().head(torch.from_numpy(features))
    assert q.shape == (7, 10)
    with pytest.raises(UsageError, match="not a run directory"):
        load_run(tmp_path / "nothing")
    with pytest.raises(UsageError, match="kept no logits") as refused:
        loaded.logits()
    assert "logits=true" in refused.value.next


def test_logits_are_kept_on_request_and_change_nothing_else(tmp_path):
    experiment = Experiment(
        "digits", (4, 3, 3), recipe="tiny", method="icarl", backbone="mlp", width=16, memory=60, padding=1,
        training=Training(epochs=1, batch=64),
    )  # fmt: skip
    run(experiment, tmp_path / "without")
    run(replace(experiment, logits=True), tmp_path / "with")
    for name in ("metrics.jsonl", "epochs.jsonl"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    loaded = load_run(tmp_path / "with")
    for k, classes in ((1, 4), (2, 7), (3, 10)):
        q, answers = loaded.logits(k), loaded.predictions(k)
        assert q.dtype == np.float16
        assert q.shape == (len(answers["label"]), classes)
    same = load_run(tmp_path / "without").predictions()
    assert all(np.array_equal(same[name], answers[name]) for name in same)
    source = named.load("digits")
    x = Augment(source.mean, source.std).plain(torch.from_numpy(source.test.items[source.test.labels < 4][:1]))
    with torch.no_grad():
        exact = loaded.method.inference()(x).numpy()
    assert np.abs(q - exact).max(axis=1).min() < 1e-2  # it is among them
    run(replace(experiment, logits=True), tmp_path / "without")  # free to change: a finished run is read


def test_a_logit_too_large_for_float16_stays_finite():
    source = named.load("digits")
    stream = TaskStream(source, 5, "natural", seed=0)
    huge = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    torch.nn.init.constant_(huge[1].weight, 1e6)
    _, answers = evaluate(huge, stream, "cpu", 1, keep_logits=True)
    assert np.isfinite(answers["logits"]).all()
    assert np.abs(answers["logits"]).max() == 65504


def test_test_images_of_two_tasks_are_asked_about_side_by_side_to_the_same_bits():
    stream = TaskStream(named.load("digits"), 5, "natural", seed=0)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
    both_are_here = Barrier(2)

    class Waiting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both_are_here.wait(timeout=60)  # else it raises
            return net(x)

    by_task, answers = evaluate(Waiting(), stream, "cpu", 4, keep_logits=True, at_once=2)
    expected, alone = evaluate(net, stream, "cpu", 4, keep_logits=True)
    assert by_task == expected and len(set(by_task)) > 1
    assert all(np.array_equal(answers[name], alone[name]) for name in alone)


def test_icarl_tells_the_accuracy_of_its_head_beside_that_of_the_nearest_mean(tmp_path, capsys):
    experiment = Experiment(
        "digits", (4, 3, 3), recipe="tiny", method="icarl", backbone="mlp", width=16, memory=60, padding=1,
        training=Training(epochs=2, batch=64),
    )  # fmt: skip
    lines = list(steps(experiment, tmp_path / "run"))
    assert [line["own"]["nearest mean"] for line in lines] == [line["accuracy"] for line in lines]
    loaded = load_run(tmp_path / "run")
    source = named.load("digits")
    x = Augment(source.mean, source.std).plain(torch.from_numpy(source.test.items))
    with torch.no_grad():
        guess = loaded.method.inference().extractor(x).argmax(dim=1).numpy()
    assert loaded.lines[-1]["own"]["head"] == pytest.approx(float(np.mean(guess == source.test.labels)))
    assert "head" in task_line(lines[-1], 3)
    result = result_of(tmp_path / "run", "randpath bench tiny")
    assert result["own"] == [line["own"] for line in lines]
    assert table(tmp_path / "run") == 0
    assert f"head {100 * lines[-1]['own']['head']:.2f}, nearest mean" in capsys.readouterr().out


def test_forward_transfer_is_measured_against_joint_training(tmp_path, capsys):
    """Just after they were learned, tasks 2 and 3: 0.8 and 0.5 here, 0.9 and 0.8 there; the mean of -0.1 and -0.3."""
    rows = {"rps": [[1.0], [0.6, 0.8], [0.5, 0.4, 0.5]], "joint": [[1.0], [0.9, 0.9], [0.9, 0.9, 0.8]]}
    runs = {}
    for method, matrix in rows.items():
        place = made_run(tmp_path / method, method=method)
        lines = checkpoint.read_lines(place / "metrics.jsonl")
        lines = [{**line, "accuracy_by_task": row} for line, row in zip(lines, matrix)]
        checkpoint.write_lines(place / "metrics.jsonl", lines)
        runs[method] = Run(place, Experiment("digits", 3), tuple(lines[-1]["classes"]), lines, [])
    assert table(tmp_path / "rps", tmp_path / "joint") == 0
    out = capsys.readouterr().out.splitlines()
    column = [name.strip() for name in out[0].split("|")].index("forward, %")
    told = {row.split("|")[1].strip(): row.split("|")[column].strip() for row in out[2:]}
    assert told == {"rps": "-20.00", "joint": "-"}
    assert runs["rps"].forward_transfer(runs["joint"]) == pytest.approx(-0.2)
    with pytest.raises(UsageError, match="have not learned the same tasks"):
        runs["rps"].forward_transfer(replace(runs["joint"], lines=runs["joint"].lines[:2]))


def test_what_a_method_notes_of_a_task_is_kept_and_said_once(tmp_path):
    experiment = Experiment(
        "digits", (4, 3, 3), recipe="tiny", method="finetune", backbone="mlp", width=16, memory=60, padding=1,
        training=Training(epochs=1, batch=64),
    )  # fmt: skip
    said = [line["notes"] for line in steps(experiment, tmp_path)]
    assert [len(notes) for notes in said] == [1, 0, 0]
    assert load_run(tmp_path).notes == said
    assert [line["notes"] for line in steps(experiment, tmp_path)] == [[], [], []]


def test_a_method_without_metrics_of_its_own_has_no_column_for_them(tmp_path, capsys):
    made_run(tmp_path / "one")
    assert "own" not in checkpoint.read_lines(tmp_path / "one" / "metrics.jsonl")[0]
    assert table(tmp_path / "one") == 0
    assert "its own" not in capsys.readouterr().out


def test_a_named_variant_is_a_method_of_one_run_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tiny.py").write_text(RECIPE)
    assert commands.bench("tiny.py", variant="paper", method="rps2019", set_=("options.switch_every=1",)) == 0
    place = Path("runs/tiny-rps2019-paper-0")
    e = load_run(place).experiment
    assert (e.method, e.attention, e.options) == ("rps", "none", {"N": 1, "switch_every": 1})  # what is typed wins
    alone = Cell("rps2019", 0, ("options.switch_every=1",)).arguments("tiny.py", "paper")
    assert checkpoint.read_document(place / "experiment.json")["command"] == typed(alone)  # one record, not two
    capsys.readouterr()
    assert commands.methods("genetic") == 0
    assert "rps with options.search=tournament" in capsys.readouterr().out


def test_a_device_is_named_by_an_option_and_refused_where_it_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.py").write_text(RECIPE)
    with pytest.raises(DeviceMissing, match="'cuda:9' is not there"):
        commands.bench("tiny.py", variant="paper", device="cuda:9")
    assert not Path("runs/tiny-rps-paper-0/experiment.json").exists()
    monkeypatch.setattr(learning_method, "lacks_bfloat16", lambda: "this CPU does not compute in bfloat16")
    with pytest.raises(DeviceMissing, match="does not compute in bfloat16"):
        commands.bench("tiny.py", variant="paper", device="cpu", set_=("training.mixed=true",))
