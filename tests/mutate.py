"""Change one thing in the source and see whether the tests notice: `python -m tests.mutate --number 20 --seed 0`.

Works on a copy in a temporary folder. One JSON line per mutation: file, line, before, after, killed or survived. A
mutation that survives is a hole in the tests, or makes no difference: look at it.
"""

import argparse
import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("network", "learning", "methods")
TESTS = ("tests/test_equations.py", "tests/test_details.py", "tests/test_network_layers.py",
         "tests/test_learning_memory.py", "tests/test_rivals.py", "tests/test_methods.py")  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitOr, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


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


def mutations(file: Path) -> Iterator[tuple[int, str, str, str]]:
    """(line, before, after, the whole text changed) for every place in a file that can be changed."""
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
        yield node.lineno, line[a:b].decode(), after.decode(), "".join(whole)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the file's path")
    parser.add_argument("--tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    files = [f for room in ROOMS for f in sorted((ROOT / "src/randpath" / room).glob("*.py")) if options.only in str(f)]
    every = [(f, m) for f in files for m in mutations(f)]
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "tests", "docs"):
            shutil.copytree(ROOT / part, Path(folder) / part)
        shutil.copy(ROOT / "pyproject.toml", folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options.tests]
        for f, (line, before, after, text) in random.Random(options.seed).sample(
            every, min(options.number, len(every))
        ):
            place = Path(folder) / f.relative_to(ROOT)
            sound = place.read_text()
            place.write_text(text)
            done = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True)
            place.write_text(sound)
            result = "survived" if done.returncode == 0 else "killed"
            where = {"file": str(f.relative_to(ROOT)), "line": line, "before": before, "after": after}
            print(json.dumps({**where, "result": result, "of": len(every), "seed": options.seed}), flush=True)


def _environment(folder: str) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": f"{folder}/src:{folder}"}


if __name__ == "__main__":
    main()
