"""Tiny pictures and a tiny network for the real commands (tests/commands.py): a learn takes half a second."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from randpath.bench.experiment import Experiment
from randpath.commands import reading, recipe
from randpath.learning import train
from randpath.model import sizing
from tests.commands import run_json
from tests.pictures import put


@contextlib.contextmanager
def tiny() -> Iterator[None]:
    """Pictures of 8 x 8, and so the MLP, narrow; a state is saved after every epoch."""
    planned = sizing.plan_for
    small = {"width": 8, "modules": 3, "threads": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_size", lambda folder: 8)
        patch.setattr(sizing, "plan_for", lambda data, **choices: planned(data, **{**small, **choices}))
        patch.setattr(train.Training, "save_seconds", 0.0)
        yield


@contextlib.contextmanager
def small_recipes() -> Iterator[None]:
    """Every recipe on the embedded digits: two tasks, one epoch of a narrow MLP."""
    read = recipe.read

    def small(name: str, variant: str) -> tuple[Experiment, dict[str, Any] | None]:
        own, file = read(name, variant)
        training = train.Training(epochs=1, batch=256)
        return Experiment("digits", 2, backbone="mlp", width=8, modules=3, method=own.method, training=training), file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "read", small)
        yield


def pictures(folder: Path, *classes: str, count: int = 4, start: int = 0) -> Path:
    """A folder of classes of noise, each class its own."""
    for name in classes:
        for i in range(start, start + count):
            put(folder / name / f"{i}.png", f"{name} {i}")
    return folder


def learn(model: Path, folder: Path, *more: object, code: int = 0) -> dict[str, object]:
    found: dict[str, object] = run_json("learn", model, folder, "--epochs", 2, *more, code=code)
    return found


def two_versions(place: Path) -> Path:
    """A model of two versions: a and b, then c; the folders beside it."""
    with tiny():
        learn(place / "model", pictures(place / "ab", "a", "b"))
        learn(place / "model", pictures(place / "c", "c"))
    return place
