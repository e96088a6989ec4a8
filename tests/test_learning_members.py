"""members=2: two networks that share the exemplars learn side by side, and the mean of their logits answers."""

import json
import runpy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

from randpath.bench.experiment import Experiment
from randpath.bench.load import load_run
from randpath.bench.run import prepare, run
from randpath.commands.watch import Watch
from randpath.engines.processes import Processes
from randpath.engines.serial import Serial
from randpath.errors import DataError, Stopped, UsageError
from randpath.learning.cost import megabytes
from randpath.learning.members import Members, together
from randpath.learning.method import Learned, Work
from randpath.learning.train import Training
from randpath.methods import METHODS
from randpath.methods.rehearsal import Rehearsal
from randpath.methods.rps import RPS
from randpath.network.backbones import BACKBONES
from randpath.network.mean import Mean
from randpath.report.charts import candidates, winning_epochs
from randpath.report.events import scalars
from randpath.report.reading import read_run
from randpath.report.record import result_of
from randpath.storage import checkpoint

ALONE = Experiment(
    "digits", 5, recipe="tiny", backbone="mlp", width=24, modules=3, memory=40, herding=True,
    training=Training(epochs=2, batch=64), options={"N": 2, "switch_every": 2},
)  # fmt: skip
TWO = replace(ALONE, members=2)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("members") / "two"
    run(TWO, place)
    return place


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("members") / "alone"
    run(ALONE, place)
    return place


def members(place: Path) -> list[Any]:
    method = load_run(place).method
    assert isinstance(method, Members)
    return method.members


def same(a: Mapping[str, Mapping[str, torch.Tensor]], b: Mapping[str, Mapping[str, torch.Tensor]]) -> bool:
    return a.keys() == b.keys() and all(
        a[file].keys() == b[file].keys() and all(torch.equal(a[file][name], b[file][name]) for name in a[file])
        for file in a
    )


def test_the_first_is_what_it_would_be_alone_and_the_other_is_not(two: Path, alone: Path) -> None:
    lone = load_run(alone).method
    first, second = members(two)
    assert same(first.state_dict().tensors, lone.state_dict().tensors)
    assert first.state_dict().document == lone.state_dict().document
    assert not torch.equal(second.net.head.weight, first.net.head.weight)
    told = ("saturation", "switched", "path")
    lines = zip(load_run(two).lines, load_run(alone).lines)
    assert all(a[name] == b[name] for a, b in lines for name in told)


