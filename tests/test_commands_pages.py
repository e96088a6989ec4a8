"""The commands that the pages show: each is one that exists, with options that it takes; the quick ones are run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from randpath.commands.app import COMMANDS, app
from randpath.methods import METHODS
from tests.commands import run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(page: Path) -> list[str]:
    """The commands in a page's blocks, without what is said beside them."""
    lines = [line for block in BLOCKS.findall(page.read_text(encoding="utf-8")) for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("randpath ")]
    return [re.split(r"  +|  #|&&", command)[0].strip() for command in commands]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page):
    for command in shown(page):
        words = shlex.split(re.sub(r"[\[\]|]|\.\.\.", " ", command))[1:]
        if words[0].startswith("-"):
            continue
        assert words[0] in {c.__name__ for c in COMMANDS}, command
        known = run(words[0], "--help")
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in known, f"{page.name}: {command}"


def test_the_pages_show_commands():
    assert len(shown(ROOT / "README.md")) >= 10
    assert len(shown(ROOT / "CONTRIBUTING.md")) >= 4
    assert app.name == ("randpath",)


def test_what_the_readme_shows_for_a_paper_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for method in re.findall(r"--method (\w+)", text):
        assert method in METHODS
    for recipe in re.findall(r"randpath bench (\w+) ", text):
        assert (ROOT / "src" / "randpath" / "recipes" / f"{recipe}.py").is_file()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link


def test_make_targets_of_the_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert set(target) - {""} <= targets, page.name


def test_the_demo_that_the_readme_shows_is_the_recorded_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for record in json.loads((ROOT / "docs" / "results" / "digits_5.json").read_text()):
        if (record["variant"], record["seed"]) == ("tuned", 0) and record["method"] in ("rps", "finetune"):
            row = next(line for line in text.splitlines() if line.startswith(f"| {record['method']} "))
            assert re.findall(r"\d+\.\d\d", row) == [f"{100 * a:.2f}" for a in record["accuracy"]]
