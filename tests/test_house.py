"""The house: no function over 60 lines, no file over 400."""

import ast
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "randpath"


def test_no_function_is_over_60_lines_and_no_file_over_400():
    for file in sorted(SRC.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 60, (file, node.name)
