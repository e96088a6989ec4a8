"""`randpath learn`, killed at any file operation, stopped or starved: the same typed again gives the same model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import Server
from PIL import Image
from sklearn.datasets import load_digits

from randpath.model import versions
from randpath.storage import checkpoint


def make_pictures(place: Path) -> None:
    """Five digits of 8 pictures each, three in the first folder and two in the second."""
    images, labels = load_digits(return_X_y=True)
    for c in range(5):
        folder = place / ("first" if c < 3 else "second") / f"digit {c}"
        folder.mkdir(parents=True)
        for number, pixels in enumerate(images[labels == c][:8].reshape(-1, 8, 8)):
            Image.fromarray(np.round(pixels * 255 / 16).astype(np.uint8)).save(folder / f"{number}.png")


def digest(model: Path) -> str:
    """One hash of all that the model directory holds; nothing unfinished may lie about."""
    left = [path for path in model.rglob("*") if path.name.startswith(".tmp-") or path.name == "work"]
    assert not left, left
    files = [path for path in sorted(model.rglob("*")) if path.is_file() and path.parent != model]
    files.append(model / versions.POINTER)
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(model)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


class School:
    """A server, two folders to learn from, and what a model must be after each."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place, self.server, self.number, self.options = place, Server(place), 0, options
        make_pictures(place)
        model = self.fresh()
        self.counts, self.reference, self.seconds = {}, {}, {}
        for folder in ("first", "second"):
            counts, begun = place / "counts", time.monotonic()
            assert self.server.do(*self.typed(model, folder), counts=counts) == 0, self.server.output()
            self.seconds[folder] = time.monotonic() - begun
            self.counts[folder] = json.loads(counts.read_text())["any"]
            self.reference[folder] = digest(model)
            checkpoint.remove(place / f"after-{folder}")
            os.system(f"cp -a {model} {place}/after-{folder}")

    def fresh(self) -> Path:
        self.number += 1
        return self.place / f"model-{self.number}"

    def before(self, folder: str) -> Path:
        """A model that is about to learn a folder."""
        model = self.fresh()
        if folder == "second":
            os.system(f"cp -a {self.place}/after-first {model}")
        return model

    def typed(self, model: Path, folder: str) -> tuple[str, ...]:
        return ("learn", str(model), str(self.place / folder), "--epochs", "2", *self.options)

    def check(self, model: Path, folder: str) -> None:
        """Type the same again; the model must be the known one, and be removed."""
        code = self.server.do(*self.typed(model, folder))
        assert code == 0, self.server.output()
        assert digest(model) == self.reference[folder]
        checkpoint.remove(model)

    def is_untouched(self, model: Path, folder: str) -> None:
        """Whatever happened, the model answers: as before, or as after."""
        if versions.is_model(model):
            number = versions.current(model)
            versions.load(model, number)
            assert number in ((1, 2) if folder == "second" else (1,))
        else:
            assert folder == "first"

    def faulted(self, fault: str, folder: str) -> int:
        model = self.before(folder)
        code = self.server.do(*self.typed(model, folder), fault=fault)
        self.is_untouched(model, folder)
        if code == 0:
            assert digest(model) == self.reference[folder]
        else:
            self.check(model, folder)
        return code


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path_factory.mktemp("school")
    place = place / f"randpath-school-{os.getpid()}"
    place.mkdir()
    school = School(place)
    yield school
    school.server.close()
    checkpoint.remove(place)


@pytest.mark.parametrize("folder", ["first", "second"])
def test_killed_at_some_operations(school: School, folder: str) -> None:
    for n in (2, school.counts[folder] // 2, school.counts[folder] - 3):
        assert school.faulted(f"kill@any:{n}", folder) == -signal.SIGKILL


@pytest.mark.faults
@pytest.mark.parametrize("folder", ["first", "second"])
def test_killed_at_every_second_operation(school: School, folder: str) -> None:
    for n in range(1, school.counts[folder] + 1, 2):
        assert school.faulted(f"kill@any:{n}", folder) == -signal.SIGKILL


@pytest.mark.faults
@pytest.mark.parametrize("folder", ["first", "second"])
@pytest.mark.parametrize("kind", ["enospc", "enospc+", "eio+", "eacces+"])
def test_every_20th_operation_fails(school: School, folder: str, kind: str) -> None:
    for n in range(1, school.counts[folder] + 1, 20):
        assert school.faulted(f"{kind}@any:{n}", folder) == (74 if kind.endswith("+") else 0), school.server.output()


def stop(school: School, folder: str, rng: random.Random) -> bool:
    """Stop a `learn` at a random time; false where it came to its end before the signal."""
    model = school.before(folder)
    pid = school.server.start(*school.typed(model, folder))
    seconds = rng.uniform(0.05, school.seconds[folder])
    time.sleep(seconds)
    number = rng.choice([signal.SIGINT, signal.SIGTERM])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    code = school.server.wait()
    assert code in (0, 128 + number, -number), school.server.output()  # minus: before the command had begun
    assert "Traceback" not in school.server.output()
    if code > 0:
        assert "type the same command again" in school.server.output().replace("\n", " ")
    school.is_untouched(model, folder)
    if versions.is_model(model) and versions.current(model) == (2 if folder == "second" else 1):  # it came too late
        assert digest(model) == school.reference[folder]
        checkpoint.remove(model)
        school.seconds[folder] = seconds  # the machine may have been busier when they were measured
        return False
    school.check(model, folder)
    return True


def test_stopped(school: School) -> None:
    assert any(stop(school, "second", random.Random(seed)) for seed in range(20))


@pytest.mark.faults
def test_stopped_at_20_random_times(school: School) -> None:
    seeds = iter(range(400))
    stopped = 0
    while stopped < 20:
        seed = next(seeds)
        stopped += stop(school, ("first", "second")[seed % 2], random.Random(seed))


def test_a_damaged_version_is_named_and_the_one_before_it_used(school: School) -> None:
    model = school.fresh()
    os.system(f"cp -a {school.place}/after-second {model}")
    file = versions.place(model, 2) / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.unlink()  # it may be linked
    file.write_bytes(data)
    assert school.server.do("info", str(model)) == 0
    assert "Version 1 is used instead" in school.server.output().replace("\n", " ")
    # A `learn` goes on from the good version: the same bytes as if the damaged one had never been written.
    assert school.server.do(*school.typed(model, "second")) == 0
    assert "Version 1 is used instead" in school.server.output().replace("\n", " ")
    bad = versions.place(model, 2).with_name("000002.bad")
    assert bad.is_dir()
    checkpoint.remove(bad)
    assert digest(model) == school.reference["second"]
