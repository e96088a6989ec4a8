"""Power loss: what was not yet synced may be lost, in any combination; what is found is old or new, never a mix.

SIGKILL keeps what is in memory of the kernel, a power loss does not. So the operations are recorded, and states of the
disk made from them as the standard allows: the content of a file lasts after its fsync, a name in a directory after the
fsync of that directory; before, each change of a name may have reached the disk or not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from shim import installed

from randpath.errors import Damaged
from randpath.storage import checkpoint

DOCUMENT = "document.json"


@dataclass
class Node:
    """A file or a directory, whatever its names."""

    data: bytes | None = None  # of a file
    names: dict[str, Node] = field(default_factory=dict)


@dataclass
class Change:
    """One change of names, atomic: entries of directories, set or (None) removed."""

    entries: list[tuple[Node, str, Node | None]]
    at: int
    synced: int | None = None  # the moment from which it lasts


class Disk:
    """The changes that a run makes, with the moment from which each one lasts."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, Node()
        self.now: dict[int, dict[str, Node]] = {}  # the view of the running system
        self.changes: list[Change] = []
        self.writes: dict[int, tuple[Node, bytes]] = {}
        self.clock = 0
        self.commits: list[tuple[int, str]] = []  # the moments at which a save returned

    def entries(self, node: Node) -> dict[str, Node]:
        return self.now.setdefault(id(node), {})

    def node(self, path: Path) -> Node:
        node = self.top
        for part in path.relative_to(self.root).parts:
            node = self.entries(node)[part]
        return node

    def change(self, *entries: tuple[Node, str, Node | None]) -> None:
        self.changes.append(Change(list(entries), self.clock))
        for parent, name, node in entries:
            if node is None:
                self.entries(parent).pop(name, None)
            else:
                self.entries(parent)[name] = node

    def __call__(self, operation: str, args: tuple[Any, ...]) -> None:
        self.clock += 1
        path: Path = args[0]
        if operation == "write_file":
            linked = args[2] is not None and args[2].exists() and args[2].read_bytes() == args[1] if args[2:] else False
            node = self.node(args[2]) if linked else Node(args[1])
            if not linked:
                self.writes[self.clock] = (node, args[1])
            self.change((self.node(path.parent), path.name, node))
        elif operation == "make_directory":
            if path.name not in self.entries(self.node(path.parent)):
                self.change((self.node(path.parent), path.name, Node()))
        elif operation == "rename":
            target: Path = args[1]
            node = self.node(path)
            self.change((self.node(path.parent), path.name, None), (self.node(target.parent), target.name, node))
        elif operation == "remove":
            if path.name in self.entries(self.node(path.parent)):
                self.remove(path)
        elif operation == "sync_directory":
            directory = self.node(path)
            for change in self.changes:
                if change.synced is None and all(parent is directory for parent, _, _ in change.entries):
                    change.synced = self.clock

    def remove(self, path: Path) -> None:
        for name in list(self.entries(self.node(path))):
            self.remove(path / name)
        self.change((self.node(path.parent), path.name, None))

    def after(self, moment: int, rng: random.Random, target: Path) -> None:
        """Make in `target` a state that a loss of power in the middle of operation `moment` may leave."""
        names: dict[int, dict[str, Node]] = {}
        for change in self.changes:
            if change.at <= moment:
                lasting = change.synced is not None and change.synced < moment
                if lasting or rng.random() < 0.5:
                    for parent, name, node in change.entries:
                        names.setdefault(id(parent), {})[name] = node  # type: ignore[assignment]
        torn = self.writes.get(moment, (None, b""))

        def make(node: Node, path: Path) -> None:
            if node is torn[0]:  # not synced yet: a part of it, or zeros
                cut = rng.randrange(len(torn[1]) + 1)
                path.write_bytes(rng.choice([torn[1][:cut], torn[1][:cut] + bytes(len(torn[1]) - cut)]))
            elif node.data is not None:
                path.write_bytes(node.data)
            else:
                path.mkdir()
                for name, inner in names.get(id(node), {}).items():
                    if inner is not None:
                        make(inner, path / name)

        make(self.top, target)


