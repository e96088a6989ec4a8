"""Change one thing in the source and see whether the tests notice: `python -m tests.mutate --number 200 --seed 0`.

Works on a copy in a temporary folder. First every test is run once, to see which lines it touches and what it costs;
then each mutation meets only the tests that touch its line, the quickest first, until one fails. Each is tried in a
fork of one process that has imported torch, within a limit of CPU time. One JSON line per mutation is appended to
--out: a second call goes on where the first has stopped. A mutation that survives is a hole in the tests, or makes no
difference: look at it.
"""

import argparse
import ast
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
ROOMS = ("network", "learning", "methods")
TESTS = ("tests/test_equations.py", "tests/test_details.py", "tests/test_network_*.py", "tests/test_learning_*.py",
         "tests/test_methods_[!do]*.py", "tests/test_methods.py", "tests/test_rivals.py",
         *(f"src/randpath/{room}/*.py" for room in ROOMS))  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitOr, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


# ---- what can be changed


def changed(node: ast.AST) -> ast.AST | None:
    """The node with one thing changed; none where there is nothing to change."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        return ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)  # type: ignore[arg-type]
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(SWAPS[type(node.op)](), node.values)  # type: ignore[arg-type]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        return ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)  # type: ignore[list-item]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return ast.Constant(node.value + 1)
    return None


@dataclass(frozen=True)
class Mutation:
    """One change of one file."""

    file: str  # below the root
    line: int
    before: str
    after: str
    text: str  # the whole file, changed


def mutations(file: Path) -> Iterator[Mutation]:
    """Every place in a file that can be changed."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    hints = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    typing = {id(part) for hint in hints if hint is not None for part in ast.walk(hint)}  # changes nothing that runs
    for node in ast.walk(tree):
        new = None if id(node) in typing else changed(node)
        if new is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        line = lines[node.lineno - 1].encode()  # type: ignore[attr-defined]
        a, b = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        if b"Annotated" in line or line.lstrip().startswith((b"raise", b"assert", b"from", b"import")):
            continue
        after = f"({ast.unparse(new)})".encode()
        whole = [*lines[: node.lineno - 1], (line[:a] + after + line[b:]).decode(), *lines[node.lineno :]]  # type: ignore[attr-defined]
        name = str(file.relative_to(ROOT))
        yield Mutation(name, node.lineno, line[a:b].decode(), after.decode(), "".join(whole))  # type: ignore[attr-defined]


# ---- the copy, and tests in a fork of this process


class Watcher:
    """A plugin of pytest: which lines of the rooms each test touches, what it costs, and which fails first."""

    def __init__(self, folder: Path, trace: bool):
        self.roots = tuple(str(folder / "src/randpath" / room) for room in ROOMS)
        self.folder, self.trace = folder, trace
        self.failed: str | None = None
        self.sound: dict[str, dict[str, Any]] = {}  # test -> seconds and lines by file

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.lines: dict[str, set[int]] = {}
        self.began = time.process_time()
        if self.trace:
            sys.settrace(self._called)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
        if report.when == "teardown":
            sys.settrace(None)
            touched = {name.removeprefix(f"{self.folder}/"): sorted(lines) for name, lines in self.lines.items()}
            seconds = round(time.process_time() - self.began, 3)
            self.sound[report.nodeid] = {"seconds": seconds, "lines": touched}
        if report.failed:
            self.sound.pop(report.nodeid, None)

    def _called(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(self.roots):
            return None
        lines = self.lines.setdefault(name, set())
        lines.add(frame.f_lineno)

        def local(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return local

        return local


@dataclass(frozen=True)
class Outcome:
    """How a fork has ended."""

    result: str  # killed, survived, timeout
    by: str | None
    cpu_seconds: float
    sound: dict[str, dict[str, Any]]


class Copy:
    """A copy of the checkout in which tests are run, each time in a fork."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in ("src", "tests", "docs", "examples"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder)

    def tests(self, patterns: Iterable[str]) -> list[str]:
        return [str(f.relative_to(self.folder)) for pattern in patterns for f in sorted(self.folder.glob(pattern))]

    def tried(self, file: str, text: str, tests: Sequence[str], limit: float) -> Outcome:
        """The tests with one file's text changed."""
        place = self.folder / file
        sound = place.read_text()
        place.write_text(text)
        try:
            return self.run(tests, limit)
        finally:
            place.write_text(sound)

    def run(self, tests: Sequence[str], limit: float, *, trace: bool = False) -> Outcome:
        """In a fork: torch is there already, this package is imported from the copy."""
        reading, writing = os.pipe()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            os.close(reading)
            code = 70
            with contextlib.suppress(BaseException):
                code = self._inside(tests, limit, trace, writing)
            os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read()
        status = os.waitpid(child, 0)[1]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        if os.WIFSIGNALED(status):
            return Outcome("timeout", f"signal {os.WTERMSIG(status)}", spent, {})
        found = json.loads(told) if told else {"failed": "it could not be imported", "sound": {}}
        survived = os.WEXITSTATUS(status) == 0
        return Outcome("survived" if survived else "killed", found["failed"], spent, found["sound"])

    def _inside(self, tests: Sequence[str], limit: float, trace: bool, writing: int) -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = f"{self.folder}/src:{self.folder}"
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:0] = [f"{self.folder}/src", str(self.folder)]
        sys.dont_write_bytecode = True
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        import hypothesis
        import pytest

        hypothesis.settings.register_profile("mutate", deadline=None, derandomize=True, database=None)
        hypothesis.settings.load_profile("mutate")
        watcher = Watcher(self.folder, trace)
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *([] if trace else ["-x"])]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
        code = pytest.main([*options, *tests], plugins=[watcher])
        with os.fdopen(writing, "w") as pipe:
            json.dump({"failed": watcher.failed, "sound": watcher.sound if trace else {}}, pipe)
        return int(code)


