"""The tables and pictures in the pages are those that the recorded results give."""

import json
from pathlib import Path

import pytest

from randpath.paper.renew import renewed
from randpath.report.tables import MARKED, table

ROOT = Path(__file__).parents[1]
KEYS = {
    "recipe", "method", "variant", "seed", "class_order", "num_tasks", "accuracy", "average", "forgetting",
    "parameters",
    "megabytes", "flops", "seconds", "data_fingerprint", "command", "versions", "machine", "commit", "date",
}  # fmt: skip


def test_tables_and_pictures_are_current():
    for file, text in renewed(ROOT).items():
        assert file.read_text(encoding="utf-8") == text, f"{file} is old; type: make tables"


def test_the_readme_has_tables():
    assert MARKED.search((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_recorded_result_names_where_it_comes_from():
    files = [f for f in (ROOT / "docs" / "results").glob("*.json") if f.name != "published.json"]
    for file in files:
        for result in json.loads(file.read_text()):
            if "accuracy" not in result or not isinstance(result["accuracy"], list):
                continue
            assert set(result) >= KEYS, file.name
            assert len(result["accuracy"]) == result["num_tasks"]
            assert result["average"] == pytest.approx(sum(result["accuracy"]) / result["num_tasks"])
            assert result["commit"]


def test_a_table_shows_the_mean_over_seeds_and_what_was_published():
    def result(seed, final, changed=""):
        return {
            "method": "rps", "variant": "tuned", "seed": seed, "accuracy": [1.0, final], "average": (1 + final) / 2,
            "forgetting": 0.1, "parameters": 1000, "megabytes": 2.0, "seconds": 60.0,
            "command": f"randpath bench x --seed {seed}{changed}",
        }  # fmt: skip

    def minutes(*results):
        return table("x", results, []).splitlines()[2].split("|")[-2].strip()

    assert minutes(result(0, 0.8)) == "1.0 by the clock"
    assert minutes({**result(0, 0.8), "cpu_seconds": [60.0, 120.0]}) == "3.0"
    assert minutes({**result(0, 0.8), "cpu_seconds": [60.0, None], "seconds": None}) == "-"  # it was interrupted
    results = [result(0, 0.8), result(1, 0.9), result(0, 0.7, " --set options.N=1")]
    rows = table("x", results, [{"recipe": "x", "system": "theirs", "source": "page 3", "accuracy": 0.5}]).splitlines()
    assert rows[2].startswith("| rps | tuned |  | 2 | 85.00 (80.00 to 90.00) | 92.50")
    assert rows[3].startswith("| rps | tuned | options.N=1 | 1 | 70.00 |")
    assert rows[4].startswith("| theirs | | page 3 | | 50.00 |")
