"""Pages of runs and models: what they say, what they refuse, and that they need nothing from outside."""

import base64
import hashlib
import json
import re
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from randpath.commands.report import page_of, report
from randpath.errors import Damaged, RandpathError, UsageError
from randpath.report import charts
from randpath.report.events import _masked, scalars
from randpath.report.figures import WIDTH, sawtooth
from randpath.report.live import server
from randpath.report.pages import rivals
from randpath.report.reading import frames, read_run
from randpath.storage import checkpoint
from tests.made_runs import made_run


def test_a_page_shows_every_part_of_a_run_and_asks_for_nothing_outside(tmp_path, capsys):
    run = made_run(tmp_path / "run")
    assert report(run) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    text = (run / "report.html").read_text()
    for part in ("accuracy", "paths", "confusion", "forgetting", "cost", "training", "exemplars", "settings"):
        assert f'<section id="{part}">' in text
    for title in ("Saturation of the path", "Candidates of each search", "Convergence", "Parts of the loss"):
        assert title in text
    last = checkpoint.read_lines(run / "metrics.jsonl")[-1]
    assert f"{last['accuracy']:.2%}" in text
    assert "This run is unfinished" not in text
    assert not re.search(r"(src|href|action)=[\"'](?!data:image/png)", text)
    assert "style=" not in text  # the policy allows no inline style


def test_the_policy_allows_our_own_style_and_script_alone(tmp_path):
    text = page_of((made_run(tmp_path),))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "connect" not in policy


def test_a_run_killed_half_way_reports_what_it_has_and_says_so(tmp_path):
    text = page_of((made_run(tmp_path / "half", learned=2),))
    assert "This run is unfinished: 2 of 3 tasks are learned" in text
    assert f"randpath resume {tmp_path / 'half'}" in text
    text = page_of((made_run(tmp_path / "begun", learned=0),))
    assert "0 of 3 tasks" in text
    assert "nothing to show" in text
    (tmp_path / "begun" / "metrics.jsonl").unlink()
    assert "0 of 3 tasks" in page_of((tmp_path / "begun",))


def test_rivals_stand_beside_a_run_where_their_results_are_recorded(tmp_path):
    run = read_run(made_run(tmp_path / "run"))
    own = {"variant": "paper", "num_tasks": 3, "class_order": run.document["class_order"], "data_fingerprint": "0" * 64}
    old = {name: value for name, value in run.experiment["training"].items() if name != "first_lr"}  # came later
    results = [
        {**own, "method": "finetune", "accuracy": [1.0, 0.5, 0.3], "experiment": {"training": old}},
        {**own, "method": "joint", "accuracy": [1.0, 0.9, 0.9], "experiment": {"training": {**old, "epochs": 1}}},
    ]
    checkpoint.write_document(tmp_path / "results" / "made.json", results)
    assert rivals(run, tmp_path / "results") == {"fine-tuning, recorded, n = 1": [[1.0, 0.5, 0.3]]}
    assert rivals(run, None) == {}


def test_runs_side_by_side_are_grouped_by_what_differs_but_the_seed(tmp_path):
    runs = [made_run(tmp_path / f"s{seed}", seed=seed) for seed in range(3)]
    runs.append(made_run(tmp_path / "half", learned=1, memory=77))
    text = page_of(tuple(runs))
    assert "Adaptive RPS-Net, memory=2000" in text
    assert "Adaptive RPS-Net, memory=77" in text
    assert "Unfinished: 1 of 4 runs" in text
    finals = [checkpoint.read_lines(run / "metrics.jsonl")[-1]["accuracy"] for run in runs[:3]]
    assert f"{100 * sum(finals) / 3:.2f} ± " in text


