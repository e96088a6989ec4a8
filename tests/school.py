"""The real commands in this process, on tiny pictures and a tiny network: a learn takes a tenth of a second."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from randpath.commands import reading
from randpath.commands.app import main
from randpath.learning import train
from randpath.model import sizing
from tests.pictures import put


@dataclass(frozen=True)
class Said:
    """What a command answered: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """Its one JSON object."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def typed(*arguments: object) -> Said:
    """Type a command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    assert "Traceback" not in err.getvalue()
    code = left.value.code
    assert isinstance(code, int)
    return Said(code, out.getvalue(), err.getvalue())


def asked(*arguments: object) -> dict[str, Any]:
    """The answer of a command that must succeed."""
    said = typed(*arguments, "--json")
    assert said.code == 0, said
    return said.told


def learn(model: Path, folder: Path, *more: object) -> Said:
    return typed("learn", model, folder, "--epochs", 1, "--json", *more)


@contextlib.contextmanager
def tiny() -> Iterator[None]:
    """Pictures of 8 x 8, and so the MLP, narrow; every state is saved."""
    with pytest.MonkeyPatch.context() as patch:
        planned = sizing.plan_for
        patch.setattr(reading, "_size", lambda folder: 8)
        patch.setattr(sizing, "plan_for", lambda data, **more: planned(data, **{"width": 8, "modules": 3, "threads": 1, **more}))
        patch.setattr(train.Training, "save_seconds", 0.0)
        yield


def pictures(folder: Path, *classes: str, count: int = 4, start: int = 0) -> Path:
    """A folder of classes of noise, each class its own."""
    for name in classes:
        for i in range(start, start + count):
            put(folder / name / f"{i}.png", f"{name} {i}")
    return folder
