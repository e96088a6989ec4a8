"""A machine that types commands in any order, and a simple model of what must then be there.

`make test` tries 10 sequences, `make test-states` 500 in this process and 25 with real processes and kills. A failing
sequence is shrunk, and printed as the commands to type.
"""

import atexit
import contextlib
import functools
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Server
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from states import answer, directory, in_this_process, say, try_sequences, wanted
from tests.commands import interrupt
from tests.pictures import pixels
from tests.school import pictures, tiny

from randpath.commands.reading import open_model
from randpath.data.dataset import Arrays
from randpath.errors import Damaged
from randpath.model import versions
from randpath.storage.lock import lock

FOLDERS = {"ab": "ab", "c": "c", "de": "de", "ca": "ca"}  # what is in each: classes of four pictures
NAMES = ("a", "b", "x", "caf\u00e9", "cafe\u0301", "two words")
POINTERS = (None, b"", b'{"version": 99}', b"\0")
KEEP = 3
ASKED = Arrays(np.stack([pixels(f"asked {i}") for i in range(3)]), np.zeros(3, np.int64))

Lessons = tuple[tuple[str, tuple[int, ...]], ...]  # what was learned so far: the folders, and their classes' numbers
ANSWERS: dict[Lessons, bytes] = {}  # the same lessons give the same answers, whatever happened on the way


@dataclass(frozen=True)
class Version:
    state: int
    classes: tuple[str, ...]
    lessons: Lessons
    past: tuple[int, ...] = ()
    future: tuple[int, ...] = ()


