"""The tables and pictures in the pages are those that the recorded results give."""

import json
import re
from pathlib import Path

import pytest

from randpath.bench.cells import NAMED
from randpath.methods import METHODS
from randpath.paper.renew import renewed
from randpath.report.compare import ARENAS, PUBLISHED, paired_table, systems_table
from randpath.report.marked import MARKED
from randpath.report.tables import table

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


def _recorded(method, variant, seed, final, *settings, epochs=4):
    changed = "".join(f" --set {setting}" for setting in settings)
    return {
        "method": method, "variant": variant, "seed": seed, "accuracy": [1.0, final],
        "experiment": {"training": {"epochs": epochs, "lr": 0.1}, "padding": 0, "degrees": 0.0, "memory": 9},
        "command": f"randpath bench x --variant {variant} --method {method} --seed {seed}{changed}",
    }  # fmt: skip


def test_paired_differences_are_of_the_same_seed_and_of_systems_trained_alike():
    results = [
        _recorded("rps", "tuned", 0, 0.9), _recorded("rps", "tuned", 1, 0.8),
        _recorded("gem", "paper", 1, 0.7), _recorded("gem", "paper", 0, 0.95), _recorded("gem", "paper", 2, 0.1),
        _recorded("dgr", "paper", 1, 0.5, "training.epochs=21", epochs=21),
        _recorded("icarl", "paper", 0, 0.2, epochs=50),
        _recorded("joint", "paper", 2, 0.99),
    ]  # fmt: skip
    rows = paired_table(results).splitlines()[2:]
    assert rows == [
        "| gem | paper |  | 2 | 2.50 ± 10.61 | 1 of 2 |",  # -5 and +10
        "| dgr | paper | training.epochs=21 | 1 | 30.00 | 1 of 1 |",
    ]
    assert "nothing recorded" in paired_table(results[2:])


def test_a_system_has_its_number_beside_the_papers_and_what_was_changed():
    page = "\n".join(["| system | keeps | a | b | c | d |", "|---|---|---|---|---|---|"])
    names = ("[`gem`](gem.py)", "[`dgr`](dgr.py)", "`rps2019`", "`rps`, as the paper", "`rps`, tuned")
    page += "".join(f"\n| {name} | exemplars | 1 | 2 | 3 | 4 |" for name in names)
    named = ("options.switch_every=2", "attention=none")
    mnist = [
        *(_recorded("gem", "paper", seed, 0.9 + seed / 100, "auxiliary=svhn") for seed in range(3)),
        _recorded("dgr", "paper", 0, 0.6),
        *(_recorded("dgr", "paper", seed, 0.8, "training.epochs=21") for seed in range(2)),
        _recorded("rps", "paper", 0, 0.5, *named),
        _recorded("rps", "paper", 0, 0.4),
        _recorded("rps", "tuned", 0, 0.7),
    ]
    published = [
        {"recipe": "mnist_5_arena", "system": "GEM, as published", "accuracy": 0.922},
        {"recipe": "cifar100_10_arena", "system": "RPS-Net (2019), as published", "accuracy": 0.5648},
    ]
    text = systems_table(page, {"mnist_5_arena": mnist, "cifar100_10_arena": mnist[-1:]}, published)
    assert text.splitlines()[2:] == [
        "| [`gem`](gem.py) | exemplars | 91.00 ± 1.00 (n = 3) | 92.20 | - | - |",  # only dmc looks at `auxiliary`
        "| [`dgr`](dgr.py) | exemplars | 80.00 ± 0.00 (n = 2, training.epochs=21) | - | - | - |",
        "| `rps2019` | exemplars | 50.00 (n = 1) | - | - | 56.48 |",
        "| `rps`, as the paper | exemplars | 40.00 (n = 1) | - | - | - |",
        "| `rps`, tuned | exemplars | 70.00 (n = 1) | - | 70.00 (n = 1) | - |",
    ]


def test_every_system_has_a_row_and_every_published_one_is_known():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [name for name in (*METHODS, *NAMED) if f"| [`{name}`](../src/" not in text] == []
    links = re.findall(r"\]\((\.\./src/[\w/.]+)\)", text)
    assert all((ROOT / "docs" / link).resolve().is_file() for link in links)
    published = json.loads((ROOT / "docs" / "results" / "published.json").read_text())
    assert {r["system"].removesuffix(", as published") for r in published if r["recipe"] in ARENAS} <= set(PUBLISHED)
