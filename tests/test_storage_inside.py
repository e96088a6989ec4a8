"""No step below a held directory goes through a link; the same where a system has no descriptors for directories."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from randpath.errors import Damaged, DiskTrouble, UsageError
from randpath.storage import checkpoint, inside
from randpath.storage.lock import lock


@pytest.fixture(params=["descriptors", "none"])
def system(request, monkeypatch) -> str:
    """This one, and one that lacks directory descriptors and hard links."""
    if request.param == "none":
        monkeypatch.setattr(inside, "RELATIVE", False)
        monkeypatch.delattr(os, "link")
    return request.param


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory `ours`, in which `work` is a link to somebody's folder."""
    (tmp_path / "theirs" / "inner").mkdir(parents=True)
    (tmp_path / "theirs" / "picture.png").write_bytes(b"theirs")
    (tmp_path / "theirs" / "inner" / "note").write_bytes(b"theirs too")
    (tmp_path / "ours" / "real").mkdir(parents=True)
    (tmp_path / "ours" / "work").symlink_to(tmp_path / "theirs")
    (tmp_path / "ours" / "real" / "link.json").symlink_to(tmp_path / "theirs" / "picture.png")
    return tmp_path


def theirs(place: Path) -> dict[str, bytes]:
    folder = place / "theirs"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


THROUGH: dict[str, Callable[[Path], object]] = {
    "write": lambda ours: inside.write(ours / "work" / "picture.png", b"ours"),
    "write deeper": lambda ours: inside.write(ours / "work" / "inner" / "note", b"ours"),
    "remove": lambda ours: inside.remove(ours / "work" / "picture.png"),
    "remove a tree": lambda ours: inside.remove(ours / "work" / "inner"),
    "rename from": lambda ours: inside.rename(ours / "work" / "picture.png", ours / "real" / "x"),
    "rename to": lambda ours: inside.rename(ours / "real", ours / "work" / "x"),
    "make": lambda ours: inside.make_folder(ours / "work" / "new"),
    "make the link": lambda ours: inside.make_folder(ours / "work"),
    "list": lambda ours: inside.listing(ours / "work"),
    "read": lambda ours: inside.read(ours / "work" / "picture.png", 100),
    "read a link": lambda ours: inside.read(ours / "real" / "link.json", 100),
    "sync": lambda ours: inside.sync(ours / "work"),
    "save": lambda ours: checkpoint.save(ours / "work", "1", {}, {"a": 1}),
    "prune": lambda ours: checkpoint.prune(ours / "work", 0),
    "latest": lambda ours: checkpoint.latest(ours / "work"),
}


@pytest.mark.parametrize("name", THROUGH)
def test_nothing_goes_through_a_link(place, system, name):
    before = theirs(place)
    with inside.held(place / "ours"), pytest.raises(Damaged, match=r"is a link|not a regular file"):
        THROUGH[name](place / "ours")
    assert theirs(place) == before


def test_a_link_itself_is_replaced_or_removed_and_not_what_it_leads_to(place, system):
    before, ours = theirs(place), place / "ours"
    with inside.held(ours):
        inside.write(ours / "real" / "link.json", b"ours")
        assert inside.kind(ours / "work") == "other"
        inside.remove(ours / "work")
        inside.write(ours / "real" / "twin", b"ours")
        assert inside.link(ours / "real" / "twin", ours / "real" / "second") == (system == "descriptors")
    assert (theirs(place), (ours / "real" / "link.json").read_bytes()) == (before, b"ours")
    assert inside.kind(ours / "work") is None


def test_what_the_user_named_may_be_a_link(place, system):
    (place / "alias").symlink_to(place / "ours")
    with inside.held(place / "alias"):
        inside.write(place / "alias" / "real" / "file", b"1")
        assert inside.read(place / "alias" / "real" / "file", 1) == b"1"
    checkpoint.write_document(place / "alias" / "a.json", 1)
    assert checkpoint.read_document(place / "ours" / "a.json") == 1


def test_directories_are_made_on_the_way(tmp_path, system):
    with lock(tmp_path / "a"):
        checkpoint.save(tmp_path / "a" / "b" / "c", "1", {}, {"x": 1})
        checkpoint.save(tmp_path / "a" / "b" / "c", "2", {}, {"x": 1}, link=tmp_path / "a" / "b" / "c" / "1")
        checkpoint.prune(tmp_path / "a" / "b" / "c", 1)
        assert checkpoint.names(tmp_path / "a" / "b" / "c") == ["2"]
        checkpoint.discard(tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "b").exists()


def test_the_lock_refuses_links_and_writes_through_none(place, system):
    before, ours = theirs(place), place / "ours"
    with pytest.raises(Damaged, match="work is a link"), lock(ours):
        pass
    (ours / "work").unlink()
    (ours / "work").mkdir()
    (ours / "work" / "000001").symlink_to(place / "theirs")
    with pytest.raises(Damaged, match="000001 is a link"), lock(ours):
        pass
    (ours / "work" / "000001").unlink()
    (ours / "lock.json").unlink()
    (ours / "lock.json").symlink_to(place / "theirs" / "picture.png")
    with lock(ours):
        assert not (ours / "lock.json").is_symlink()
    (ours / "lock").unlink(missing_ok=True)
    (ours / "lock").symlink_to(place / "theirs" / "picture.png")
    with pytest.raises(Damaged, match="lock is not a regular file"), lock(ours):
        pass
    assert theirs(place) == before


def test_a_directory_that_is_moved_is_not_confused_with_the_next_one_of_its_name(tmp_path, system):
    ours = tmp_path / "ours"
    with lock(ours):
        ours.rename(tmp_path / "moved")
        ours.mkdir()
        with pytest.raises(DiskTrouble, match="was moved, removed or replaced"):
            checkpoint.save(ours / "versions", "1", {}, {"a": 1})
    assert list(ours.iterdir()) == []


def test_a_new_directory_into_which_nothing_came_is_not_left_behind(tmp_path, system):
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "a" / "b"):
        raise ZeroDivisionError
    assert not (tmp_path / "a" / "b").exists()
    with lock(tmp_path / "c"):
        (tmp_path / "c" / "file").touch()
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["file", "lock", "lock.json"]


def test_a_pipe_is_not_waited_for_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(Damaged, match="not a regular file"):
        checkpoint.read_document(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match="not a regular file"):
        checkpoint.write_document(tmp_path / "pipe.json", 1)


def test_used_up_inodes_are_not_called_free_space(tmp_path, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full:
        f_files, f_favail = 1000, 0

    monkeypatch.setattr(checkpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(inside, "write", full)
    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    with pytest.raises(DiskTrouble, match="no further file \\(inodes are used up\\) free"):
        checkpoint.write_document(tmp_path / "a.json", 1)
