"""Faults that a reader found, each tried from outside."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from randpath.commands.app import main
from randpath.engines.serial import Part, Serial
from randpath.errors import Damaged
from randpath.learning.method import Work
from randpath.learning.projection import project
from randpath.methods import METHODS
from randpath.methods.der import DER
from randpath.model.model import Model
from randpath.network.backbones import Backbone
from randpath.network.path import Path
from tests.checks import setting, task, tasks


def whitened(**changes):
    return replace(setting(**changes), backbone=Backbone("compact", (8, 8, 1), 3, "none", 8, stem="whiten"))


NO_STEM = ("dgr", "rtf", "ncm", "slda", "ranpac", "logistic", "joint_logistic")  # small pictures, or no network at all


@pytest.mark.parametrize("name", [name for name in METHODS if name not in NO_STEM])
def test_every_method_makes_its_whitening_stems(name):
    method = METHODS[name](whitened(), **({"N": 1} if name == "rps" else {}))
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    stems = {k: t for k, t in method.state_dict().tensors["weights"].items() if k.endswith("stem.filters")}
    assert stems
    assert all(filters.any() for filters in stems.values()), "a stem of zeros lets nothing through"


@pytest.mark.parametrize("attention", ["peak", "mean"])
def test_a_new_module_under_attention_is_never_silent(attention):
    net = Backbone("mlp", (8, 8, 1), 2, attention, 8).build(0)
    before, after = Path.of([[1, 0]] * 2), Path.of([[1, 1]] * 2)
    net.open(after, before, before, "zero")
    assert net.layers[-1].parallel[1].weight.any()
    assert not net.layers[0].parallel[1][1].weight.any()


def test_der_stores_each_extractor_once():
    method = DER(setting(), balance_epochs=0)
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    tensors = method.state_dict().tensors
    assert "expanded" not in tensors
    assert sum(name.endswith("layers.1.parallel.0.weight") for name in tensors["weights"]) == 2
    again = DER(setting(), balance_epochs=0)
    again.load_state_dict(method.state_dict())
    assert again.expanded.extractors[-1] is again.net


def test_a_gradient_that_is_not_finite_is_left_for_the_loop_to_name():
    g = torch.tensor([float("nan"), 1.0])
    assert project(g, torch.tensor([[1.0, 0.0]])) is g


def test_a_part_of_the_work_keeps_its_engine_and_scales_its_ticks():
    heard = []
    whole = Serial(heard.append)
    list(Part(whole, 1, 4).map(lambda argument, tick: tick(0.5), [0, 1]))
    assert heard == [0.3125, 0.4375]
    assert whole.tick == heard.append
    assert Work(whole).part(0, 2).engine.whole is whole


def test_no_memory_left_is_not_taken_for_damage(monkeypatch):
    def no_memory(saved, device):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Model, "_restore", no_memory)
    with pytest.raises(RuntimeError, match="allocate") as error:
        Model.restore(None)
    assert not isinstance(error.value, Damaged)


def test_many_runs_of_a_file_of_ones_own_take_its_method_and_refuse_a_foreign_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from randpath import Experiment, Training, replace\n"
        "tuned = Experiment(dataset='digits', tasks=2, method='finetune', backbone='mlp', width=8, modules=1,\n"
        "                   memory=20, training=Training(epochs=1))\n"
        "paper = replace(tuned, variant='paper')\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["bench", "mine.py", "--seeds", "0", "--out", "runs"])
    assert left.value.code == 0
    assert json.loads((tmp_path / "runs" / "finetune-0" / "experiment.json").read_text())["experiment"]["method"]
    with pytest.raises(SystemExit) as left:
        main(["bench", "mine.py", "--variant", "paper", "--seeds", "0", "--out", "runs"])
    assert left.value.code == 64
    assert "holds another run (variant: 'tuned' then, 'paper' now)" in capsys.readouterr().out.replace("\n", " ")


def test_one_task_after_another_is_still_learned_with_a_stem():
    method = METHODS["progressive"](whitened())
    method.learn(task(1, range(2)), Work())
    assert method.columns.columns[0].net.stem.is_made


def test_many_runs_that_are_terminated_save_themselves(tmp_path):
    (tmp_path / "long.py").write_text(
        "from randpath import Experiment, Training\n"
        "tuned = Experiment(dataset='digits', tasks=2, method='finetune', backbone='mlp', width=8, modules=1,\n"
        "                   memory=20, training=Training(epochs=100000))\n"
    )
    typed = [sys.executable, "-m", "randpath", "bench", "long.py", "--seeds", "0", "--out", "runs"]
    parent = subprocess.Popen(typed, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    for _ in range(600):
        if (tmp_path / "runs" / "finetune-0" / "experiment.json").exists():
            break
        time.sleep(0.1)
    time.sleep(1)
    parent.send_signal(signal.SIGTERM)
    said, _ = parent.communicate(timeout=120)
    assert parent.returncode == 143
    assert "the same command goes on from here" in said
    assert "randpath resume" in (tmp_path / "runs" / "finetune-0.txt").read_text()