class Models(RuleBasedStateMachine):
    """One model directory. `shelf` is what must be in it, by version; the newest that is not damaged answers."""

    @initialize()
    def begin(self) -> None:
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(tiny())
        self.place = directory()
        self.stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        for name, classes in FOLDERS.items():
            pictures(self.place / name, *classes)
        self.model, self.copies = self.place / "model", 0
        self.shelf: dict[int, Version] = {}
        self.damaged: set[int] = set()
        self.pointer_is_odd = False

    def teardown(self) -> None:
        self.stack.close()

    # ---- typing

    def type(self, *typed: object, killed_at: int = 0) -> tuple[int, dict[str, Any]]:
        """Type a command; killed: code -9. What it answers otherwise."""
        say(*typed, killed_at=killed_at)
        code, out = self.process(*typed, "--json", killed_at=killed_at)
        return code, answer(out)

    def process(self, *typed: object, killed_at: int) -> tuple[int, str]:
        return in_this_process(*typed, killed_at=killed_at)[:2]

    def stopped(self, *typed: object) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, 3, signal.SIGINT)
            return in_this_process(*typed)[:2]

    # ---- the simple model

    def now(self) -> int:
        return max((n for n in self.shelf if n not in self.damaged), default=0)

    def holder(self, state: int) -> int | None:
        here = self.now()
        return max((n for n, version in self.shelf.items() if version.state == state and n <= here), default=None)

    def commit(self, version: Version) -> None:
        """A new version on the shelf, made from the one that answers; what nothing leads to is gone."""
        base = self.now()
        self.shelf = {n: known for n, known in self.shelf.items() if n <= base}
        self.shelf[base + 1] = version
        self.damaged = {n for n in self.damaged if n < base}
        self.settle()

    def settle(self) -> None:
        number = self.now()
        version = self.shelf[number]
        wanted = {self.holder(state) for state in (version.state, *version.past, *version.future)}
        self.shelf = {n: known for n, known in self.shelf.items() if n in wanted}
        self.damaged &= set(self.shelf)
        self.pointer_is_odd = False

    def taught(self, folder: str) -> Version:
        base = self.now()
        old = self.shelf.get(base)
        known = old.classes if old else ()
        classes = tuple(dict.fromkeys([*known, *sorted(FOLDERS[folder])]))
        lesson = (folder, tuple(classes.index(c) for c in sorted(FOLDERS[folder])))
        return self.after(base, classes, (*(old.lessons if old else ()), lesson), KEEP)

    def after(self, base: int, classes: tuple[str, ...], lessons: Lessons, keep: int) -> Version:
        here = {n: known for n, known in self.shelf.items() if n <= base}
        if not base:
            return Version(1, classes, lessons)
        old, held = here[base], {known.state for known in here.values()}
        past = (*(state for state in old.past if state in held), old.state)
        return Version(base + 1, classes, lessons, past[max(0, len(past) - keep + 1) :])

    # ---- what may be typed

    def untold(self) -> str:
        """The folder of a learn that was killed after its commit, before it could say so; typed again, it says so."""
        made = versions.line(self.model, self.now()).work if self.now() else ""
        return self.shelf[self.now()].lessons[-1][0] if made and (self.model / "work" / made).is_dir() else ""

    @rule(folder=st.sampled_from(sorted(FOLDERS)))
    def learn(self, folder: str) -> None:
        untold = self.untold()
        self.learned(folder, untold, *self.type("learn", self.model, self.place / folder, "--epochs", 1))

    def learned(self, folder: str, untold: str, code: int, told: dict[str, Any]) -> None:
        assert code == 0, told
        if folder == untold:
            self.settle()
        else:
            self.commit(self.taught(folder))
        assert told["version"] == self.now()

    @rule(folder=st.sampled_from(sorted(FOLDERS)), n=st.integers(1, 60))
    def learn_killed(self, folder: str, n: int) -> None:
        base, new, untold = self.now(), self.taught(folder), self.untold()
        code, told = self.type("learn", self.model, self.place / folder, "--epochs", 1, killed_at=n)
        if code == 0:
            self.learned(folder, untold, code, told)
        else:
            assert code == -signal.SIGKILL, told
            self.old_or_new(base, None if folder == untold else new)

    @rule(folder=st.sampled_from(sorted(FOLDERS)))
    def learn_stopped(self, folder: str) -> None:
        base, new, untold = self.now(), self.taught(folder), self.untold()
        note("# Ctrl-C while it learns:")
        typed = ("learn", self.model, self.place / folder, "--epochs", 1)
        say(*typed)
        code, out = self.stopped(*typed, "--json")
        if code == 0:
            self.learned(folder, untold, code, answer(out))
        else:
            assert (code, answer(out).get("error")) in ((130, "interrupted"), (130, None), (-signal.SIGINT, None)), out
            self.old_or_new(base, None if folder == untold else new)

    def old_or_new(self, base: int, new: Version | None) -> None:
        """After a sudden end: the new version is there whole or not at all."""
        there = versions.kept(self.model)
        if new is not None and base + 1 in there and is_good(self.model, base + 1):
            self.shelf = {n: known for n, known in self.shelf.items() if n <= base} | {base + 1: new}
            self.damaged.discard(base + 1)
        # What was to be removed may be there still, and what was set aside is gone.
        self.shelf = {n: known for n, known in self.shelf.items() if n in there}
        self.damaged &= set(there)
        self.pointer_is_odd = bool(there) and bool(versions._odd_pointer(self.model, there[-1]))

    @precondition(lambda self: self.now())
    @rule(c=st.integers(0, 9), new=st.sampled_from(NAMES))
    def rename(self, c: int, new: str) -> None:
        base = self.now()
        old = self.shelf[base]
        name, composed = old.classes[c % len(old.classes)], new.replace("e\u0301", "\u00e9")
        code, told = self.type("rename", self.model, name, new)
        if composed in old.classes:
            assert code == 64, told
            return
        assert code == 0, told
        classes = tuple(composed if known == name else known for known in old.classes)
        held = {known.state for n, known in self.shelf.items() if n <= base}
        keep = max(3, len([state for state in old.past if state in held]) + 2)
        self.commit(self.after(base, classes, old.lessons, keep))
        assert told["version"] == self.now()

    @precondition(lambda self: self.now())
    @rule()
    def rollback(self) -> None:
        base, newest = self.now(), max(self.shelf)
        code, told = self.type("rollback", self.model)
        if base != newest:
            self.shelf = {n: known for n, known in self.shelf.items() if n <= base}
            self.settle()
        else:
            now, good = self.shelf[base], set(self.shelf) - self.damaged
            places = [i for i, state in enumerate(now.past) if self.holder(state) in good]
            if not places:
                assert code == 65, told
                return
            i = places[-1]
            back = self.shelf[self.holder(now.past[i]) or 0]
            self.commit(replace(back, past=now.past[:i], future=(now.state, *now.future)))
        assert (code, told["version"], told["undone"]) == (0, self.now(), newest)

    @precondition(lambda self: self.now())
    @rule()
    def redo(self) -> None:
        base = self.now()
        now = self.shelf[base]
        code, told = self.type("redo", self.model)
        holder = self.holder(now.future[0]) if now.future else None
        if holder is None or holder in self.damaged:
            assert code == 65, told
            return
        self.commit(replace(self.shelf[holder], past=(*now.past, now.state), future=now.future[1:]))
        assert (code, told["version"]) == (0, self.now())

    @precondition(lambda self: len(set(self.shelf) - self.damaged) > 1)
    @rule(
        which=st.integers(0, 9), file=st.sampled_from(["weights.safetensors", "model.json"]), byte=st.integers(0, 999)
    )
    def damage(self, which: int, file: str, byte: int) -> None:
        good = sorted(set(self.shelf) - self.damaged, reverse=True)
        path = versions.place(self.model, good[which % len(good)]) / file
        data = bytearray(path.read_bytes())
        data[byte % len(data)] ^= 4
        note(f"# one bit of {path} flips")
        path.write_bytes(data)
        self.damaged.add(good[which % len(good)])

    @precondition(lambda self: self.now())
    @rule(data=st.sampled_from(POINTERS))
    def spoil_the_pointer(self, data: bytes | None) -> None:
        note(f"# {self.model}/current.json: {'removed' if data is None else data}")
        (self.model / versions.POINTER).unlink(missing_ok=True)
        if data is not None:
            (self.model / versions.POINTER).write_bytes(data)
        self.pointer_is_odd = True

    @precondition(lambda self: self.now())
    @rule()
    def copy(self) -> None:
        self.copies += 1
        copied = self.place / f"copy-{self.copies}"
        note(f"cp -r {self.model} {copied}")
        shutil.copytree(self.model, copied)
        self.model = copied

    @precondition(lambda self: self.now())
    @rule(command=st.sampled_from(["learn", "rename", "rollback", "redo"]))
    def two_at_once(self, command: str) -> None:
        more: dict[str, tuple[object, ...]] = {"learn": (self.place / "ab",), "rename": ("a", "z")}
        note("# while another command works in the directory:")
        with lock(self.model):
            code, told = self.type(command, self.model, *more.get(command, ()))
        assert code == 73, told

    @precondition(lambda self: self.now())
    @rule()
    def ask(self) -> None:
        code, told = self.type("info", self.model)
        assert (code, told["version"], tuple(told["classes"])) == (0, self.now(), self.shelf[self.now()].classes)
        picture = self.place / "ab" / "a" / "0.png"
        code, told = self.type("predict", self.model, picture)
        assert (code, told["predictions"][0]["label"] in self.shelf[self.now()].classes) == (0, True)

    # ---- what must hold after each

    @invariant()
    def the_newest_good_version_answers(self) -> None:
        if not self.now():
            assert not versions.is_model(self.model)
            return
        version, warned = self.shelf[self.now()], []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("randpath.commands.reading.warn", warned.append)
            number, model = open_model(self.model)
        assert (number, tuple(model.names)) == (self.now(), version.classes)
        assert bool(warned) == (self.pointer_is_odd or max(self.shelf) in self.damaged), warned
        answers = model.probabilities(ASKED).tobytes()
        assert ANSWERS.setdefault(version.lessons, answers) == answers

    @invariant()
    def kept_versions_share_no_file(self) -> None:
        files = [path.stat().st_ino for path in (self.model / "versions").glob("0*/*")]
        assert len(set(files)) == len(files)


