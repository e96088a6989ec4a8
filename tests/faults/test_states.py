"""A machine that types commands in any order, and a simple model (shelf.py) of what must then be there.

`make test` tries 10 sequences, `make test-states` 500 in this process and 25 with real processes and kills. A failing
sequence is shrunk, and printed as the commands to type.
"""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Server
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shelf import Lessons, Shelf, Version
from states import answer, directory, in_this_process, say, try_sequences, wanted
from tests.commands import interrupt
from tests.pictures import pixels
from tests.school import tiny
from typed import FOLDERS, flip, make_pictures

from randpath.commands.reading import open_model
from randpath.data.dataset import Arrays
from randpath.errors import Damaged
from randpath.model import versions
from randpath.storage.lock import lock

NAMES = ("a", "b", "x", "caf\u00e9", "cafe\u0301", "two words")
WHO = st.one_of(st.integers(0, 9), st.sampled_from(NAMES))  # a class that is there, or whatever bears the name
KILLS = st.one_of(st.just(0), st.integers(1, 40))  # at which file operation; 0: at none
AGAIN = "python tests/faults/typed.py"  # types it as this machine does
POINTERS = (None, "", '{"version": 99}', r"\0")  # as printf takes them
ASKED = Arrays(np.stack([pixels(f"asked {i}") for i in range(3)]), np.zeros(3, np.int64))
ANSWERS: dict[Lessons, bytes] = {}  # the same lessons and edits give the same answers, whatever happened on the way


def has_a_model(machine: "Models") -> bool:
    return bool(machine.shelf.now())


