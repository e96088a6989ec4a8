"""The data check: forty planted faults of a folder, forty named in one pass; nothing is changed."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from randpath.data.check import Fault, check, render
from tests.pictures import encoded, pixels, put


def plant(root: Path) -> dict[str, str]:
    """A data folder with forty faults among good pictures: the place that must be named -> the kind of fault."""
    faults: dict[str, str] = {}
    for c in ("ant", "bee", "cat", "dog"):
        for i in range(8):
            put(root / "train" / c / f"{i}.png", f"{c} train {i}", 16, 16)
        for i in range(3):
            put(root / "test" / c / f"{i}.png", f"{c} test {i}", 16, 16)

    def bad(kind: str, place: str, data: bytes) -> None:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        faults[place] = kind

    png, jpeg, webp, bmp = (encoded(pixels("base", 32, 32), kind) for kind in ("png", "jpeg", "webp", "bmp"))
    # 1-4: empty
    for place in ("train/ant/e.png", "train/bee/e.jpg", "test/cat/e.webp", "train/dog/e.bmp"):
        bad("zero-byte", place, b"")
    # 5-8: cut
    for place, data in (("ant/t.png", png), ("bee/t.jpg", jpeg), ("cat/t.webp", webp), ("dog/t.bmp", bmp)):
        bad("truncated", f"train/{place}", data[: len(data) * 2 // 3])
    # 9-11: damaged inside
    broken = bytearray(png)
    broken[len(png) // 2] ^= 0xFF
    bad("corrupt", "train/ant/c.png", bytes(broken))
    bad("corrupt", "test/bee/c.png", png[:16] + b"\0\0\0\0" + png[20:])
    bad("corrupt", "train/cat/c.jpg", jpeg[:20] + bytes(60) + jpeg[80:])
    # 12-14: not pictures, or not of an allowed kind
    bad("not a picture", "train/dog/notes.txt", b"feed the dog")
    bad("not a picture", "train/dog/i.ico", encoded(Image.fromarray(pixels("ico", 16, 16)), "ico"))
    bad("not a picture", "train/dog/p.jpg", b"%PDF-1.4 not a picture")
    # 15-17: the name says one thing, the contents another
    bad("wrong extension", "train/ant/w.jpg", encoded(pixels("w1")))
    bad("wrong extension", "train/bee/w.png", encoded(pixels("w2"), "jpeg"))
    bad("wrong extension", "train/cat/w", encoded(pixels("w3")))
    # 18-19: too large, and moving
    bad("too large", "train/dog/l.png", encoded(Image.new("1", (8000, 6300))))
    frames = [Image.fromarray(pixels(f"frame {i}")) for i in range(3)]
    bad("animated", "train/dog/a.png", encoded(frames[0], "png", save_all=True, append_images=frames[1:]))
    # 20-22: the same picture twice in one class; once as another file format, once in a sub-folder
    bad("duplicate", "train/ant/z1.png", (root / "train/ant/0.png").read_bytes())
    bad("duplicate", "train/bee/z2.bmp", encoded(pixels("bee train 1", 16, 16), "bmp"))
    bad("duplicate", "train/cat/more/z3.png", (root / "train/cat/2.png").read_bytes())
    # 23-25: in training and test
    bad("in training and test", "train/ant/z4.png", (root / "test/ant/0.png").read_bytes())
    bad("in training and test", "train/bee/z5.png", (root / "test/bee/1.png").read_bytes())
    bad("in training and test", "train/dog/z6.bmp", encoded(pixels("dog test 2", 16, 16), "bmp"))
    # 26-27: in two classes
    bad("in two classes", "train/dog/z7.png", (root / "train/ant/3.png").read_bytes())
    bad("in two classes", "train/cat/z8.png", (root / "train/bee/4.png").read_bytes())
    # 28-32: classes
    (root / "train" / "empty").mkdir()
    faults["train/empty"] = "empty class"
    put(root / "train" / "lonely" / "0.png", "lonely")
    put(root / "test" / "lonely" / "0.png", "lonely test")
    faults["lonely"] = "one picture"
    for i in range(6):
        put(root / "train" / "untested" / f"{i}.png", f"untested {i}")
    faults["untested"] = "missing in test"
    put(root / "test" / "untrained" / "0.png", "untrained")
    faults["untrained"] = "missing in training"
    put(root / "train" / "stray.png", "stray")
    faults["train/stray.png"] = "stray picture"
    # 33-36: names
    for c in ("Ant",):
        for i in range(3):
            put(root / "train" / c / f"{i}.png", f"{c} train {i}")
        put(root / "test" / c / "0.png", f"{c} test")
    faults["train/ant"] = "twin names"
    put(root / "train" / "bee" / "T1.png", "upper")
    put(root / "train" / "bee" / "t1.png", "lower")
    faults["train/bee/t1.png"] = "twin names"
    put(root / "train" / "cat" / "con.png", "device")
    faults["train/cat/con.png"] = "odd name"
    put(root / "train" / "cat" / "gnp.\u202etac.png", "right to left")
    faults["train/cat/gnp.\\u202etac.png"] = "odd name"
    # 37-39: links
    (root / "train" / "dog" / "out.png").symlink_to("/etc/passwd")
    faults["train/dog/out.png"] = "link leading out"
    (root / "train" / "dog" / "loop.png").symlink_to("loop.png")
    faults["train/dog/loop.png"] = "broken link"
    (root / "train" / "dog" / "folder").symlink_to(root / "train" / "cat", target_is_directory=True)
    faults["train/dog/folder"] = "link to a folder"
    # 40: what cannot be read at all
    with socket.socket(socket.AF_UNIX) as nothing:
        here = Path.cwd()
        os.chdir(root / "train" / "dog")  # the name of a socket must be short
        try:
            nothing.bind("s.png")
        finally:
            os.chdir(here)
    faults["train/dog/s.png"] = "unreadable"
    return faults


def state(root: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_size, p.lstat().st_mtime_ns) for p in root.rglob("*"))


def test_forty_of_forty(tmp_path: Path) -> None:
    planted = plant(tmp_path)
    assert len(planted) == 40
    before = state(tmp_path)
    found = check(tmp_path)
    by_place = {fault.where: fault.kind for fault in found}
    # Of two equal pictures either may be called the copy; the sentence names the other one.
    for fault in found:
        if fault.what.startswith("the same picture as "):
            by_place.setdefault(fault.what.removeprefix("the same picture as "), fault.kind)
    missed = {place: kind for place, kind in planted.items() if by_place.get(place) != kind}
    assert not missed
    assert len(found) == 41, [str(f) for f in found if f.where not in planted]  # the twins of train/ are in test/ too
    assert state(tmp_path) == before, "nothing is changed"
    lines = render(found, 12, 3)
    counts = f"{sum(f.severe for f in found)} faults, {sum(not f.severe for f in found)} cautions"
    assert lines[-1] == f"12 pictures of 3 classes: {counts}"
    assert all(line.isprintable() for line in lines)


def test_a_good_folder_has_no_fault(tmp_path: Path) -> None:
    for c in ("Käfer", "日本", "🐞 red"):
        for i in range(2):
            put(tmp_path / c / "sub" / f"{i}.png", f"{c}{i}")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / "Käfer" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "Käfer" / "link.png").symlink_to(tmp_path / "Käfer" / "sub" / "0.png")
    faults = check(tmp_path)
    assert [(f.kind, f.severe) for f in faults] == [("duplicate", False)], "a link inside is a second copy"
    (tmp_path / "Käfer" / "link.png").unlink()
    assert check(tmp_path) == []
    assert render([], 2, 1) == ["2 pictures of 1 class: no faults"]


def test_progress_is_told(tmp_path: Path) -> None:
    for i in range(130):
        put(tmp_path / "a" / f"{i}.png", i)
    told: list[tuple[int, int]] = []
    check(tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(64, 130), (128, 130), (130, 130)]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user whom permissions stop")
def test_files_without_permission(tmp_path: Path) -> None:
    put(tmp_path / "a" / "0.png", 0).chmod(0)
    (tmp_path / "b").mkdir(mode=0)
    assert [f.kind for f in check(tmp_path)].count("unreadable") == 2


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As permissions do, for tests that run as root."""
    put(tmp_path / "a" / "0.png", 0)
    put(tmp_path / "a" / "1.png", 1)
    opened = Path.open

    def refuse(self: Path, *args: object, **options: object) -> object:
        if self.name == "1.png":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    assert [str(f) for f in check(tmp_path)] == ["a/1.png: unreadable: Permission denied"]


def test_nine_kinds_of_bad_pictures_among_a_thousand(tmp_path: Path) -> None:
    draw = np.random.RandomState(0)
    places = [tmp_path / f"c{i % 10}" / f"{i}.png" for i in range(1000)]
    for i, path in enumerate(places):
        put(path, i, 4, 4)
    good = encoded(pixels("victim", 64, 64))
    bad = [
        b"", b"x", good[:20], good[: len(good) // 2], good[:-400], b"\x89PNG\r\n\x1a\n" + bytes(100), good[::-1],
        good[:40] + bytes(30) + good[70:], encoded(Image.new("L", (9, 9)), "tiff"),
    ]  # fmt: skip
    planted = {}
    for data, i in zip(bad, draw.permutation(1000)):
        places[i].write_bytes(data)
        planted[places[i].relative_to(tmp_path).as_posix()] = data
    assert {fault.where for fault in check(tmp_path)} == set(planted)


def test_a_fault_reads_as_a_sentence() -> None:
    assert str(Fault("corrupt", "a/b.png", "cannot be decoded")) == "a/b.png: corrupt: cannot be decoded"