def is_good(model: Path, number: int) -> bool:
    try:
        versions.load(model, number)
    except Damaged:
        return False
    return True


class Processes(Models):
    """The same, each command a process of its own, ended by real signals."""

    def process(self, *typed: object, killed_at: int) -> tuple[int, str]:
        server = school()
        return server.do(*map(str, typed), fault=f"kill@any:{killed_at}" if killed_at else ""), server.output()

    def stopped(self, *typed: object) -> tuple[int, str]:
        server = school()
        pid = server.start(*map(str, typed))
        time.sleep(random.Random(len(self.shelf)).uniform(0.0, 1.0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        return server.wait(), server.output()

    @precondition(lambda self: self.now())
    @rule()
    def export(self) -> None:
        code, told = self.type("export", self.model, self.place / "model.onnx")
        assert (code, told["classes"]) == (0, len(self.shelf[self.now()].classes)), told


@functools.cache
def school() -> Server:
    """One server for all sequences: it has imported torch."""
    server = Server(directory(), tiny=True)
    atexit.register(shutil.rmtree, server.place, ignore_errors=True)
    atexit.register(server.close)
    return server


def test_10_sequences_on_a_model() -> None:
    try_sequences(Models, 10, derandomize=True)


@pytest.mark.states
def test_500_sequences_on_a_model() -> None:
    try_sequences(Models, wanted(500))


@pytest.mark.states
def test_25_sequences_of_real_processes_on_a_model() -> None:
    try_sequences(Processes, wanted(25))
