"""Whole runs: killed, stopped, starved of disk, damaged; each ends with the bytes of a run that nothing happened to."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness import RECIPE, Server, digest
from tiny import tuned

from randpath.bench import begin
from randpath.bench import run as bench
from randpath.commands import app as cli
from randpath.engines.serial import Serial
from randpath.errors import Changed, Stopped
from randpath.report.record import result_of
from randpath.storage import checkpoint
from randpath.storage.lock import lock

PHASES = ("candidate.step", "ckpt.write", "ckpt.rename", "ckpt.prune", "select", "memory", "log.append")


class Arena:
    """A server, the digest that a run of each seed must have, and how many events of each phase it has."""

    def __init__(self, place: Path) -> None:
        self.place, self.server = place, Server(place)
        self.references: dict[int, dict[str, str]] = {}
        self.counts: dict[str, int] = {}
        self.number = 0

    def fresh(self) -> Path:
        self.number += 1
        return self.place / f"run-{self.number}"

    def reference(self, seed: int = 0) -> dict[str, str]:
        if seed not in self.references:
            run, counts = self.fresh(), self.place / "counts"
            assert self.server.do(*self.server.begin(run, "--seed", str(seed)), counts=counts) == 0, (
                self.server.output()
            )
            self.counts = self.counts or json.loads(counts.read_text())
            self.references[seed] = digest(run)
        return self.references[seed]

    def check(self, run: Path, seed: int = 0) -> None:
        """Go on with a run to its end, which must be the known one; then it is removed."""
        self.server.finish(run, "--seed", str(seed))
        assert digest(run) == self.reference(seed)
        checkpoint.remove(run)

    def kill(self, fault: str, seed: int = 0) -> None:
        run = self.fresh()
        code = self.server.do(*self.server.begin(run, "--seed", str(seed)), fault=fault)
        assert code == -signal.SIGKILL, (fault, code, self.server.output())
        self.check(run, seed)

    def points(self, phase: str, count: int) -> Iterator[tuple[int, int]]:
        """(seed, n) for `count` events of a phase, spread evenly; further seeds when a run has too few."""
        self.reference()
        events = self.counts[phase]
        for number in range(count):
            seed, index = divmod(number, events)
            yield seed, (index + 1 if count >= events else 1 + number * events // count)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path_factory.mktemp("arena")
    place = place / f"randpath-arena-{os.getpid()}"
    place.mkdir()
    arena = Arena(place)
    yield arena
    arena.server.close()
    checkpoint.remove(place)


def within(seconds: float) -> float:
    """So many seconds on a machine with nothing else to do."""
    return seconds * max(1.0, 3 * os.getloadavg()[0] / (os.cpu_count() or 1))


def fresh_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "randpath", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


# ---- the gate for all else


def gate(arena: Arena, forked: int, fresh: int) -> None:
    for _ in range(forked):
        arena.check(arena.fresh())
    for _ in range(fresh):
        run = arena.fresh()
        done = fresh_process("bench", str(RECIPE), "--out", str(run))
        assert done.returncode == 0, done.stderr
        assert digest(run) == arena.reference()


def test_the_same_seed_gives_the_same_bytes(arena: Arena) -> None:
    gate(arena, forked=1, fresh=1)


@pytest.mark.faults
def test_5_of_5_runs_are_the_same(arena: Arena) -> None:
    gate(arena, forked=1, fresh=3)  # and the reference


# ---- kills


@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_each_phase(arena: Arena, phase: str) -> None:
    arena.reference()
    arena.kill(f"kill@{phase}:{1 + arena.counts[phase] // 2}")


@pytest.mark.faults
@pytest.mark.parametrize("phase", PHASES)
def test_killed_30_times_in_each_phase(arena: Arena, phase: str) -> None:
    for seed, n in arena.points(phase, 30):
        arena.kill(f"kill@{phase}:{n}", seed)


@pytest.mark.faults
def test_killed_at_every_fourth_file_operation(arena: Arena) -> None:
    arena.reference()
    for n in range(1, arena.counts["any"] + 1, 4):
        arena.kill(f"kill@any:{n}")


def kill_at_random(arena: Arena, kills: int, seed: int) -> tuple[int, int]:
    """Several kills in one run, at any time; (kills, runs that came to their end)."""
    rng = random.Random(seed)
    done = ended = 0
    run = arena.fresh()
    arena.reference()
    while done < kills:
        pid = arena.server.start(*arena.server.begin(run))
        time.sleep(rng.uniform(0.0, 0.9))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        code = arena.server.wait()
        assert code in (0, -signal.SIGKILL), arena.server.output()
        done += code != 0
        if code == 0:
            ended += 1
            arena.check(run)
            run = arena.fresh()
    arena.check(run)
    return done, ended + 1


def test_killed_at_5_random_times(arena: Arena) -> None:
    assert kill_at_random(arena, 5, seed=1)[0] == 5


@pytest.mark.faults
def test_killed_at_120_random_times(arena: Arena) -> None:
    assert kill_at_random(arena, 120, seed=2)[0] == 120


# ---- disks


def starve(arena: Arena, kind: str, n: int) -> None:
    run = arena.fresh()
    code = arena.server.do(*arena.server.begin(run), fault=f"{kind}@any:{n}")
    if kind.endswith("+"):
        assert code == 74, arena.server.output()
        assert re.search(r"[\d,]+ bytes needed, [\d,]+ free", arena.server.output().replace("\n", " "))
        assert "Traceback" not in arena.server.output()
    else:  # one failure is tried again
        assert code == 0, arena.server.output()
    found = checkpoint.latest(run / "checkpoints")  # a warning would be an error
    assert found is not None or n < arena.counts["any"] // 2
    arena.check(run)


@pytest.mark.parametrize("kind", ["enospc", "enospc+"])
def test_a_full_disk_in_the_middle(arena: Arena, kind: str) -> None:
    arena.reference()
    starve(arena, kind, arena.counts["any"] // 2)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["enospc", "enospc+", "eio", "eio+", "eacces", "eacces+"])
def test_every_20th_operation_fails(arena: Arena, kind: str) -> None:
    arena.reference()
    for n in range(1, arena.counts["any"] + 1, 20):
        starve(arena, kind, n)


# ---- signals


def interrupt(arena: Arena, number: signal.Signals, after: float, twice: bool = False) -> bool:
    """Whether the signal came before the end of the run."""
    run = arena.fresh()
    pid = arena.server.start(*arena.server.begin(run))
    while not (run / "experiment.json").exists():
        time.sleep(0.005)
    time.sleep(after)
    begun = time.monotonic()
    try:
        os.kill(pid, number)
        if twice:
            os.kill(pid, number)
    except ProcessLookupError:
        pass
    code = arena.server.wait()
    assert time.monotonic() - begun < within(1 if twice else 10)
    if code != 0:
        assert code == 128 + number, arena.server.output()
        if not twice:
            assert f"randpath resume {run}" in arena.server.output().replace("\n", "")
        assert "Traceback" not in arena.server.output()
    arena.check(run)
    return code != 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_the_next_step(arena: Arena, number: signal.Signals) -> None:
    arena.reference()
    interrupt(arena, number, 0.2)
    interrupt(arena, number, 0.2, twice=True)


@pytest.mark.faults
def test_signals_at_60_random_times(arena: Arena) -> None:
    arena.reference()
    rng, stopped, tries = random.Random(3), 0, 0
    while stopped < 60:  # a signal that comes after the end of the run does not count
        tries += 1
        assert tries <= 240
        number = (signal.SIGINT, signal.SIGTERM)[tries % 2]
        stopped += interrupt(arena, number, rng.uniform(0, 0.5), twice=tries % 4 > 1)


def test_stopped_at_each_step_of_an_epoch(arena: Arena) -> None:
    """The last step of an epoch is the one with a special state."""
    small = replace(tuned, tasks=2, options={"N": 1}, training=replace(tuned.training, epochs=1, batch=200))
    bench.run(small, arena.fresh())
    reference = digest(arena.place / f"run-{arena.number}")
    directory, stops = arena.fresh(), 0
    while True:
        calls = 0

        def tick(done: float) -> None:
            nonlocal calls
            calls += done > 0
            if calls:  # one step, and no more
                raise Stopped

        try:
            bench.run(small, directory, engine=Serial(tick))
            break
        except Stopped:
            stops += 1
            assert stops < 100
    assert stops > 5
    assert digest(directory) == reference


# ---- damage


def damage(run: Path, rng: random.Random) -> str:
    """Flip a bit, cut or remove a file of the newest checkpoint; its name."""
    name = checkpoint.names(run / "checkpoints")[-1]
    file = rng.choice(sorted((run / "checkpoints" / name).iterdir()))
    data = bytearray(file.read_bytes())
    kind = rng.randrange(3)
    if kind == 0:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    elif kind == 1:
        file.write_bytes(data[: rng.randrange(len(data))])
    else:
        file.unlink()
    return name


def partial_run(arena: Arena, rng: random.Random) -> Path:
    """A run killed somewhere after its first task."""
    arena.reference()
    run = arena.fresh()
    arena.server.do(
        *arena.server.begin(run), fault=f"kill@any:{rng.randrange(arena.counts['any'] // 2, arena.counts['any'])}"
    )
    return run


def fall_back(arena: Arena, seed: int) -> None:
    rng = random.Random(seed)
    run = partial_run(arena, rng)
    name = damage(run, rng)
    code = arena.server.do("resume", str(run))
    assert code == 0, arena.server.output()
    assert f"{name}.bad, going back to the save before it" in arena.server.output().replace("\n", " ")
    assert (run / "checkpoints" / f"{name}.bad").is_dir()
    arena.check(run)


def test_a_damaged_checkpoint_is_set_aside(arena: Arena) -> None:
    for seed in range(3):
        fall_back(arena, seed)


def test_when_all_are_damaged_they_are_listed(arena: Arena) -> None:
    run = partial_run(arena, random.Random(1))
    names = checkpoint.names(run / "checkpoints")
    for name in names:
        (run / "checkpoints" / name / "metrics.json").write_bytes(b"")
    for _ in range(2):
        assert arena.server.do("resume", str(run)) == 65
        assert ", ".join(f"{name}.bad" for name in names) in arena.server.output().replace("\n", " ")


@pytest.mark.faults
def test_30_damaged_checkpoints(arena: Arena) -> None:
    for seed in range(100, 130):
        fall_back(arena, seed)


# ---- one fault on top of another


def kill_then_full_disk(arena: Arena, rng: random.Random) -> None:
    run = partial_run(arena, rng)
    assert arena.server.do("resume", str(run), fault=f"enospc+@any:{rng.randrange(1, 20)}") in (0, 74)
    arena.check(run)


def kill_then_kill_again(arena: Arena, rng: random.Random) -> None:
    run = partial_run(arena, rng)
    for _ in range(3):
        arena.server.do("resume", str(run), fault=f"kill@any:{rng.randrange(1, 30)}")
    arena.check(run)


def killed_while_falling_back(arena: Arena, rng: random.Random) -> None:
    run = partial_run(arena, rng)
    while len(checkpoint.names(run / "checkpoints")) < 2:
        arena.server.do("resume", str(run), fault=f"kill@any:{rng.randrange(100, 150)}")
    damage(run, rng)
    arena.server.do("resume", str(run), fault=f"kill@any:{rng.randrange(1, 4)}")
    arena.check(run)


def killed_while_pruning_then_locked(arena: Arena, rng: random.Random) -> None:
    run = arena.fresh()
    arena.server.do(*arena.server.begin(run), fault=f"kill@ckpt.prune:{rng.randrange(1, 16)}")
    with lock(run):  # the dead hold no lock, the living do
        assert arena.server.do("resume", str(run)) == 73
    arena.check(run)


def stopped_then_damaged_work(arena: Arena, rng: random.Random) -> None:
    """The state of an unfinished fit is damaged: it goes back to the state before, or begins again."""
    run = partial_run(arena, rng)
    states = sorted(path.parent for path in (run / "work").rglob("MANIFEST.json"))
    for state in states if rng.random() < 0.5 else states[-1:]:
        file = rng.choice(sorted(state.iterdir()))
        file.write_bytes(file.read_bytes()[:-1])
    arena.check(run)


COMPOUND: list[Callable[[Arena, random.Random], None]] = [
    kill_then_full_disk,
    kill_then_kill_again,
    killed_while_falling_back,
    killed_while_pruning_then_locked,
    stopped_then_damaged_work,
]


@pytest.mark.parametrize("fault", COMPOUND, ids=lambda fault: fault.__name__)
def test_two_faults(arena: Arena, fault: Callable[[Arena, random.Random], None]) -> None:
    fault(arena, random.Random(11))


@pytest.mark.faults
@pytest.mark.parametrize("fault", COMPOUND, ids=lambda fault: fault.__name__)
def test_12_times_two_faults(arena: Arena, fault: Callable[[Arena, random.Random], None]) -> None:
    for seed in range(12):
        fault(arena, random.Random(1000 + seed))


# ---- refusals


def edited(run: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads((run / "experiment.json").read_text())
    change(document)
    (run / "experiment.json").write_bytes(checkpoint.encode_document(document))


def type_here(*arguments: str) -> int:
    """The command line in this process, where a test can change what it sees."""
    with pytest.raises(SystemExit) as leaving:
        cli.main(list(arguments))
    return int(str(leaving.value.code))


def test_another_environment_is_refused_unless_inexact(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = partial_run(arena, random.Random(1))
    now = begin.environment()
    monkeypatch.setattr(begin, "environment", lambda: {**now, "torch": "9.9", "numpy": "9.8"})
    assert type_here("resume", str(run)) == 64
    said = capfd.readouterr().err
    assert f"numpy: '{now['numpy']}' then, '9.8' now" in said
    assert f"torch: '{now['torch']}' then, '9.9' now" in said
    assert f"randpath resume {run} --inexact" in said.replace("\n", "")
    assert type_here("resume", str(run), "--inexact") == 0
    assert len(checkpoint.read_document(run / "experiment.json")["inexact"]) == 2
    assert len(result_of(run, "")["inexact"]) == 2  # the result is stamped


def test_other_data_are_refused(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = partial_run(arena, random.Random(1))
    load = bench.named.load
    monkeypatch.setattr(bench.named, "load", lambda name, **_: replace(load(name), fingerprint="0" * 64))
    assert type_here("resume", str(run)) == 64
    assert "the data of digits: fingerprint" in capfd.readouterr().err
    monkeypatch.undo()
    arena.check(run)


def test_changed_files_are_named(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    load, run = bench.named.load, arena.fresh()

    def begin(files: dict[str, str]) -> None:
        source = replace(load("digits"), fingerprint=str(files), files=files)
        monkeypatch.setattr(bench.named, "load", lambda name, **_: source)
        next(bench.steps(tuned, run))

    begin({"a.png": "1", "b.png": "2", "c.png": "3"})
    with pytest.raises(Changed, match=r"edited: a\.png\n.*removed: c\.png\n.*added: d\.png"):
        begin({"a.png": "9", "b.png": "2", "d.png": "4"})


@pytest.mark.parametrize(
    "key",
    ["seed", "attention", "memory", "training.lr", "training.epochs", "options.N", "width", "class_order", "threads"],
)
def test_changed_settings_are_refused_with_old_and_new(arena: Arena, key: str) -> None:
    run = partial_run(arena, random.Random(1))

    def change(document: dict[str, object]) -> None:
        *outer, last = key.split(".")
        inner = document["experiment"]
        for name in outer:
            inner = inner[name]  # type: ignore[index]
        inner[last] = {"attention": "none", "class_order": 1993, "memory": 77}.get(last, 7)  # type: ignore[index]

    edited(run, change)
    assert arena.server.do("resume", str(run)) == 64, arena.server.output()
    assert re.search(rf"{key}: .* then, .* now", arena.server.output().replace("\n", " "))


def test_bench_into_a_run_names_resume(arena: Arena) -> None:
    run = partial_run(arena, random.Random(1))
    assert arena.server.do("bench", str(RECIPE), "--out", str(run)) == 64
    assert f"randpath resume {run}" in arena.server.output().replace("\n", "")
    assert arena.server.do("resume", str(run / "nowhere")) == 64
    arena.check(run)


def test_a_second_run_in_one_directory_is_refused_within_a_second(arena: Arena) -> None:
    run = partial_run(arena, random.Random(1))
    with lock(run):
        begun = time.monotonic()
        assert arena.server.do("resume", str(run)) == 73
        assert time.monotonic() - begun < within(1)
        assert f"process {os.getpid()} on " in arena.server.output().replace("\n", " ")
        code = (
            "import sys; from randpath.commands import app\ntry: app.main()\nfinally: assert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code, "resume", str(run)], capture_output=True, check=False)
        assert done.returncode == 73, done.stderr
    arena.check(run)


def test_divergence_is_named_and_ends_with_70(arena: Arena) -> None:
    run = arena.fresh()
    assert arena.server.do("bench", str(RECIPE), "--out", str(run), "--set", "training.lr=1e30") == 70
    output = arena.server.output().replace("\n", " ")
    assert re.search(r"not finite at step \d+ \(learning rate 1e\+30, gradient norm .*last losses", output), output
    assert checkpoint.names(run / "checkpoints") == ["0000"]
