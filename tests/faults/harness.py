"""Whole runs in child processes, with faults put in from outside, and what must be the same at their end.

A server process imports torch once and forks a child for each command; the child replaces the file functions, and wraps
a few others to know the phase it is in, then calls the command line as a user does. A fault is written
`kill@PHASE:N`, `enospc@PHASE:N` (once) or `enospc+@PHASE:N` (from then on): at the N-th event of a phase, or of `any`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECIPE = HERE / "tiny.py"
CODES = {"enospc": errno.ENOSPC, "eio": errno.EIO, "eacces": errno.EACCES}


# ---- in the child


class Faults:
    """Counts the events of each phase and strikes when one is due."""

    def __init__(self, text: str, record: Path | None = None) -> None:
        self.due = []
        for fault in filter(None, text.split(",")):
            kind, _, rest = fault.partition("@")
            phase, _, n = rest.partition(":")
            self.due.append((kind, phase, int(n)))
        self.counts: Counter[str] = Counter()
        self.record = record

    def event(self, phase: str, half: Callable[[], None] | None = None) -> None:
        names = [phase] if half is None else [phase, "any"]  # `any` counts file operations alone
        self.counts.update(names)
        for kind, wanted, n in self.due:
            count = self.counts[wanted]
            if wanted not in names or not (count == n or (kind.endswith("+") and count > n)):
                continue
            if half is not None and n % 2:  # every other time in the middle of a write, not before it
                half()
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            code = CODES[kind.rstrip("+")]
            raise OSError(code, os.strerror(code))


def phase_of(operation: str, args: tuple[Any, ...]) -> str:
    """The phase of RELIABILITY.md, section 3, that a file operation belongs to."""
    path = Path(args[0])
    if path.name.endswith(".jsonl") or (operation == "rename" and Path(args[1]).name.endswith(".jsonl")):
        return "log.append"
    if operation == "remove" or (operation == "rename" and Path(args[1]).name.startswith(".tmp-")):
        return "ckpt.prune"
    return "ckpt.rename" if operation == "rename" else "ckpt.write"


def install(faults: Faults) -> None:
    """Replace the five file functions; wrap three others, to strike before and after them."""
    import shim

    from randpath.learning import memory, train
    from randpath.methods import rps
    from randpath.storage import checkpoint

    checkpoint.PAUSES = (0.0, 0.0)

    def before(operation: str, args: tuple[Any, ...]) -> None:
        def half() -> None:
            if operation == "write_file":
                shim.half_written(args[0], args[1])

        faults.event(phase_of(operation, args), half)

    shim.install(before)

    def wrap(owner: Any, name: str, phase: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            faults.event(phase)
            result = original(*args, **kwargs)
            faults.event(phase)
            return result

        setattr(owner, name, wrapped)

    wrap(train._Run, "require_finite", "candidate.step")
    wrap(rps, "best", "select")
    wrap(memory.Memory, "update", "memory")


def child(request: dict[str, Any]) -> None:
    """Become one run; never returns."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    from randpath.commands import app as cli

    faults = Faults(request["fault"])
    install(faults)
    if request["tiny"]:
        from tests.school import tiny

        tiny().__enter__()
    code = 99
    try:
        cli.main(request["arguments"])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 99
    except BaseException:
        import traceback

        traceback.print_exc()
    if request.get("counts"):
        Path(request["counts"]).write_text(json.dumps(faults.counts))
    sys.stdout.flush()
    os._exit(code)


def serve() -> None:
    """Fork a child for each line on stdin; answer its id at once and its status at its end."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    import tiny
    import torch

    import randpath.bench.run
    import randpath.commands.app
    import randpath.engines.processes

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:  # so that all is imported that a run imports on its way
        randpath.bench.run.run(tiny.paper, Path(place))
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            child(json.loads(line))
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


# ---- in the test


class Server:
    """Starts runs; one at a time."""

    def __init__(self, place: Path, tiny: bool = False) -> None:
        self.place, self.tiny = place, tiny  # tiny: tests/school.py
        self.runs = 0
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "harness.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # for `learn`, which takes all cores
        )

    def start(self, *arguments: str, fault: str = "", counts: Path | None = None) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"arguments": arguments, "fault": fault, "output": str(self.place / "output"), "tiny": self.tiny}
        request["counts"] = str(counts) if counts else ""
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        self.runs += 1
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """The exit code, or minus the signal."""
        assert self.process.stdout is not None
        return os.waitstatus_to_exitcode(int(self.process.stdout.readline()))

    def do(self, *arguments: str, fault: str = "", counts: Path | None = None) -> int:
        self.start(*arguments, fault=fault, counts=counts)
        return self.wait()

    def output(self) -> str:
        return (self.place / "output").read_text()

    def begin(self, run: Path, *more: str) -> tuple[str, ...]:
        """What a user types to begin the run, or to go on with it."""
        if (run / "experiment.json").exists():
            return ("resume", str(run))
        return ("bench", str(RECIPE), "--out", str(run), *more)

    def finish(self, run: Path, *more: str) -> None:
        code = self.do(*self.begin(run, *more))
        assert code == 0, self.output()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def digest(run: Path) -> dict[str, str]:
    """The SHA-256 of each file of weights, exemplars, paths, metrics and predictions; nothing unfinished may lie about.

    The commits of the checkout that ran it and the number of its processes are no result, and may change on the way.
    """
    left = [path for path in run.rglob("*") if path.name.startswith(".tmp-") or path.name == "work"]
    assert not left, left
    files = [run / "metrics.jsonl", run / "epochs.jsonl", *(run / "predictions").iterdir()]
    for task in (run / "checkpoints").iterdir():
        if ".bad" not in task.name:
            files += [path for path in task.iterdir() if path.name not in ("MANIFEST.json", "times.json")]
    found = {}
    for path in sorted(files):
        data = path.read_bytes()
        if path.name == "run.json":
            document = json.loads(data)
            document["commits"] = document["experiment"]["processes"] = None
            data = json.dumps(document, sort_keys=True).encode()
        found[str(path.relative_to(run))] = hashlib.sha256(data).hexdigest()
    return found


if __name__ == "__main__":
    serve()