def test_what_is_no_run_is_refused_and_what_is_lost_is_left_out(tmp_path):
    with pytest.raises(UsageError, match="neither a run nor a model"):
        page_of((tmp_path,))
    with pytest.raises(UsageError, match="which run"):
        report()
    run = made_run(tmp_path / "run")
    before = (run / "experiment.json").read_bytes()
    with pytest.raises(UsageError, match="is not a page"):  # a slip of the hand would end the run
        report(run, out=run / "experiment.json")
    assert (run / "experiment.json").read_bytes() == before
    assert report(run, out=tmp_path / "page") == report(run, out=tmp_path / "page") == 0
    for k in (1, 2, 3):
        (run / "predictions" / f"{k}.safetensors").write_bytes(b"gone")
    (run / "checkpoints" / "0001" / "memory_train.safetensors").write_bytes(b"gone")
    text = page_of((run,))
    assert 'id="accuracy"' in text
    assert 'id="confusion"' not in text
    assert 'id="exemplars"' not in text
    checkpoint.write_lines(run / "metrics.jsonl", [{"k": 1}])
    with pytest.raises(Damaged, match=r"metrics\.jsonl, line 1 is damaged"):
        page_of((run,))
    (run / "experiment.json").write_text("{")
    with pytest.raises(Damaged) as caught:
        page_of((run,))
    assert caught.value.where == str(run / "experiment.json")


ODD = [None, True, -1, 0, 1.5, 10**30, "", "x", [], [[]], [0], [[0, 2]], {}, {"a": []}, [None], "\u202e", [["a"]]]


def test_a_mean_curve_goes_on_where_one_seed_has_not_finished():
    chart = charts.accuracy({"rps": [[0.9, 0.8, 0.7], [0.7]]})
    told = re.findall(r"<title>([^<]*)</title>", chart.body)
    assert told[1:] == ["rps, task 1: 80.0 %", "rps, task 2: 80.0 %", "rps, task 3: 70.0 %"]