def test_they_share_the_exemplars_as_soon_as_they_have_learned() -> None:
    stream, method = prepare(replace(TWO, members=3))
    assert isinstance(method, Members)
    learned = method.learn(stream.task(1), Work())
    first, *others = method.members
    assert len(first.memory) == 40
    assert all(same(first.memory.tensors(), other.memory.tensors()) for other in others)
    heads = [member.net.head.weight for member in method.members]
    assert not any(torch.equal(heads[i], heads[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert learned.parameters_trained == sum(m.net.num_parameters(m.P) for m in method.members)
    with pytest.raises(DataError, match="task 1 does not follow task 1"):
        method.learn(stream.task(1), Work())


def test_the_answer_is_the_mean_of_their_logits(two: Path) -> None:
    loaded = load_run(two)
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    q = [member.inference()(x) for member in members(two)]
    torch.testing.assert_close(loaded.method.inference()(x), (q[0] + q[1]) / 2)
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    assert loaded.features(images).shape == (6, 2 * 24)


def test_what_fewer_networks_would_have_answered_is_told(two: Path, alone: Path, tmp_path: Path) -> None:
    run(replace(ALONE, members=3), tmp_path / "three")
    three = load_run(tmp_path / "three")
    assert [line["own"]["network 1 alone"] for line in three.lines] == load_run(alone).accuracy
    assert [line["own"]["networks 1 to 2"] for line in three.lines] == load_run(two).accuracy
    assert np.array_equal(three.predictions(3)["predicted_by_first_2"], load_run(two).predictions(3)["predicted"])
    assert not np.array_equal(three.predictions()["predicted"], load_run(two).predictions()["predicted"])
    assert "own" not in load_run(alone).lines[-1]


def test_a_run_of_three_is_recorded_as_one_of_its_first_two(two: Path, tmp_path: Path) -> None:
    fewer = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "fewer.py"))["of_the_first"]
    run(replace(ALONE, members=3), tmp_path / "three")
    made, lived = fewer(tmp_path / "three", 2, "two"), result_of(two, "two")
    unknown = {"seconds", "cpu_seconds", "top5", "made_from"}
    assert {name: made[name] for name in made.keys() - unknown} == {
        name: lived[name] for name in lived.keys() - unknown
    }
    spent = [line["cpu_seconds_of_each"] for line in checkpoint.read_lines(tmp_path / "three" / "times.jsonl")]
    assert all(len(each) == 3 and min(each) > 0 for each in spent)
    whole = result_of(tmp_path / "three", "three")["cpu_seconds"]
    assert made["cpu_seconds"] == pytest.approx([all_ - each[2] for all_, each in zip(whole, spent)])
    with pytest.raises(SystemExit, match="has 3 networks"):
        fewer(tmp_path / "three", 3, "three")


def test_what_it_costs_is_told(two: Path, alone: Path) -> None:
    one, both = load_run(alone).lines[-1], load_run(two).lines[-1]
    second = members(two)[1]
    assert both["parameters"] == one["parameters"] + second.net.num_parameters(second.P_ts)
    assert both["flops"] > 1.5 * one["flops"]
    own = {"weights": second.state_dict().tensors["weights"]}  # the exemplars are stored once
    assert both["megabytes"] == pytest.approx(one["megabytes"] + megabytes(own), abs=2e-4)
    visits = [json.loads(line)["visits"] for line in (two / "times.jsonl").read_text().splitlines()]
    lone = [json.loads(line)["visits"] for line in (alone / "times.jsonl").read_text().splitlines()]
    assert visits[0] == 2 * lone[0]


def test_a_page_shows_the_first(two: Path, alone: Path) -> None:
    epochs = [json.loads(line) for line in (two / "epochs.jsonl").read_text().splitlines()]
    assert {line["member"] for line in epochs} == {1, 2}
    shown = winning_epochs(read_run(two))
    assert {line["member"] for lines in shown.values() for line in lines} == {1}
    assert [len(lines) for lines in shown.values()] == [2] * 5
    assert candidates(read_run(two)) == candidates(read_run(alone)) is not None
    tags = {tag for tag, _, _ in scalars(read_run(two), 1)}
    assert {"loss_ce/task_1_member_1_candidate_0", "loss_ce/task_1_member_2_candidate_1"} <= tags


def test_a_note_on_another_network_names_it() -> None:
    one, other = Learned([], 1, 2, notes=["a"], remarks=["b"]), Learned([], 3, 4, notes=["a", "c"], remarks=["d"])
    both = together([one, other])
    assert (both.notes, both.remarks) == (["a", "network 2: c"], ["b", "network 2: d"])


def test_a_bar_says_how_many(tmp_path: Path) -> None:
    assert Watch(TWO, tmp_path, 5).text(0.3).startswith("task 1 of 5, 2 networks")


def test_with_two_processes_two_of_them_make_up_their_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, method = prepare(replace(TWO, processes=2))
    method.learn(stream.task(1), Work())
    both_are_here, plain = Barrier(2), RPS.inference
    monkeypatch.setattr(RPS, "inference", lambda member: (both_are_here.wait(timeout=60), plain(member))[1])
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    q = method.inference()(x)
    monkeypatch.setattr(RPS, "inference", plain)
    assert torch.equal(q, Mean(member.inference() for member in method.members)(x))


def test_side_by_side_they_are_the_same(two: Path, tmp_path: Path) -> None:
    with Processes(2) as engine:
        run(replace(TWO, processes=2), tmp_path / "run", engine=engine)
        assert engine.cpu_seconds > 0
    for file in ("metrics.jsonl", "epochs.jsonl"):
        assert (tmp_path / "run" / file).read_bytes() == (two / file).read_bytes()
    for a, b in zip(members(tmp_path / "run"), members(two)):
        assert same(a.state_dict().tensors, b.state_dict().tensors)


class Impatient:
    """Stops a run at its n-th sign of life."""

    def __init__(self, n: int):
        self.left = n

    def __call__(self, done: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped()


@pytest.mark.parametrize("signs", [3, 40, 80, 120])
def test_stopped_and_resumed_they_are_the_same(two: Path, tmp_path: Path, signs: int) -> None:
    with pytest.raises(Stopped):
        run(TWO, tmp_path / "run", engine=Serial(Impatient(signs)))
    work = list((tmp_path / "run" / "work").glob("task-*/member-*"))
    assert sorted({place.name for place in work}) in (["member-1"], ["member-1", "member-2"])  # what is gone on from
    run(TWO, tmp_path / "run")
    for file in ("metrics.jsonl", "epochs.jsonl"):
        assert (tmp_path / "run" / file).read_bytes() == (two / file).read_bytes()


def test_if_one_fails_all_are_as_they_were(monkeypatch: pytest.MonkeyPatch, two: Path, tmp_path: Path) -> None:
    """The first has learned its task when the second fails."""
    began, learn = [], METHODS["rps"].learn

    def failing(self: Any, task: Any, work: Any) -> Any:
        began.append(task.k)
        if len(began) == 4:
            raise MemoryError("for want of a machine")
        return learn(self, task, work)

    monkeypatch.setattr(METHODS["rps"], "learn", failing)
    with pytest.raises(MemoryError):
        run(TWO, tmp_path / "run")
    assert began == [1, 1, 2, 2]
    assert [member.k for member in members(tmp_path / "run")] == [1, 1]
    monkeypatch.undo()
    run(TWO, tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("method", ["joint", "rehearsal", "icarl", "der", "slda"])
def test_other_methods_have_members_too(method: str, tmp_path: Path) -> None:
    run(
        Experiment(
            "digits", 2, method=method, backbone="mlp", width=16, modules=1, attention="none", memory=40,
            training=Training(epochs=1, batch=64), members=3,
        ),
        tmp_path / "run",
    )  # fmt: skip
    loaded = load_run(tmp_path / "run")
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    if method == "slda":
        x = x.flatten(1)
    q = [member.inference()(x) for member in members(tmp_path / "run")]
    torch.testing.assert_close(loaded.method.inference()(x), torch.stack(q).mean(dim=0))


def test_a_method_of_ones_own_stays_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Rehearsal):
        pass

    monkeypatch.setitem(METHODS, "mine", Mine)
    mine = replace(TWO, method="mine", options={}, modules=1, attention="none")
    run(mine, tmp_path / "run")
    assert len(members(tmp_path / "run")) == 2
    monkeypatch.setitem(BACKBONES, "own", lambda spec, seed: BACKBONES["mlp"](spec, seed))
    for foreign in (mine, replace(TWO, backbone="own")):
        with pytest.raises(UsageError, match="cannot learn in other processes") as refused:
            run(replace(foreign, processes=2), tmp_path / "other")
        assert refused.value.next == "--set processes=1"
        assert not (tmp_path / "other").exists()


def test_onnx_agrees(two: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'randpath[onnx]'")
    pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
    from randpath.model.onnx import run_to_onnx

    loaded = load_run(two)
    session = onnxruntime.InferenceSession(run_to_onnx(loaded))
    images = np.random.default_rng(1).integers(0, 17, (5, 8, 8, 1), dtype=np.uint8)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (loaded.source.mean, loaded.source.std))
    expected = loaded.method.inference()((x - mean) / std).numpy()
    np.testing.assert_allclose(session.run(None, {"images": images})[0], expected, rtol=1e-3, atol=1e-4)
