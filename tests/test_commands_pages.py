"""The commands that the pages show: each is run, block by block, or stands in PARSED with the reason why not."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from randpath.commands.app import COMMANDS, app
from randpath.methods import METHODS
from tests.commands import ran, run
from tests.made_runs import made_run
from tests.pictures import put
from tests.school import learn, pictures, small_recipes, tiny

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)

CELLS = "sixty runs, each in a process of its own; tests/test_bench_cells.py runs a few"
SERVER = "it serves until it is stopped; tests/test_commands_serve.py asks it"
PARSED = {  # command: why it is not run here
    "randpath bench mnist_5 --methods all --seeds 0,1,2 --jobs 2": CELLS,
    "randpath bench mnist_5_arena --variant paper --methods all --seeds 0,1,2 --set auxiliary=svhn --jobs 2": CELLS,
    "randpath bench mnist_5_arena --variant paper --methods dgr,rtf --seeds 0,1,2 --set training.epochs=21": CELLS,
    "randpath bench cifar100_10 --variant paper --device cuda --set training.mixed=true --set processes=4": (
        "there is no GPU; tests/test_methods_device.py trains on a pretended one"
    ),
    "randpath serve MODEL": SERVER,
    "randpath serve birds --port 8000": SERVER,
    "randpath report RUN --live": "it serves until it is stopped; tests/test_report_pages.py asks it",
}
PLACES = {  # what a page leaves to its reader: command as shown, command as typed
    "randpath predict MODEL IMAGE...": "randpath predict MODEL FOLDER/owl/0.png FOLDER/tit/1.png",
    "randpath forget MODEL CLASS": "randpath forget MODEL fox",
    "randpath resume RUN": "randpath resume runs/mnist_5-rps-paper-0",
    "randpath report RUN...": "randpath report runs/mnist_5-rps-paper-0 runs/mnist_5-gem-tuned-0",
    "randpath bench RECIPE --set dataset=folder:pets --set tasks=2": (
        "randpath bench mnist_5 --set dataset=folder:pets --set tasks=2"
    ),
    "randpath methods NAME": "randpath methods lwf",
    "randpath bench digits_5 --method NAME --seed 0 --record": (
        "randpath bench digits_5 --method lwf --seed 0 --record"
    ),
    "randpath data NAME": "randpath data digits",
    "randpath bench NAME --set training.epochs=1": "randpath bench mnist_5 --set training.epochs=1",
}


def blocks(page: Path) -> list[list[str]]:
    """The commands in each block of a page, without what is said beside them."""
    found = []
    for block in BLOCKS.findall(page.read_text(encoding="utf-8")):
        lines = [line.removeprefix("$ ") for line in block.splitlines()]
        commands = [line for line in lines if line.startswith("randpath ")]
        found.append([re.split(r"  +|  #|&&", command)[0].strip() for command in commands])
    return [commands for commands in found if commands]


def shown(page: Path) -> list[str]:
    return [command for block in blocks(page) for command in block]


BLOCKS_TO_RUN = [
    pytest.param(commands, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, commands in enumerate(blocks(page), start=1)
    if not set(commands) <= set(PARSED)
]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders and files that the pages name, with tiny contents."""
    here = tmp_path_factory.mktemp("pages")
    for folder in ("FOLDER", "pets"):
        pictures(here / folder, "owl", "tit")
    pictures(here / "first", "robin", "wren")
    pictures(here / "more", "winter wren", "tit")
    pictures(here / "test", "robin", "wren", "winter wren", "tit", start=4)
    for name in ("a.jpg", "holiday/1.jpg", "holiday/2.jpg"):
        put(here / name, name)
    for name in ("RUN", "runs/mnist_5_arena-paper/rps-0", "runs/mnist_5_arena-paper/gem-0"):
        made_run(here / name, recipe="mnist_5_arena", method=name[-5:-2] if "-0" in name else "rps")
    (here / "docs" / "results").mkdir(parents=True)
    shutil.copytree(ROOT / "examples", here / "examples")
    with tiny():
        learn(here / "MODEL", pictures(here / "before", "fox", "hen"))
    yield here
    shutil.rmtree(here)


def typed(command: str) -> list[str]:
    """The words after `randpath`, as a shell would give them."""
    words = shlex.split(PLACES.get(command, command))[1:]
    return [name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


@pytest.mark.parametrize("commands", BLOCKS_TO_RUN)
def test_a_block_runs_from_its_first_command_to_its_last(commands, stand_ins, tmp_path, monkeypatch):
    if any(command.split()[1] in ("export", "start") for command in commands):
        pytest.importorskip("onnxscript", reason="pip install 'randpath[onnx]'")
        pytest.importorskip("onnxruntime", reason="pip install 'randpath[start]'")
    here = tmp_path / "here"
    shutil.copytree(stand_ins, here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))  # where it is noted which recipe files the user has run
    with tiny(), small_recipes(), patch.dict(METHODS):  # an example brings its own method
        for command in commands:
            if command not in PARSED:
                done = ran(*typed(command))
                assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_what_is_not_run_or_typed_otherwise_is_still_shown():
    everywhere = {command for page in PAGES for command in shown(page)}
    assert {*PARSED, *PLACES} <= everywhere


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page):
    in_prose = re.findall(r"`(randpath [^`\n]*)`", page.read_text(encoding="utf-8"))
    for command in [*shown(page), *in_prose]:
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
