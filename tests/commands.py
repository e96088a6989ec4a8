"""The commands, as a person types them: in this process, which is quick, or in one of their own, to be stopped."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from randpath.commands.app import main
from randpath.commands.terminal import Bar


def ran(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process. What is no exit is a bug, and fails the test with its traceback."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main([*map(str, arguments)])
    return subprocess.CompletedProcess(arguments, int(left.value.code or 0), out.getvalue(), err.getvalue())


def run(*arguments: object, code: int = 0, cwd: Path | None = None) -> str:
    """What a command prints; of one that is to fail, also what it says on stderr, unless that is JSON."""
    done = ran(*arguments, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 or "--json" in arguments else done.stdout + done.stderr


def run_json(*arguments: object, code: int = 0, cwd: Path | None = None) -> Any:
    return json.loads(run(*arguments, "--json", code=code, cwd=cwd))


def interrupt(monkeypatch: pytest.MonkeyPatch, steps: int, number: int) -> None:
    """Send this process a signal after so many steps of a training."""
    left = steps
    show = Bar.show

    def counting(bar: Bar, done: float, what: Any = None) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
        show(bar, done, what)

    monkeypatch.setattr(Bar, "show", counting)


def start(*arguments: object, cwd: Path | None = None) -> "subprocess.Popen[str]":
    """A command in a process of its own, on one thread (conftest.py); a warning is an error."""
    return subprocess.Popen(
        [sys.executable, "-m", "randpath", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )  # fmt: skip


def stop_after(process: "subprocess.Popen[str]", said: str, number: int) -> tuple[int, str]:
    """Send a signal as soon as a command has said something on stderr; how it ends, and all that it said."""
    assert process.stderr is not None
    heard = ""
    for line in process.stderr:
        heard += line
        if said in line:
            process.send_signal(number)
            break
    _, rest = process.communicate(timeout=300)
    return process.returncode, heard + rest
