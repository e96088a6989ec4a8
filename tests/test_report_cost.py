"""The picture of accuracy over core-minutes: what is drawn of the recorded results, and what not."""

import json
import re
import shutil
from pathlib import Path

import pytest

from randpath.report.marked import with_tables
from randpath.report.pictures import pictures

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGE = "<!-- figure: cost -->\nold\n<!-- end -->\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(RESULTS / "published.json", tmp_path)
    return tmp_path


def record(method: str, minutes: float, accuracy: float, *settings: str, seed: int = 0, **changes: object) -> dict:
    return {
        "method": method, "variant": "tuned", "seed": seed, "accuracy": [0.9, accuracy],
        "cpu_seconds": [20 * minutes, 40 * minutes],
        "command": " ".join(["randpath bench cifar100_10_cpu", *(f"--set {setting}" for setting in settings)]),
        **changes,
    }  # fmt: skip


def drawn(folder: Path, *records: dict) -> str:
    (folder / "cifar100_10_cpu.json").write_text(json.dumps(records))
    return pictures(folder).get("cost.svg", "")


def test_without_a_record_there_is_no_picture_and_the_page_says_so(folder):
    assert "cost.svg" not in pictures(folder)
    assert with_tables(PAGE, folder) == PAGE.replace("old", "No run of it is recorded yet.")
    interrupted = {**record("rps", 10, 0.5), "cpu_seconds": [None, 3.0]}
    assert drawn(folder, interrupted) == ""


def test_a_page_shows_it_when_a_run_is_recorded(folder):
    assert drawn(folder, record("rps", 10, 0.5)).startswith("<svg")
    assert "](figures/cost.svg)\n<!-- end -->" in with_tables(PAGE, folder)


def test_a_point_is_the_mean_over_seeds_of_what_was_spent_alike(folder):
    svg = drawn(
        folder,
        record("rps", 16, 0.5, "width=32"),
        record("rps", 110, 0.6, "width=96", "training.epochs=6"),
        record("rps", 130, 0.62, "width=96", "training.epochs=6", seed=1),
        record("rehearsal", 40, 0.3),
        record("rehearsal", 40, 0.4, "options.balanced=true"),
        record("joint", 40, 0.7, "tasks=1"),
        record("der", 40, 0.45, "threads=2", "members=2"),
    )
    points = re.findall(r"<title>([^<]*, core-minutes[^<]*)</title>", svg)
    assert points == [
        "Adaptive RPS-Net, tuned, core-minutes, all tasks together 16: 50.0 %",
        "Adaptive RPS-Net, tuned, core-minutes, all tasks together 120: 61.0 %",
        "rehearsal, core-minutes, all tasks together 40: 30.0 %",
        "rehearsal, balanced, core-minutes, all tasks together 40: 40.0 %",
        "joint training, core-minutes, all tasks together 40: 70.0 %",
        "DER, core-minutes, all tasks together 40: 45.0 %",
    ]
    assert ">published<" in svg


def test_another_protocol_or_variant_is_left_to_the_table(folder):
    one = record("rps", 16, 0.5)
    others = [
        record("rps", 16, 0.6, "memory=6.1MB"),
        record("rps", 32, 0.6, "mirror=true"),
        record("rps", 32, 0.6, "tasks=5"),
        record("rps", 32, 0.6, variant="paper"),
        record("finetune", 32, 0.1),
    ]
    assert drawn(folder, one, *others) == drawn(folder, one)


def test_the_best_of_what_the_recipe_was_before_is_one_curve_of_its_own(folder):
    before = [
        record("rps", 40, 0.5, commit="a"),
        record("rps", 95, 0.55, commit="b"),  # dearer than the next one, and worse
        record("rps", 90, 0.6, commit="c"),
        {**record("rps", 99, 0.7, commit="d"), "cpu_seconds": [None, 3.0]},  # interrupted: its cost is not known
    ]
    for name, one in zip(("decay", "lanes", "patches", "discriminant"), before):
        beside = record("joint", 60, 0.9, commit="e")  # what else was recorded then is no curve
        (folder / f"cifar100_10_cpu_{name}.json").write_text(json.dumps([one, beside]))
    svg = drawn(folder, record("rps", 16, 0.4))
    points = re.findall(r"<title>([^<]*, core-minutes[^<]*)</title>", svg)
    assert points == [
        "Adaptive RPS-Net, tuned, core-minutes, all tasks together 16: 40.0 %",
        "Adaptive RPS-Net, earlier recipes, core-minutes, all tasks together 40: 50.0 %",
        "Adaptive RPS-Net, earlier recipes, core-minutes, all tasks together 90: 60.0 %",
    ]
