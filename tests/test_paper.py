"""The paper's items: complete, runnable as far as their methods are there, and judged by rules of three outcomes."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from randpath.commands import paper as command
from randpath.errors import DataError, UsageError
from randpath.methods import METHODS
from randpath.paper import run, show
from randpath.paper.items import ITEMS, Item
from randpath.paper.rules import FAILS, HOLDS, OPEN, Rule, decide, higher
from randpath.settings import refuse_unknown
from randpath.storage import checkpoint

ROOT = Path(__file__).parents[1]


def test_there_are_sixteen_and_each_says_what_it_claims_and_what_would_refute_it():
    assert len({item.name for item in ITEMS}) == len(ITEMS) == 16
    for item in ITEMS:
        assert item.claim
        assert item.rule.words
        assert item.full
        assert item.differs
        assert item.minutes <= 40
        assert item.small or item.needs
        assert bool(item.minutes) == bool(item.small)
        assert set(item.published) <= {*item.full, *item.small}


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_command_is_one_that_bench_takes(item, scale):
    for planned in run.planned_runs(item, scale, Path("runs")):
        recipe = getattr(importlib.import_module(f"randpath.recipes.{planned.recipe}"), planned.variant)
        if planned.method != recipe.method:
            recipe = replace(recipe, method=planned.method, options={})
        experiment = recipe.with_settings(planned.settings)
        refuse_unknown(experiment.options, METHODS[planned.method], planned.command)
    directories = {planned.command: planned.directory for planned in run.planned_runs(item, scale, Path("runs"))}
    assert len(set(directories.values())) == len(directories)


def made(**finals):
    return {arm: [{"accuracy": [1.0, a]} for a in own] for arm, own in finals.items()}


def test_adaptive_switching_is_not_judged_where_no_path_was_switched():
    (item,) = (item for item in ITEMS if item.name == "adaptive")
    found = made(**{"Adaptive RPS-Net": [0.6], "RPS-Net": [0.5]})
    for switched, verdict in (([False, False, True], OPEN), ([False, True, False], HOLDS)):
        found["Adaptive RPS-Net"][0]["switched"] = switched  # after the last task a switch decides nothing
        assert decide(item.rule, found) == verdict


def test_a_rule_has_three_outcomes():
    rule = Rule("a above b", lambda found: [higher(found, "a", "b")])
    assert decide(rule, made(a=[0.9, 0.91], b=[0.8, 0.81])) == HOLDS
    assert decide(rule, made(a=[0.8, 0.81], b=[0.9, 0.91])) == FAILS
    assert decide(rule, made(a=[0.9, 0.7], b=[0.8, 0.75])) == OPEN  # the seeds differ more than the arms
    assert decide(rule, made(a=[0.802], b=[0.8])) == OPEN
    two = Rule("a above b and c", lambda found: [higher(found, "a", "b"), higher(found, "a", "c")])
    assert decide(two, made(a=[0.9], b=[0.8], c=[0.95])) == FAILS


def record(arm, accuracy, **more):
    K = len(accuracy)
    return {
        "arm": arm, "accuracy": accuracy, "saturation": [0.5, -0.5] * (K // 2), "switched": [True] * K,
        "matrix": [accuracy[: k + 1] for k in range(K)], "parameters": 5, "parameters_by_task": list(range(1, K + 1)),
        "flops": 7, "flops_by_task": list(range(1, K + 1)), "validation": [[0.5, 0.9, 1.0]] * K, "top5": accuracy,
        **more,
    }  # fmt: skip


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_item_has_a_verdict_and_a_picture(item):
    arms = item.small
    results = [record(arm, [0.9, 0.8, 0.7, 0.6]) for arm in arms]
    assert show.verdict(item, results) in (HOLDS, FAILS, OPEN)
    assert show.verdict(item, []).startswith("it cannot be told")
    scale = "small"
    svg = show.picture(item, results, scale)
    assert svg.startswith("<svg")
    assert f"{scale} scale" in svg
    heading, *rows = show.table(item, results, scale)
    assert [row[0] for row in rows] == list(arms)
    assert {len(row) for row in (heading, *rows)} == {4}


def test_an_item_is_run_gone_on_with_shown_and_recorded(tmp_path, monkeypatch, capsys):
    base = "digits_5 --set training.epochs=1 --set width=8 --set tasks=2 --set options.N=1 --set modules=2"
    item = Item(
        name="tiny", place="nowhere", title="A tiny one", claim="rps is better", differs="all of it",
        rule=Rule("rps ends above fine-tuning", lambda found: [higher(found, "rps", "finetune")]), minutes=1,
        small={"rps": base, "finetune": "digits_5 --method finetune --set training.epochs=1 --set tasks=2",
               "later": "digits_5 --method not_there_yet", "wrong": "digits_5 --set options.no_such_option=1"},
        full={}, seeds=(0,), published={"rps": 0.5},
    )  # fmt: skip
    monkeypatch.setattr(run, "ITEMS", (item,))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert command.paper("tiny", record=True) == 0
    said = capsys.readouterr().out
    assert "3 of 3 runs are still to do: about 1 CPU minutes" in said
    assert "not_there_yet" in said
    assert "left out of tiny" in said
    assert "the claim, at small scale: it" in said
    assert (tmp_path / "runs" / "paper" / "tiny-small.svg").exists()
    recorded = run.recorded(tmp_path, item, "small")
    assert [r["arm"] for r in recorded] == ["rps", "finetune"]
    changed = ("modules=2", "options.N=1", "tasks=2", "training.epochs=1", "width=8")
    assert recorded[0]["command"].endswith("--seed 0" + "".join(f" --set {setting}" for setting in changed))
    first = run.planned_runs(item, "small", tmp_path / "runs" / "paper")[0]
    lines = checkpoint.read_lines(first.directory / "metrics.jsonl")
    before = {file: file.stat().st_mtime_ns for file in first.directory.rglob("*.json*")}
    assert command.paper("tiny") == 0  # all is there: nothing is run again
    assert {file: file.stat().st_mtime_ns for file in first.directory.rglob("*.json*")} == before
    checkpoint.discard(tmp_path / "docs" / "results" / "paper")  # else the recorded results are enough
    checkpoint.discard(first.directory / "checkpoints" / "0002")
    checkpoint.write_lines(first.directory / "metrics.jsonl", lines[:1])
    assert first.state == "unfinished"
    assert command.paper("tiny") == 0
    assert checkpoint.read_lines(first.directory / "metrics.jsonl") == lines


def test_a_result_of_the_same_command_counts_wherever_it_was_recorded(tmp_path):
    item = run.item_of("gamma")
    first, *_ = run.planned_runs(item, "small", tmp_path)
    result = {
        "recipe": first.recipe, "seed": 0, "accuracy": [0.9, 0.5], "command": f"{first.command} --set processes=2",
    }  # fmt: skip
    checkpoint.write_document(tmp_path / "docs" / "results" / f"{first.recipe}.json", [result])
    assert [r["arm"] for r in run.recorded(tmp_path, item, "small")] == [first.arm]
    assert run.sources(tmp_path, item, "small") == [tmp_path / "docs" / "results" / f"{first.recipe}.json"]
    other = {**result, "command": f"{first.command} --set memory=7"}
    checkpoint.write_document(tmp_path / "docs" / "results" / f"{first.recipe}.json", [other])
    assert run.recorded(tmp_path, item, "small") == []
    assert run.recorded(tmp_path, run.item_of("confusion"), "small") == []


def test_the_list_counts_what_is_recorded(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    item, have = run.item_of("gamma"), run.recorded(ROOT, run.item_of("gamma"), "small")
    assert command.paper(runs=Path("nowhere")) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("gamma"))
    assert f"{len(have)} of {len(run.planned_runs(item, 'small', Path('nowhere')))} done" in line


def test_lists_checks_and_refusals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.paper() == 0
    with pytest.raises(UsageError, match="--check looks at docs/results"):
        command.paper(check=True)
    with pytest.raises(UsageError, match="--record writes to docs/results"):
        command.paper("gamma", record=True)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert command.paper(check=True) == 0
    said = capsys.readouterr().out
    assert all(item.name in said for item in ITEMS)
    assert "imagenet" in said
    with pytest.raises(UsageError, match="are for one item"):
        command.paper(seeds="7")
    with pytest.raises(UsageError, match="no item 'nothing'"):
        command.paper("nothing")
    monkeypatch.setenv("RANDPATH_DATA", str(tmp_path))
    with pytest.raises(DataError, match="imagenet100: "):
        command.paper("large")
    assert "examples/small_tree.py" in capsys.readouterr().out
    with pytest.raises(UsageError, match="has no seed 7"):
        command.paper("gamma", seeds="0,7")


def test_the_recorded_runs_are_of_methods_that_are_there():
    for item in ITEMS:
        assert all(result["method"] in METHODS for result in run.recorded(ROOT, item, "small"))
