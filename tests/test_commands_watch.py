"""A run says where it stands: on a terminal, in a log, and to a live report."""

import json
import time
from dataclasses import replace

import pytest

from randpath.bench.experiment import Experiment
from randpath.commands import terminal, watch
from randpath.commands.bench import bench
from randpath.commands.report import page_of
from randpath.commands.watch import PROGRESS, Watch
from randpath.learning.train import Training
from tests.made_runs import made_run

E = Experiment("digits", 4, training=Training(epochs=10), options={"N": 4})


def line(k, **more):
    return {"k": k, "accuracy": 0.9, "saturation": 0.25, "switched": False, "seconds": 2.0, "visits": 3000, **more}


def test_candidate_and_epoch_follow_the_share_that_is_done(tmp_path):
    seen = Watch(E, tmp_path, 4)
    assert seen.text(0.0) == "task 1 of 4, candidate 1 of 4, epoch 1 of 10"
    assert seen.text(0.99).startswith("task 1 of 4, candidate 4 of 4, epoch 10 of 10")
    seen.step(1.0)
    seen.committed(line(1))
    assert seen.text(0.5).startswith("task 2 of 4, epoch 6 of 10, A_1 90.0%, mu_sat +0.25")
    assert seen.text(0.5).endswith("1,500 images/s")
    seen.committed(line(2, switched=True))
    assert "candidate 2 of 4" in seen.text(0.3)  # a switch is followed by a search


@pytest.mark.parametrize("without_a_choice", [{"validation": False}, {"join": "lanes", "attention": "none"}])
def test_without_a_choice_one_candidate_is_trained(tmp_path, without_a_choice):
    seen = Watch(replace(E, **without_a_choice), tmp_path, 4)
    assert seen.text(0.95) == "task 1 of 4, epoch 10 of 10"


def test_the_time_left_counts_candidates_and_not_what_an_earlier_process_did(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: now)
    fresh = Watch(E, tmp_path, 4)
    fresh.step(0.0)
    now += 40
    # Task 1 searches: 4 of 7 units; half of it took 40 s, so five units take 100.
    assert "about 2 min left" in fresh.text(0.5)
    resumed = Watch(E, tmp_path, 4)
    resumed.committed(line(1))
    resumed.step(0.0)
    now += 30
    assert "about 60 s left" in resumed.text(1.0)  # one of three tasks of one candidate took 30 s


def test_the_time_left_counts_the_paths_that_will_be_frozen(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: now)
    lanes = Experiment(
        "digits", 4, join="lanes", attention="none", training=Training(epochs=10), options={"N": 1, "first_switch": 2}
    )
    seen = Watch(lanes, tmp_path, 4)
    seen.step(0.0)
    now += 60
    # Lanes are opened after tasks 2 and 3: 1 + 1 + 4/3 + 5/3 units, of which one took 60 s.
    assert "about 4 min left" in seen.text(1.0)
    seen.committed(line(1))
    now += 60
    assert "about 3 min left" in seen.text(1.0)
    seen.committed(line(2))  # not switched: two units are left, and no lane is expected
    assert "about 2 min left" in seen.text(0.0)


def test_a_terminal_shows_what_fits_and_a_log_says_all():
    text = Watch(E, None, 4).text(0.3)
    assert terminal.fitted(text, 200) == text
    assert terminal.fitted(text, 30) == "task 1 of 4, candidate 2 of 4"
    assert terminal.fitted("x" * 50, 30) == "x" * 50


def test_a_live_report_says_what_the_run_says_until_it_falls_silent(tmp_path):
    run = made_run(tmp_path, learned=1)
    (run / PROGRESS).write_text(json.dumps({"text": "task 2 of 3, epoch <4>", "time": time.time()}))
    assert "This run is going on: task 2 of 3, epoch &lt;4&gt;." in page_of((run,))
    (run / PROGRESS).write_text(json.dumps({"text": "task 2 of 3", "time": time.time() - 300}))
    assert "This run is unfinished" in page_of((run,))
    (run / PROGRESS).write_text("{")
    assert "This run is unfinished" in page_of((run,))


@pytest.mark.parametrize("writable", [True, False])
def test_a_run_leaves_no_progress_behind_and_does_not_need_to_write_it(tmp_path, monkeypatch, capsys, writable):
    written = []
    real = Watch._replace

    def replace(self, document):
        written.append(document["text"])
        if writable:
            real(self, document)

    monkeypatch.setattr(Watch, "_replace", replace)
    clock = iter(range(0, 10**6, 3))
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(clock)))
    assert bench("digits_5", out=tmp_path / "run", set_=("training.epochs=1", "width=8", "tasks=2", "modules=2")) == 0
    assert any("task 2 of 2" in text for text in written)
    assert not list((tmp_path / "run").glob("*progress*"))
    assert "images/s" in capsys.readouterr().err