def test_fits_of_one_task_have_curves_of_their_own(tmp_path):
    run = made_run(tmp_path / "run")
    lines = [
        {**line, "fit": "balance"} if i == 2 else line
        for i, line in enumerate(checkpoint.read_lines(run / "epochs.jsonl"))
    ]
    checkpoint.write_lines(run / "epochs.jsonl", lines)
    tags = [tag for tag, _, _ in scalars(read_run(run), 1)]
    assert {"loss_ce/task_1_candidate_0", "loss_ce/task_1_balance_candidate_0"} <= set(tags)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_lies_in_a_run_directory_there_is_a_page_or_an_error_of_ours(tmp_path, seed):
    run, rng = made_run(tmp_path, epochs=1), np.random.default_rng(seed)
    names = ("metrics.jsonl", "epochs.jsonl", "times.jsonl", "experiment.json")
    whole = {name: (run / name).read_bytes() for name in names}
    refused = 0
    for _ in range(40):
        name = names[rng.integers(4)]
        lines = [json.loads(line) for line in whole[name].decode().splitlines()]
        line = lines[rng.integers(len(lines))]
        if name == "experiment.json" and rng.random() < 0.7:
            line = line["experiment"]
        line[list(line)[rng.integers(len(line))]] = ODD[rng.integers(len(ODD))]
        (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        try:
            assert page_of((run,)).startswith("<!doctype html>")
            assert page_of((run, run)).startswith("<!doctype html>")
        except RandpathError:
            refused += 1
        (run / name).write_bytes(whole[name])
    assert 10 < refused < 40


def test_the_label_of_a_threshold_fits_beside_the_chart():
    label = re.search(r'x="(\d+)"[^>]*>(th [^<]*)', sawtooth([-1.1, -0.5], [False, True], -0.9).inline())
    assert label
    assert int(label[1]) + 5.7 * len(label[2]) <= WIDTH  # 5.7: "-0.776" is 34 px wide; "th = -0.9" was cut


def test_a_method_without_paths_has_no_path_map(tmp_path):
    run = made_run(tmp_path, method="finetune", options={})
    lines = checkpoint.read_lines(run / "metrics.jsonl")
    checkpoint.write_lines(
        run / "metrics.jsonl", [{**x, "path": None, "saturation": None, "switched": None} for x in lines]
    )
    text = page_of((run,))
    assert 'id="paths"' not in text
    assert "fine-tuning on made" in text


def test_the_path_map_follows_the_papers_algebra():
    # Task 3 shares its first module with the frozen path: P_tr leaves it to tasks 1 and 2.
    paths = [[[1, 0], [1, 0]], [[1, 0], [1, 0]], [[1, 0], [0, 1]]]
    *_, last = frames(paths, [False, True, False])
    assert last.texts == [["1-2", ""], ["1-2", "3"]]
    assert last.present == paths[2]


def test_a_model_has_a_page_without_anything_put_into_its_directory(tmp_path, capsys):
    from sklearn.datasets import load_digits

    from randpath.data.dataset import Arrays
    from randpath.model import versions
    from randpath.model.model import Model
    from randpath.model.sizing import Plan

    digits = load_digits()
    items, y = (digits.images * 15).astype("uint8")[..., None], digits.target
    model = Model(Plan((8, 8, 1), (0.5,), (0.5,), "mlp", 16, modules=3, budget=40, epochs=1))
    for names in ([0, 1], [2, 3]):
        keep = (y == names[0]) | (y == names[1])
        model.learn(Arrays(items[keep][:80], y[keep][:80] - names[0]), [f"<b>{n}" for n in names])
    state, document = model.state()
    versions.save(tmp_path / "digits", state.tensors, document, base=0)
    before = sorted((tmp_path / "digits").rglob("*"))
    assert report(tmp_path / "digits") == 0
    assert sorted((tmp_path / "digits").rglob("*")) == before
    assert str(tmp_path / "digits.html") in capsys.readouterr().out
    with pytest.raises(UsageError, match="is a model, and only runs are compared"):
        page_of((made_run(tmp_path / "run"), tmp_path / "digits"))
    text = (tmp_path / "digits.html").read_text()
    assert "&lt;b&gt;3" in text
    assert "<b>3" not in text
    for part in ("accuracy", "paths", "tasks", "exemplars"):
        assert f'<section id="{part}">' in text


def test_a_live_page_is_renewed_and_answers_only_under_its_own_name(tmp_path):
    run = made_run(tmp_path, learned=1)
    with server((run,), lambda state: page_of((run,), state), 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{serving.server_port}"

        def get(path, **headers):
            request = urllib.request.Request(address + path, headers=headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()

        try:
            state = get("/state")
            assert "1 of 3 tasks" in (first := get("/"))
            assert f'data-live="{state}"' in first
            assert "connect-src &#39;self&#39;" in first
            made_run(tmp_path / "more", learned=2)
            for file in ("metrics.jsonl", "epochs.jsonl", "times.jsonl"):
                (tmp_path / "more" / file).replace(run / file)
            assert get("/state") != state
            assert "2 of 3 tasks" in get("/")
            for path, headers in (("/", {"Host": "evil.example"}), ("/../experiment.json", {})):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    get(path, **headers)
                refused.value.close()
                assert refused.value.code in (403, 404)
        finally:
            serving.shutdown()


def test_reading_changes_nothing(tmp_path):
    run = made_run(tmp_path)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    page_of((run,))
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert read_run(run).finished


def test_event_files_are_whole_records_and_are_written_once(tmp_path):
    run = made_run(tmp_path, learned=2)
    page_of((run,), tensorboard=True)
    files = sorted((run / "tensorboard").iterdir())
    assert len(files) == 2
    for file in files:
        data, records = file.read_bytes(), 0
        while data:
            length = int.from_bytes(data[:8], "little")
            assert int.from_bytes(data[8:12], "little") == _masked(data[:8])
            assert int.from_bytes(data[12 + length : 16 + length], "little") == _masked(data[12 : 12 + length])
            data, records = data[16 + length :], records + 1
        assert records > 10
    before = [file.stat().st_mtime_ns for file in files]
    page_of((run,), tensorboard=True)
    assert [file.stat().st_mtime_ns for file in files] == before


def test_event_files_are_read_by_tensorboard(tmp_path, capsys):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="pip install tensorboard"
    )
    run = made_run(tmp_path, learned=2)
    assert report(run, tensorboard=True) == 0
    assert "tensorboard --logdir" in capsys.readouterr().out
    first = sorted((run / "tensorboard").iterdir())
    assert len(first) == 2
    found = accumulator.EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    lines = checkpoint.read_lines(run / "metrics.jsonl")
    read = [(event.step, pytest.approx(event.value, abs=1e-6)) for event in found.Scalars("task/accuracy")]
    assert read == [(line["k"], line["accuracy"]) for line in lines]
    assert len(found.Scalars("validation/task_1_candidate_3")) == 3
