"""What an item needs: its runs, which of them are there, and what they measured."""

import hashlib
import importlib
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from randpath.bench.begin import FREE
from randpath.bench.experiment import Experiment
from randpath.errors import UsageError
from randpath.methods import METHODS
from randpath.paper.items import ITEMS, Item, Scale
from randpath.report.charts import winning_epochs
from randpath.report.reading import is_run, read_run
from randpath.report.record import Result, result_of, results_of
from randpath.storage import checkpoint


@dataclass(frozen=True)
class PlannedRun:
    """One run of an arm."""

    arm: str
    recipe: str
    variant: Literal["tuned", "paper"]
    method: str
    settings: tuple[str, ...]
    seed: int
    directory: pathlib.Path  # named by the command, so that items share their runs

    @property
    def command(self) -> str:
        sets = "".join(f" --set {shlex.quote(setting)}" for setting in self.settings)
        return f"randpath bench {self.recipe} --variant {self.variant} --method {self.method} --seed {self.seed}{sets}"

    @property
    def state(self) -> str:
        """done, unfinished or missing."""
        if not is_run(self.directory):
            return "missing"
        return "done" if read_run(self.directory).finished else "unfinished"


def item_of(name: str) -> Item:
    for item in ITEMS:
        if item.name == name:
            return item
    raise UsageError(
        f"there is no item {name!r}; there are {', '.join(item.name for item in ITEMS)}", next="randpath paper"
    )


def planned_runs(item: Item, scale: Scale, folder: pathlib.Path) -> list[PlannedRun]:
    """All runs of an item, those of methods that are not there yet left out."""
    found = []
    for arm, arguments in (item.small if scale == "small" else item.full).items():
        recipe, *words = shlex.split(arguments)
        pairs = list(zip(words[::2], words[1::2]))
        options = dict(pair for pair in pairs if pair[0] != "--set")
        method = options.get("--method", "rps")
        variant: Literal["tuned", "paper"] = "paper" if options.get("--variant") == "paper" else "tuned"
        settings = _changes(recipe, variant, method, [value for word, value in pairs if word == "--set"])
        for seed in item.seeds:
            if method in METHODS:
                planned = PlannedRun(arm, recipe, variant, method, settings, seed, folder)
                name = hashlib.sha256(planned.command.encode()).hexdigest()[:12]
                found.append(replace(planned, directory=folder / f"{recipe}-{method}-{name}"))
    return found


def _changes(recipe: str, variant: str, method: str, settings: Sequence[str]) -> tuple[str, ...]:
    """Those settings that are not the recipe's own: arms that mean the same are one run.

    >>> _changes("cifar20_10_small", "paper", "rps", ["options.gamma=2.5", "modules=8", "attention=none"])
    ('attention=none',)
    """
    own: Experiment = getattr(importlib.import_module(f"randpath.recipes.{recipe}"), variant)
    own = own if own.method == method else replace(own, method=method, options={})
    return tuple(sorted(setting for setting in settings if own.with_settings([setting]) != own))


def absent(item: Item, scale: Scale) -> list[str]:
    """The methods that an item compares with and that are not in METHODS."""
    words = [shlex.split(arguments) for arguments in (item.small if scale == "small" else item.full).values()]
    named = [own[own.index("--method") + 1] for own in words if "--method" in own]
    return list(dict.fromkeys(method for method in named if method not in METHODS))


def measure(planned: PlannedRun, item: Item, scale: Scale) -> Result:
    """A finished run as a recorded result, with what the paper's figures show of it."""
    run = read_run(planned.directory)
    winning = winning_epochs(run)
    return {
        **result_of(planned.directory, planned.command),
        "item": item.name,
        "scale": scale,
        "arm": planned.arm,
        "parameters_by_task": [line["parameters"] for line in run.tasks],
        "flops_by_task": [line["flops"] for line in run.tasks],
        "validation": [[line.get("validation") for line in winning.get(k, [])] for k in range(1, len(run.tasks) + 1)],
    }


def recorded_file(root: pathlib.Path, item: Item, scale: Scale) -> pathlib.Path:
    return root / "docs" / "results" / "paper" / f"{item.name}-{scale}.json"


def record(root: pathlib.Path, item: Item, scale: Scale, results: Sequence[Result]) -> pathlib.Path:
    """Write all results of an item, one a line."""
    file = recorded_file(root, item, scale)
    text = "[\n" + ",\n".join(json.dumps(r, sort_keys=True) for r in results) + "\n]\n"
    checkpoint.replace_file(file, text.encode())
    return file


def recorded(root: pathlib.Path, item: Item, scale: Scale) -> list[Result]:
    """The recorded results of an item: its own, and those that `bench --record` kept of the same commands."""
    file = recorded_file(root, item, scale)
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    own = {(r["arm"], r["seed"]) for r in results}
    if item.picture == "accuracy":  # the other pictures show what only the item's own records hold
        for planned in planned_runs(item, scale, root):
            if (planned.arm, planned.seed) not in own and (other := elsewhere(root, planned)) is not None:
                results.append({**other, "arm": planned.arm})
    order = list(item.small if scale == "small" else item.full)
    return sorted(results, key=lambda r: (order.index(r["arm"]) if r["arm"] in order else len(order), r["seed"]))


def sources(root: pathlib.Path, item: Item, scale: Scale) -> list[pathlib.Path]:
    """The files that hold what is recorded of an item."""
    own = recorded_file(root, item, scale)
    names = dict.fromkeys(r["recipe"] for r in recorded(root, item, scale) if "item" not in r)
    return [own] * own.exists() + [root / "docs" / "results" / f"{name}.json" for name in names]


def elsewhere(root: pathlib.Path, planned: PlannedRun) -> Result | None:
    """A result that was recorded of the same command, but for settings that cannot change it."""
    for result in results_of(root / "docs" / "results", planned.recipe):
        words = shlex.split(result["command"])
        options = dict(zip(words[3::2], words[4::2]))
        settings = {v for w, v in zip(words, words[1:]) if w == "--set" and v.partition("=")[0] not in FREE}
        if (options.get("--variant"), options.get("--method"), options.get("--seed")) == (
            planned.variant, planned.method, str(planned.seed),
        ) and settings == set(planned.settings):  # fmt: skip
            return result
    return None


def by_arm(results: Sequence[Result]) -> dict[str, list[Mapping[str, Any]]]:
    """Arm -> its results, in the order of the item."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        found.setdefault(result["arm"], []).append(result)
    return found