def source_hash() -> str:
    """Of the rooms and the tests: what a map and a sample belong to."""
    files = [f for part in ("src/randpath", "tests") for f in sorted((ROOT / part).rglob("*.py"))]
    files = [f for f in files if "mutat" not in f.name]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


def test_map(copy: Copy, place: Path) -> dict[str, dict[str, Any]]:
    """Which lines each test touches, and its seconds; made once for each state of source and tests."""
    known: dict[str, dict[str, Any]] = json.loads(place.read_text()) if place.exists() else {}
    place.parent.mkdir(parents=True, exist_ok=True)
    for file in copy.tests(TESTS):
        if file not in known:  # a file's entry says that its tests are there
            known |= {file: {"seconds": 0.0, "lines": {}}, **copy.run([file], 3600, trace=True).sound}
            place.write_text(json.dumps(known))
    return known


def that_touch(known: dict[str, dict[str, Any]], mutation: Mutation, most: float) -> list[str]:
    """The tests of a line, the quickest first; if it only runs at import, those of the file and with its name."""
    own = [name for name, one in known.items() if mutation.line in one["lines"].get(mutation.file, ())]
    named = f"[{Path(mutation.file).stem}]"
    own = own or [name for name, one in known.items() if mutation.file in one["lines"] or name.endswith(named)]
    own.sort(key=lambda name: known[name]["seconds"])
    total, chosen = 0.0, []
    for name in own:
        total += known[name]["seconds"]
        if total > most and chosen:
            break
        chosen.append(name)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the file's path")
    parser.add_argument("--indices", default="", help="of the sample, with commas between them; all, if none is given")
    parser.add_argument("--most", type=float, default=100.0, help="CPU seconds of tests that one mutation meets")
    parser.add_argument("--out", type=Path, default=Path.home() / "randpath-runs" / "mutations.jsonl")
    options = parser.parse_args()
    files = [f for room in ROOMS for f in sorted((ROOT / "src/randpath" / room).glob("*.py")) if options.only in str(f)]
    every = [m for f in files for m in mutations(f)]
    sample = random.Random(options.seed).sample(every, len(every))[: options.number]  # a larger one begins with these
    source, chosen = source_hash(), [part for part in options.indices.split(",") if part]
    done = {
        (line["seed"], line["index"], line["of"])
        for line in (map(json.loads, options.out.read_text().splitlines()) if options.out.exists() else ())
        if line["source"] == source
    }
    _import_once()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder).resolve())
        known = test_map(copy, options.out.with_name(f"mutations-{source}.json"))
        for index, m in enumerate(sample):
            if (options.seed, index, len(every)) in done or (chosen and str(index) not in chosen):
                continue
            tests = that_touch(known, m, options.most)
            limit = 20 + 3 * sum(known[name]["seconds"] for name in tests)
            outcome = copy.tried(m.file, m.text, tests, limit) if tests else Outcome("untested", None, 0.0, {})
            line = {
                "seed": options.seed, "index": index, "of": len(every), "source": source, "file": m.file,
                "line": m.line, "before": m.before, "after": m.after, "result": outcome.result, "by": outcome.by,
                "tests": len(tests), "cpu_seconds": outcome.cpu_seconds,
            }  # fmt: skip
            with options.out.open("a") as out:
                out.write(json.dumps(line) + "\n")


def _import_once() -> None:
    """What every fork needs and no mutation changes; one thread, because a fork has only one."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import PIL.Image  # noqa: F401
    import pytest  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch.utils.flop_counter

    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
