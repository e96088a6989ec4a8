"""A model file from a stranger cannot run code, because nothing in the package could run it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
CALLS = {"eval", "exec", "__import__"}
ATTRIBUTES = {"torch.load", "torch.save", "torch.hub", "torch.jit.load", "yaml.load", "os.system"}
NAMES = {"extractall", "extract", "allow_pickle", "weights_only", "read_pickle"}


def dangers(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield node.module or ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.func.id
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text in ATTRIBUTES or node.attr in NAMES or (node.attr == "load" and text.startswith(("np.", "numpy."))):
                yield text
        elif isinstance(node, ast.keyword) and (
            (node.arg in NAMES) or (node.arg == "shell" and not isinstance(node.value, ast.Constant))
        ):
            yield str(node.arg)


# The one file that reads a .pth: of a known SHA-256, and with weights_only, which both must stay.
ALLOWED = {"pretrained.py": ["torch.load", "weights_only"]}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_source_has_nothing_dangerous(path: Path) -> None:
    assert list(dangers(path.read_text())) == ALLOWED.get(path.name, [])


def test_the_one_file_that_reads_a_pth_reads_tensors_alone_and_checks_them_first() -> None:
    text = next(path for path in SOURCES if path.name == "pretrained.py").read_text()
    assert text.index("hexdigest() != sha256") < text.index("torch.load(") and "weights_only=True" in text


def test_the_scan_sees_what_it_should() -> None:
    for text in (
        "import pickle", "from pickle import loads", "import yaml", "torch.load(f)", "eval('1')", "exec('1')",
        "tar.extractall()", "np.load(f, allow_pickle=True)", "numpy.load(f)", "f(allow_pickle=x)", "run(shell=flag)",
    ):  # fmt: skip
        assert list(dangers(text)), text
    assert not list(dangers("model.eval(); checkpoint.load(x); json.loads(y)"))
