"""`randpath bench RECIPE --methods ... --seeds ...`: many runs, each in a process and a directory of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from randpath.bench.cells import Cell, cells, typed
from randpath.commands.recipe import changed, read
from randpath.commands.terminal import Stop
from randpath.errors import RandpathError, UsageError

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment


@dataclass
class Running:
    """A cell that is being run."""

    cell: Cell
    directory: pathlib.Path
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def many(
    recipe: str,
    variant: str,
    methods: str | None,  # none: the recipe's own
    seeds: str,
    settings: Sequence[str],
    grid: Sequence[str],
    root: pathlib.Path,
    jobs: int,
    results: pathlib.Path | None,
) -> int:
    """Methods x seeds x grid."""
    from randpath.methods import METHODS

    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {jobs}")
    own, _ = read(recipe, variant)  # a file of one's own may define a method, too
    todo = cells(methods or own.method, list(METHODS), seeds, settings, grid)
    return run_cells(todo, own, recipe, variant, root, jobs, results)


def run_cells(
    todo: Sequence[Cell],
    own: "Experiment",  # what the recipe calls `variant`
    recipe: str,
    variant: str,
    root: pathlib.Path,
    jobs: int,
    results: pathlib.Path | None,
) -> int:
    """Run what is not finished yet, `jobs` at a time; a cell that fails is named at the end and stops no other."""
    left, running = list(todo), list[Running]()
    failed: list[tuple[Cell, int, str]] = []
    root.mkdir(parents=True, exist_ok=True)

    def fail(cell: Cell, code: int, words: str) -> None:
        failed.append((cell, code, words))
        print(f"{cell.directory}: failed (exit {code}): {words}", flush=True)

    def begin(cell: Cell) -> None:
        directory = root / cell.directory
        _refuse_other(directory, changed(own, recipe, variant, cell.method, cell.seed, cell.all_settings))
        if accuracy(directory) is None:
            running.append(_start(cell, recipe, variant, directory, jobs))
        else:
            _finished(cell, directory, recipe, variant, results, "was finished before")

    with Stop() as stop, _not_left_alone(running):
        while (left or running) and not stop.signal:
            while left and len(running) < jobs:
                cell = left.pop(0)
                try:
                    begin(cell)
                except RandpathError as error:
                    fail(cell, error.exit_code, str(error))
            time.sleep(0.2)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                one.log.close()
                if code := one.process.returncode:
                    fail(one.cell, code, _last_words(one.directory))
                else:
                    _finished(one.cell, one.directory, recipe, variant, results, "finished")
        if stop.signal:
            return _stopped(running, stop.signal)
    print(f"{len(todo) - len(failed)} of {len(todo)} runs are finished, in {root}; type: randpath table {root}/*")
    for cell, code, words in failed:
        print(f"  not {cell.directory} (exit {code}): {words}")
    return failed[0][1] if failed else 0


@contextmanager
def _not_left_alone(running: Sequence[Running]) -> Iterator[None]:
    """If this process fails by itself, its runs save themselves and end with it."""
    try:
        yield
    except BaseException:
        for one in running:
            one.process.terminate()
        raise


def _stopped(running: Sequence[Running], number: int) -> int:
    """Let the runs save themselves; a terminal's Ctrl-C has reached them already."""
    for one in running:
        if number != signal.SIGINT:
            one.process.send_signal(number)
        one.process.wait()
        one.log.close()
    print("stopped; the same command goes on from here")
    return 128 + number


def _refuse_other(directory: pathlib.Path, experiment: "Experiment") -> None:
    """A run with other settings is neither gone on with nor taken for finished."""
    from randpath.bench.begin import other_settings
    from randpath.report.reading import is_run, read_run

    if is_run(directory) and (differ := other_settings(read_run(directory).experiment, experiment)):
        raise UsageError(f"{directory} holds another run ({'; '.join(differ)})", next="choose another --out")


def accuracy(directory: pathlib.Path) -> float | None:
    """The final accuracy of a finished run; none if it is not there or not finished."""
    from randpath.report.record import num_tasks
    from randpath.storage import checkpoint

    if not (directory / "experiment.json").exists() or not (directory / "metrics.jsonl").exists():
        return None
    tasks = num_tasks(checkpoint.read_document(directory / "experiment.json")["experiment"])
    lines = checkpoint.read_lines(directory / "metrics.jsonl")
    return lines[-1]["accuracy"] if len(lines) == tasks else None


def _start(cell: Cell, recipe: str, variant: str, directory: pathlib.Path, jobs: int) -> Running:
    begun = (directory / "experiment.json").exists()
    words = ["resume", str(directory)] if begun else [*cell.arguments(recipe, variant), "--out", str(directory)]
    log = _log(directory).open("ab")
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ} if jobs > 1 else None
    process = subprocess.Popen(
        [sys.executable, "-m", "randpath", *words], stdout=log, stderr=subprocess.STDOUT, env=environment
    )
    print(f"{cell.directory}: {'goes on' if begun else 'begins'}", flush=True)
    return Running(cell, directory, process, log)


def _finished(
    cell: Cell, directory: pathlib.Path, recipe: str, variant: str, results: pathlib.Path | None, how: str
) -> None:
    print(f"{cell.directory}: {how}, final accuracy {100 * (accuracy(directory) or 0):.2f} %", flush=True)
    if results is not None:
        from randpath.report.record import append_result, result_of

        append_result(results, result_of(directory, typed(cell.arguments(recipe, variant))))


def _log(directory: pathlib.Path) -> pathlib.Path:
    return directory.with_name(directory.name + ".txt")


def _last_words(directory: pathlib.Path) -> str:
    """The error that a run ended with, or its last line."""
    lines = [line.strip() for line in _log(directory).read_text(errors="replace").splitlines() if line.strip()]
    told = [line.removeprefix("randpath: ") for line in lines if line.startswith("randpath: ")]
    return told[-1] if told else lines[-1] if lines else "it said nothing"