def where(holds: Callable[["Models"], bool], **drawn: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """A rule that is typed where it has a meaning.

    What Ctrl-C leaves of a real process no seed repeats, so there such a rule may be drawn anywhere and does nothing
    where it has none: hypothesis wants the same draws again.
    """

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def guarded(self: "Models", **values: Any) -> None:
            if holds(self):
                function(self, **values)

        return precondition(lambda self: self.by_the_clock or holds(self))(rule(**drawn)(guarded))

    return decorate


class Models(RuleBasedStateMachine):
    """One model directory. `shelf` says what must be in it."""

    by_the_clock = False  # whether real processes are stopped by the clock

    @initialize()
    def begin(self) -> None:
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(tiny())
        self.place = directory()
        self.stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        make_pictures(self.place)
        note(f"{AGAIN} --pictures {self.place}")
        self.model, self.copies = self.place / "model", 0
        self.shelf = Shelf()
        self.pointer_is_odd = False

    def teardown(self) -> None:
        self.stack.close()

    # ---- typing

    def type(self, *typed: object, killed_at: int = 0) -> tuple[int, dict[str, Any]]:
        """Type a command; killed: code -9. What it answers otherwise."""
        say(
            *typed,
            how=f"{AGAIN} --killed-at {killed_at}" if killed_at else AGAIN if typed[0] == "learn" else "randpath",
        )
        code, out = self.process(*typed, "--json", killed_at=killed_at)
        return code, answer(out)

    def process(self, *typed: object, killed_at: int) -> tuple[int, str]:
        return in_this_process(*typed, killed_at=killed_at)[:2]

    def stopped(self, step: int, *typed: object) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, step, signal.SIGINT)
            return in_this_process(*typed)[:2]

    def edit(self, new: dict[int, Version] | None, refused: int, killed_at: int, *typed: object) -> dict[str, Any]:
        """Type a command that commits these versions, or none because it is refused; what it answers, if it does."""
        code, told = self.type(typed[0], self.model, *typed[1:], killed_at=killed_at)
        if code == -signal.SIGKILL:
            self.old_or_new(new or {})
            return {}
        assert code == (refused if new is None else 0), (code, told)
        if new is not None:
            self.shelf.commit(new)
            self.pointer_is_odd = False
            assert told["version"] == self.shelf.now()
        return told

    def old_or_new(self, new: dict[int, Version]) -> None:
        """After a sudden end: a new version is there whole or not at all."""
        base, there = self.shelf.now(), versions.kept(self.model)
        made = {n: version for n, version in new.items() if n in there and is_good(self.model, n)}
        if made:
            self.shelf.versions = {n: known for n, known in self.shelf.versions.items() if n <= base} | made
            self.shelf.damaged -= set(made)
        # What was to be removed may be there still, and what was set aside is gone.
        self.shelf.only(set(there))
        self.pointer_is_odd = bool(there) and bool(versions._odd_pointer(self.model, there[-1]))

    def called(self, who: int | str) -> str:
        names = self.shelf.newest().names
        return names[who % len(names)] if isinstance(who, int) else who

    def next_one(self, version: Version | None) -> dict[int, Version] | None:
        return None if version is None else {self.shelf.now() + 1: version}

    # ---- what may be typed

    def untold(self) -> str:
        """The folder of a learn that was killed after its commit, before it could say so; typed again, it says so."""
        made = versions.line(self.model, self.shelf.now()).work if self.shelf.now() else ""
        return self.shelf.newest().lessons[-1][0] if made and (self.model / "work" / made).is_dir() else ""

    @rule(folder=st.sampled_from(sorted(FOLDERS)), n=st.one_of(st.just(0), st.integers(1, 60)))
    def learn(self, folder: str, n: int) -> None:
        new, untold = {self.shelf.now() + 1: self.shelf.taught(folder)}, self.untold()
        code, told = self.type("learn", self.model, self.place / folder, "--epochs", 2, killed_at=n)
        self.learned(folder, new, untold, code, told)

    def learned(self, folder: str, new: dict[int, Version], untold: str, code: int, told: dict[str, Any]) -> None:
        if code != 0:
            # In a process of its own, Ctrl-C may come before there is anybody to hear it.
            stopped = ((-signal.SIGKILL, None), (130, "interrupted"), (130, None), (-signal.SIGINT, None))
            assert (code, told.get("error")) in stopped, (code, told)
            self.old_or_new({} if folder == untold else new)
            return
        if folder == untold:
            self.shelf.settle()
        else:
            self.shelf.commit(new)
        self.pointer_is_odd = False
        assert told["version"] == self.shelf.now()

    @rule(folder=st.sampled_from(sorted(FOLDERS)), step=st.integers(1, 6))
    def learn_stopped(self, folder: str, step: int) -> None:
        new, untold = {self.shelf.now() + 1: self.shelf.taught(folder)}, self.untold()
        typed = ("learn", self.model, self.place / folder, "--epochs", 2)
        say(*typed, how=f"{AGAIN} --stopped-at {step}")
        code, out = self.stopped(step, *typed, "--json")
        self.learned(folder, new, untold, code, answer(out))

    @where(has_a_model, who=WHO, new=st.sampled_from(NAMES), n=KILLS)
    def rename(self, who: int | str, new: str, n: int) -> None:
        old = self.called(who)
        self.edit(self.next_one(self.shelf.renamed(nfc(old), nfc(new))), 64, n, "rename", old, new)

    @where(has_a_model, who=WHO, n=KILLS)
    def forget(self, who: int | str, n: int) -> None:
        name = self.called(who)
        self.edit(self.next_one(self.shelf.forgotten(nfc(name))), 64, n, "forget", name)

    @where(has_a_model, who=WHO, n=KILLS)
    def forget_for_good(self, who: int | str, n: int) -> None:
        name = self.called(who)
        new = self.shelf.without(nfc(name))
        told = self.edit(new, 64, n, "forget", name, "--for-good")
        if new is None and told and self.shelf.now() == max(self.shelf.versions):
            self.shelf.settle()  # it has made up for what an interrupted command left
            self.pointer_is_odd = False
        if new is not None and told:
            self.no_picture_is_left()

    def no_picture_is_left(self) -> None:
        """No file holds a picture of a class that no version has, and no version one of a class that it lacks."""
        everything = set().union(*(version.pictures for version in self.shelf.versions.values()))
        for file in [path for path in self.model.rglob("*") if path.is_file()]:
            own = self.shelf.versions.get(int(file.parent.name)) if file.parent.name.isdecimal() else None
            gone = set("abcde") - (own.pictures if own else everything)
            data = file.read_bytes()
            for picture in [path for c in gone for path in self.place.glob(f"*[a-e]/{c}/*.png")]:
                assert picture.read_bytes() not in data, f"{file} holds {picture}"

    @where(has_a_model, one=WHO, other=WHO, n=KILLS)
    def merge(self, one: int | str, other: int | str, n: int) -> None:
        kept, part = self.called(one), self.called(other)
        self.edit(self.next_one(self.shelf.merged(nfc(kept), nfc(part))), 64, n, "merge", kept, part)

    @where(has_a_model, n=KILLS)
    def rollback(self, n: int) -> None:
        base, newest = self.shelf.now(), max(self.shelf.versions)
        new = {} if base != newest else self.next_one(self.shelf.rolled_back())
        told = self.edit(new, 65, n, "rollback")
        assert not told or new is None or told["undone"] == newest

    @where(has_a_model, n=KILLS)
    def redo(self, n: int) -> None:
        self.edit(self.next_one(self.shelf.redone()), 65, n, "redo")

    @where(
        lambda self: len(self.shelf.good()) > 1,
        which=st.integers(0, 9),
        file=st.sampled_from(["weights.safetensors", "model.json"]),
        byte=st.integers(0, 999),
    )
    def damage(self, which: int, file: str, byte: int) -> None:
        good = sorted(self.shelf.good(), reverse=True)
        path = versions.place(self.model, good[which % len(good)]) / file
        say(path, byte, how=f"{AGAIN} --flip")
        flip(path, byte)
        self.shelf.damaged.add(good[which % len(good)])

    @where(has_a_model, text=st.sampled_from(POINTERS))
    def spoil_the_pointer(self, text: str | None) -> None:
        pointer = self.model / versions.POINTER
        note(f"rm -f {pointer}" if text is None else f"printf '{text}' > {pointer}")
        pointer.unlink(missing_ok=True)
        if text is not None:
            pointer.write_text(text.replace(r"\0", "\0"))
        self.pointer_is_odd = True

    @where(has_a_model)
    def copy(self) -> None:
        self.copies += 1
        copied = self.place / f"copy-{self.copies}"
        note(f"cp -r {self.model} {copied}")
        shutil.copytree(self.model, copied)
        self.model = copied

    @where(
        has_a_model,
        command=st.sampled_from(["learn", "rename", "rollback", "redo", "forget", "forget --for-good", "merge"]),
    )
    def two_at_once(self, command: str) -> None:
        more: dict[str, tuple[object, ...]] = {"learn": (self.place / "ab",), "rename": ("a", "z")}
        more |= {"forget": ("a",), "forget --for-good": ("a",), "merge": ("a", "b")}
        name, *options = command.split()
        note("# while another command works in the directory:")
        with lock(self.model):
            code, told = self.type(name, self.model, *more.get(command, ()), *options)
        assert code == 73, told

    @where(has_a_model, folder=st.sampled_from(sorted(FOLDERS)))
    def ask(self, folder: str) -> None:
        names = self.shelf.newest().names
        code, told = self.type("info", self.model)
        assert (code, told["version"], tuple(told["classes"])) == (0, self.shelf.now(), names)
        code, told = self.type("predict", self.model, self.place / "ab" / "a" / "0.png")
        assert (code, told["predictions"][0]["label"] in names) == (0, True)
        code, told = self.type("evaluate", self.model, self.place / folder, "--known-only")
        known = {*folder} & {*names}
        assert (code, set(told.get("by_class", ()))) == (0 if known else 65, known), told

    # ---- what must hold after each

    @invariant()
    def the_newest_good_version_answers(self) -> None:
        if not has_a_model(self):
            assert not versions.is_model(self.model)
            return
        version, warned = self.shelf.newest(), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("randpath.commands.reading.warn", warned.append)
            number, model = open_model(self.model)
        assert (number, tuple(model.names)) == (self.shelf.now(), version.names)
        assert bool(warned) == (self.pointer_is_odd or max(self.shelf.versions) in self.shelf.damaged), warned
        answers = model.probabilities(ASKED).tobytes()
        assert ANSWERS.setdefault(version.lessons, answers) == answers

    @invariant()
    def no_two_states_share_a_file(self) -> None:
        """A version that repeats another, which a kill has spared, may."""
        states: dict[int, set[int]] = {}
        for number, version in self.shelf.versions.items():
            for path in versions.place(self.model, number).iterdir():
                states.setdefault(path.stat().st_ino, set()).add(version.state)
        assert all(len(found) == 1 for found in states.values())


def nfc(name: str) -> str:
    return name.replace("e\u0301", "\u00e9")


def is_good(model: Path, number: int) -> bool:
    try:
        versions.load(model, number)
    except Damaged:
        return False
    return True


class Processes(Models):
    """The same, each command a process of its own, ended by real signals."""

    by_the_clock = True

    def process(self, *typed: object, killed_at: int) -> tuple[int, str]:
        server = school()
        return server.do(*map(str, typed), fault=f"kill@any:{killed_at}" if killed_at else ""), server.output()

    def stopped(self, step: int, *typed: object) -> tuple[int, str]:
        server = school()
        pid = server.start(*map(str, typed))
        time.sleep(step / 6)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        return server.wait(), server.output()

    @where(has_a_model)
    def export(self) -> None:
        code, told = self.type("export", self.model, self.place / "model.onnx")
        assert (code, told["classes"]) == (0, len(self.shelf.newest().names)), told


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