def content(k: int) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, object]]:
    return {"weights": {"w": torch.full((20,), float(k))}, "same": {"s": torch.zeros(3)}}, {"state": {"k": k}}


def record(root: Path) -> Disk:
    """Six saves with links, pruned to the last two, and a document rewritten each time."""
    disk = Disk(root)
    root.mkdir()
    with installed(disk):
        for k in range(1, 7):
            earlier = root / "saves" / f"{k - 1}"
            checkpoint.save(root / "saves", str(k), *content(k), link=earlier if k > 1 else None)
            disk.commits.append((disk.clock, str(k)))
            checkpoint.prune(root / "saves", keep=2)
            checkpoint.write_document(root / DOCUMENT, {"k": k})
    return disk


def check(disk: Disk, moment: int, rng: random.Random, target: Path) -> None:
    disk.after(moment, rng, target)
    done = [name for clock, name in disk.commits if clock < moment]
    found = checkpoint.latest(target / "saves")  # warnings are errors: nothing looks damaged
    name = found[0] if found else ""
    promised = done[-1] if done else ""
    following = str(len(done) + 1)
    assert name in (promised, following), f"moment {moment}: {name!r}, promised {promised!r}"
    if found:
        assert found[1].documents["state"] == {"k": int(name)}
        assert torch.equal(found[1].tensors["weights"]["w"], content(int(name))[0]["weights"]["w"])
    if (target / DOCUMENT).exists():
        assert checkpoint.read_document(target / DOCUMENT)["k"] in (len(done) - 1, len(done))
    else:
        assert len(done) <= 1
    if name != "6":  # and the run goes on
        checkpoint.save(target / "saves", str(int(name or 0) + 1), *content(9))
        checkpoint.prune(target / "saves", keep=2)
        assert not list(target.rglob(".tmp-*/"))


def test_the_recorded_disk_is_the_real_one(tmp_path: Path) -> None:
    disk = record(tmp_path / "run")
    disk.after(disk.clock + 1, random.Random(0), tmp_path / "copy")
    for path in (tmp_path / "run").rglob("*"):
        copy = tmp_path / "copy" / path.relative_to(tmp_path / "run")
        assert copy.is_dir() if path.is_dir() else copy.read_bytes() == path.read_bytes()


def test_200_states_after_a_power_loss(tmp_path: Path) -> None:
    disk, rng = record(tmp_path / "run"), random.Random(5)
    for number in range(200):
        check(disk, rng.randrange(1, disk.clock + 2), rng, tmp_path / str(number))


@pytest.mark.faults
def test_5000_states_after_a_power_loss(tmp_path: Path) -> None:
    disk, rng = record(tmp_path / "run"), random.Random(6)
    for _ in range(5000):
        check(disk, rng.randrange(1, disk.clock + 2), rng, tmp_path / "state")
        checkpoint.remove(tmp_path / "state")


def test_a_save_without_syncs_would_be_caught(tmp_path: Path) -> None:
    """The test of the test: leave out the sync before the rename, and states appear that are damaged."""
    original = checkpoint.sync_directory
    checkpoint.sync_directory = lambda path: None  # type: ignore[assignment]
    disk, rng = Disk(tmp_path / "run"), random.Random(7)
    disk.root.mkdir()
    try:
        with installed(lambda name, args: disk(name, args) if name != "sync_directory" else None):
            for k in range(1, 7):
                checkpoint.save(tmp_path / "run" / "saves", str(k), *content(k))
                disk.commits.append((disk.clock, str(k)))
    finally:
        checkpoint.sync_directory = original
    wrong = 0
    for number in range(50):
        try:
            check(disk, rng.randrange(1, disk.clock + 2), rng, tmp_path / str(number))
        except (AssertionError, UserWarning, Damaged):
            wrong += 1
    assert wrong > 10
