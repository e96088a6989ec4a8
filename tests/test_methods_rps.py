"""What Adaptive RPS-Net says of itself."""

import pytest

from randpath.bench.experiment import Experiment
from randpath.bench.run import steps
from randpath.learning.train import Training
from randpath.methods.rps import RPS
from randpath.storage import checkpoint
from tests.commands import run
from tests.school import pictures, tiny


@pytest.mark.parametrize(
    ("settings", "phis"),
    [
        (["options.gamma=0.5"], [None, 0.5, 1.0]),  # below 1 after the first switch: told, once
        (["memory=1200"], [None, 0.451667, 0.891667]),  # gamma by the paper's rule: images of the task / 1,200
        (["options.gamma=2"], [None, 2, 4]),
        (["options.gamma=0.5", "options.controller=ratio"], [None, 0.5 * (2 / 4) ** 0.5, 0.5 * (6 / 4) ** 0.5]),
    ],
)
def test_phi_below_1_after_the_first_switch_is_told_once(tmp_path, settings, phis):
    experiment = Experiment(
        "digits", (2, 4, 4), backbone="mlp", width=8, modules=3, memory=40, training=Training(epochs=1, batch=256)
    )
    experiment = experiment.with_settings(["options.N=1", "options.switch_every=1", *settings])
    notes = [line["notes"] for line in steps(experiment, tmp_path)]
    told = [[note for note in task if "phi falls from 1" in note] for task in notes]
    falls = "controller" not in str(settings) and phis[1] < 1
    assert [len(task) for task in told] == [0, int(falls), 0]
    assert not falls or f"to {phis[1]:.3g} after" in told[1][0]
    lines = checkpoint.read_lines(tmp_path / "epochs.jsonl")
    assert lines[0]["phi"] is None  # the first task has no teacher
    assert [line["phi"] for line in lines[1:]] == pytest.approx(phis[1:], abs=1e-4)


def test_learn_speaks_of_capacity_and_leaves_what_concerns_the_paper_to_bench(tmp_path, monkeypatch):
    """One class has no mu_sat; after a switch, phi falls below 1."""
    monkeypatch.setattr(RPS, "_should_switch", lambda *_: True)
    said = ""
    with tiny():
        for names in ("a", "bc", "de"):
            said += run("learn", tmp_path / "model", pictures(tmp_path / names, *names), "--epochs", 1)
    assert "capacity: the present modules are full" in said
    assert "phi" not in said
    assert "gamma" not in said
    assert "mu_sat" not in said
