"""The recipes are sound, and the recorded results keep what they promise."""

import importlib
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from randpath.bench.experiment import Experiment

ROOT = Path(__file__).parents[1]
RECIPES = sorted(p.stem for p in (ROOT / "src" / "randpath" / "recipes").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_both_variants_labelled(name):
    recipe = importlib.import_module(f"randpath.recipes.{name}")
    for variant in ("paper", "tuned"):
        experiment = getattr(recipe, variant)
        assert isinstance(experiment, Experiment)
        assert (experiment.recipe, experiment.variant) == (name, variant)
        assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment


def records(recipe: str) -> list[dict]:
    file = ROOT / "docs" / "results" / f"{recipe}.json"
    return json.loads(file.read_text()) if file.exists() else []


@pytest.mark.parametrize("name", RECIPES)
def test_a_recorded_command_still_means_what_it_meant(name):
    """A recipe that changes makes its records stale: run them again. (The oldest do not hold their settings.)"""
    recipe = importlib.import_module(f"randpath.recipes.{name}")
    for record in records(name):
        if "experiment" in record:
            e = getattr(recipe, record["variant"])
            e = e if e.method == record["method"] else replace(e, method=record["method"], options={})
            words = shlex.split(record["command"])
            settings = [value for word, value in zip(words, words[1:]) if word == "--set"]
            e = replace(e, seed=record["seed"]).with_settings(settings)
            assert Experiment.from_json(record["experiment"]) == e, record["command"]


def final(recipe: str, method: str, variant: str, changed: str = "") -> dict[int, float]:
    """Final accuracy by seed, of the runs whose command ends with these changes."""
    return {
        r["seed"]: r["accuracy"][-1]
        for r in records(recipe)
        if (r["method"], r["variant"]) == (method, variant) and r["command"].partition(" --set ")[2] == changed
    }


def test_the_demo_reaches_95_percent_on_five_seeds():
    accuracies = final("digits_5", "rps", "tuned")
    assert set(accuracies) >= {0, 1, 2, 3, 4}
    assert min(accuracies.values()) >= 0.95


def test_the_demo_opens_a_new_path_on_five_seeds():
    runs = [
        r
        for r in records("digits_5")
        if (r["method"], r["variant"]) == ("rps", "tuned") and "--set" not in r["command"]
    ]
    assert {r["seed"] for r in runs} >= {0, 1, 2, 3, 4}
    assert all(any(r["switched"][:-1]) for r in runs)  # after the last task no path is opened any more


def test_mnist_tuned_reaches_a_mean_of_97_5_percent():
    accuracies = final("mnist_5", "rps", "tuned")
    assert set(accuracies) >= {0, 1, 2}
    assert sum(accuracies.values()) / len(accuracies) >= 0.975


def test_two_networks_reach_the_number_of_the_paper_on_cifar():
    accuracies = final("cifar100_10_cpu", "rps", "tuned", "training.mixed=true")
    assert sum(accuracies.values()) / len(accuracies) >= 0.6083


def test_a_switch_pays_at_equal_core_minutes_on_one_machine():
    """Lanes from the fifth task on, of width 24, and one path of width 32 that is never switched, side by side."""
    lanes, one_path = (
        next(
            r
            for r in records("cifar100_10_cpu")
            if r["command"].endswith(f"--seed 1 --set training.mixed=true {typed}")
        )
        for typed in (
            "--set width=24 --set members=1 --set processes=1",
            "--set width=32 --set members=1 --set options.threshold=99 --set processes=1",
        )
    )
    assert lanes["machine"] == one_path["machine"] and lanes["visits"] == one_path["visits"]
    assert any(lanes["switched"]) and not any(one_path["switched"])
    assert sum(lanes["cpu_seconds"]) == pytest.approx(sum(one_path["cpu_seconds"]), rel=0.05)
    assert lanes["accuracy"][-1] >= one_path["accuracy"][-1] + 0.05
    assert lanes["accuracy"][3] < one_path["accuracy"][3]  # up to task 4 the wider path leads


def test_cifar_tuned_is_5_points_above_rehearsal_and_at_0_7_of_joint():
    tuned = final("cifar100_10_small", "rps", "tuned")[0]
    assert tuned >= final("cifar100_10_small", "rehearsal", "tuned")[0] + 0.05
    assert tuned >= 0.7 * final("cifar100_10_small", "joint", "tuned", "tasks=1 --set training.epochs=12")[0]


def test_cifar_paper_saw_as_many_images_as_tuned():
    """4,500 training images a task and 1,800 exemplars; the recorded run of `paper` never switched."""
    from randpath.recipes.cifar100_10_small import paper, tuned

    def visits(e: Experiment) -> int:
        return e.options["N"] * e.training.of_task(1).epochs * 4500 + 9 * e.training.epochs * (4500 + 1800)

    assert visits(paper) == visits(tuned) == 534_600
    (recorded,) = (r for r in records("cifar100_10_small") if r["variant"] == "paper")
    assert not any(recorded["switched"])
    assert Experiment.from_json(recorded["experiment"]).training == paper.training


def test_the_wide_network_on_cifar_saw_no_more_images_than_tuned():
    """5,000 images a task and 2,000 exemplars, none of them held out."""
    (recorded,) = (r for r in records("cifar100_10_small") if "width=96" in r["command"])
    e = Experiment.from_json(recorded["experiment"])
    assert not any(recorded["switched"])
    assert not e.validation
    assert e.training.of_task(1).epochs * 5000 + 9 * e.training.epochs * 7000 <= 534_600
