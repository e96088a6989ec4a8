"""A machine that begins, ends and resumes runs of `bench` in any order; however it went, the result is the same bytes.

`make test` tries 3 sequences, `make test-states` 50. A failing one is printed as the commands to type.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from harness import digest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from states import directory, in_this_process, say, try_sequences, wanted
from tests.pictures import put
from tests.school import pictures

RECIPE = """
from randpath.bench.experiment import Experiment
from randpath.learning.train import Training

paper = tuned = Experiment(
    recipe="tiny", dataset="folder:{data}", tasks=2, size=8, backbone="mlp", width=8, modules=2, memory=8, padding=0,
    training=Training(epochs=2, batch=8, save_seconds=0.0), options={{"N": 2, "switch_every": 1}},
)
"""


@functools.cache
def school() -> tuple[Path, dict[str, str]]:
    """The data and the recipe, and what an undisturbed run gives."""
    place = directory()
    pictures(place / "data", "a", "b", "c", "d", count=8)
    (place / "tiny.py").write_text(RECIPE.format(data=place / "data"))
    code, _, err = in_this_process("bench", place / "tiny.py", "--out", place / "reference")
    assert code == 0, err
    return place, digest(place / "reference")


class Runs(RuleBasedStateMachine):
    """One run directory."""

    engines = False

    @initialize()
    def begin(self) -> None:
        self.place, self.reference = school()
        self.runs, self.moves = Path(directory()), 0
        self.run = self.runs / "run"

    def teardown(self) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)

    def typed(self) -> tuple[object, ...]:
        if self.begun():
            return ("resume", self.run)
        return ("bench", self.place / "tiny.py", "--out", self.run)

    def begun(self) -> bool:
        return (self.run / "experiment.json").exists()

    def refused(self, what: str) -> None:
        """Nothing else goes on from here, and nothing is changed by trying."""
        say(*self.typed())
        code, out, err = in_this_process(*self.typed())
        assert (code, what in err.replace("\n", "")) == (64, True), (out, err)

    @rule()
    def go_on(self) -> None:
        say(*self.typed())
        code, out, err = in_this_process(*self.typed())
        assert code == 0, (out, err)
        assert digest(self.run) == self.reference

    @rule(n=st.integers(1, 150))
    def go_on_and_be_killed(self, n: int) -> None:
        say(*self.typed(), how=f"python tests/faults/typed.py --killed-at {n}")
        code, _, err = in_this_process(*self.typed(), killed_at=n)
        assert code in (0, -signal.SIGKILL), err

    @precondition(lambda self: self.run.exists())
    @rule()
    def move(self) -> None:
        self.moves += 1
        moved = self.runs / f"moved-{self.moves}"
        note(f"mv {self.run} {moved}")
        self.run = self.run.rename(moved)

    @precondition(lambda self: self.begun())
    @rule(change=st.sampled_from(["seed", "width", "memory"]))
    def change_a_setting(self, change: str) -> None:
        with self.edited(**{change: 9}):
            self.refused(f"{change}: ")

    @precondition(lambda self: self.begun())
    @rule(edit=st.booleans())
    def change_the_data(self, edit: bool) -> None:
        file = self.place / "data" / "b" / ("3.png" if edit else "new.png")
        before = file.read_bytes() if edit else b""
        put(file, "another")
        note(f"# {file} is {'another picture' if edit else 'added'}")
        try:
            self.refused(f"{'edited' if edit else 'added'}: b/{file.name}")
        finally:
            file.unlink()
            if edit:
                file.write_bytes(before)

    @precondition(lambda self: self.engines and self.begun())
    @rule(processes=st.integers(1, 2))
    def change_the_engine(self, processes: int) -> None:
        with self.edited(processes=processes):
            self.go_on()

    @contextlib.contextmanager
    def edited(self, **settings: object):
        file = self.run / "experiment.json"
        document = json.loads(file.read_text())
        before = dict(document["experiment"])
        note(f"# {file}: {settings}")
        file.write_text(json.dumps({**document, "experiment": {**before, **settings}}, sort_keys=True))
        yield
        file.write_text(json.dumps({**document, "experiment": before}, sort_keys=True))


class RunsWithEngines(Runs):
    engines = True


@pytest.mark.parametrize("n", [3, 6, 10, 14, 17, 19])
def test_a_run_killed_while_it_begins_has_lost_nothing(n: int) -> None:
    """Not even a checkpoint: a warning that says so would be an error here."""
    place, reference = school()
    runs = directory()
    run = runs / "run"
    for killed_at in (n, 0):
        begun = (run / "experiment.json").exists()
        typed = ("resume", run) if begun else ("bench", place / "tiny.py", "--out", run)
        code, _, err = in_this_process(*typed, killed_at=killed_at)
        assert code == (-signal.SIGKILL if killed_at else 0), err
    assert digest(run) == reference
    shutil.rmtree(runs)


def test_3_sequences_on_a_run() -> None:
    try_sequences(Runs, 3, steps=8, derandomize=True)


@pytest.mark.states
def test_50_sequences_on_a_run() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try_sequences(RunsWithEngines, wanted(50), steps=8)
