"""Whether the lines and the document of a run directory are such as our own runs write: what is not is named."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from randpath.errors import Damaged

Test = Callable[[Any], bool]


def number(value: Any) -> bool:
    """Whether it is a finite number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e18


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15


def share(value: Any) -> bool:
    return number(value) and 0 <= value <= 1


def or_none(test: Test) -> Test:
    return lambda value: value is None or test(value)


def list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


def text(value: Any) -> bool:
    return isinstance(value, str)


def path(value: Any) -> bool:
    """L rows of M zeros and ones."""
    rows = isinstance(value, list) and bool(value) and all(isinstance(row, list) and row for row in value)
    return rows and len({len(row) for row in value}) == 1 and all(on in (0, 1) for row in value for on in row)


LINES: dict[str, tuple[dict[str, Test], dict[str, Test]]] = {  # file -> what must be there, what may be there
    "metrics": (
        {
            "k": count, "classes": list_of(text), "accuracy": share, "accuracy_by_task": list_of(share),
            "forgetting": or_none(number), "parameters": count, "megabytes": number, "flops": count,
        },
        {
            "path": or_none(path), "saturation": or_none(number), "switched": or_none(lambda v: isinstance(v, bool)),
            "parameters_trained": or_none(count),
        },
    ),
    "epochs": (
        {"k": count, "candidate": count, "epoch": count},
        dict.fromkeys(("loss_ce", "loss_dist", "phi", "validation", "lr"), or_none(number)),
    ),
    "times": ({"k": count, "seconds": number}, {"cpu_seconds": or_none(number), "visits": or_none(count)}),
}  # fmt: skip
DOCUMENT: tuple[dict[str, Test], dict[str, Test]] = (
    {"experiment": lambda v: isinstance(v, dict), "class_names": list_of(text), "class_order": list_of(count)},
    {"environment": lambda v: isinstance(v, dict), "command": text},
)
EXPERIMENT: tuple[dict[str, Test], dict[str, Test]] = (
    {
        "method": text, "variant": text, "recipe": text, "dataset": text, "seed": count,
        "tasks": lambda v: (count(v) and 0 < v < 10**6) or (isinstance(v, list) and bool(v)),
        "options": lambda v: isinstance(v, dict) and number(v.get("threshold", 0)),
        "training": lambda v: isinstance(v, dict),
    },
    {},
)  # fmt: skip


def check(found: Any, tests: tuple[dict[str, Test], dict[str, Test]], where: str) -> None:
    """Refuse what lacks a key, or has a value that no run of ours would write."""
    needed, allowed = tests
    if not isinstance(found, Mapping):
        raise Damaged(f"{where} is damaged: it is no object", where=where)
    for key, test in {**needed, **allowed}.items():
        if key not in found and key in needed:
            raise Damaged(f"{where} is damaged: {key!r} is missing", where=where)
        if key in found and not test(found[key]):
            raise Damaged(f"{where} is damaged: {key} is {str(found[key])[:60]!r}", where=where)


def check_tasks(lines: list[dict[str, Any]], where: str) -> None:
    """Refuse tasks that do not follow each other, classes that vanish and paths of different networks."""
    shapes = {(len(line["path"]), len(line["path"][0])) for line in lines if line.get("path")}
    for k, line in enumerate(lines, start=1):
        before = lines[k - 2]["classes"] if k > 1 else []
        if line["k"] != k or len(line["accuracy_by_task"]) != k or line["classes"][: len(before)] != before:
            raise Damaged(f"{where} is damaged: its line {k} does not follow from the one before", where=where)
        if not line["classes"] or len(shapes) > 1:
            raise Damaged(f"{where} is damaged: its line {k} has no classes, or a path of another network", where=where)
