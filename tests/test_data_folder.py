"""Your own pictures: three layouts, odd trees, skipping, and a fingerprint that notices every change."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from randpath.data import folder, named
from randpath.data._hashes import digests
from randpath.data.dataset import Source, file_changes
from randpath.data.stream import TaskStream
from randpath.errors import DataError
from tests.pictures import put


def tree(root: Path, classes: dict[str, int], prefix: str = "") -> Path:
    for c, n in classes.items():
        for i in range(n):
            put(root / c / f"{i}.png", f"{prefix}{c}{i}", 10, 12)
    return root


def test_one_sub_folder_a_class(tmp_path: Path) -> None:
    tree(tmp_path, {"zebra": 10, "ant": 5, "one": 1})
    source = named.load(f"folder:{tmp_path}", size=8)
    assert source.class_names == ("ant", "one", "zebra")
    assert source.train.shape == (8, 8, 3)
    assert np.bincount(source.train.labels).tolist() == [4, 1, 8]
    assert np.bincount(source.test.labels, minlength=3).tolist() == [1, 0, 2]
    again = named.load(f"folder:{tmp_path}", size=8)
    assert again.fingerprint == source.fingerprint
    assert [again.test.item(i) for i in range(3)] == [source.test.item(i) for i in range(3)]  # type: ignore[attr-defined]
    everything = folder.load(tmp_path, test=0)
    assert (len(everything.train), len(everything.test)) == (16, 0)
    stream = TaskStream(named.load(f"folder:{tmp_path}"), [["zebra", "one"], ["ant"]], seed=0)
    x, y = next(stream.task(1).train.batches([np.arange(3)]))
    assert tuple(x.shape) == (3, 64, 64, 3)
    assert set(y.tolist()) <= {0, 1}


def test_train_and_test(tmp_path: Path) -> None:
    tree(tmp_path / "train", {"a": 6, "b": 6})
    tree(tmp_path / "test", {"a": 2, "b": 3}, "test")
    source = folder.load(tmp_path, size=8)
    assert np.bincount(source.train.labels).tolist() == [6, 6]
    assert np.bincount(source.test.labels).tolist() == [2, 3]


@pytest.mark.parametrize("given", ["folder", "file"])
def test_a_list(tmp_path: Path, given: str) -> None:
    for i in range(4):
        put(tmp_path / "pictures" / f"a, {i}.png", i)
    (tmp_path / "labels.csv").write_text(
        '\ufefffile,label,split\n"pictures/a, 0.png",cat,train\n"pictures/a, 1.png",dog,train\n'
        '"pictures/a, 2.png",cat,test\n"pictures/a, 3.png", dog ,test\n',
        encoding="utf-8",
    )
    source = folder.load(tmp_path if given == "folder" else tmp_path / "labels.csv", size=8)
    assert source.class_names == ("cat", "dog")
    assert (source.train.labels.tolist(), source.test.labels.tolist()) == ([0, 1], [0, 1])
    (tmp_path / "labels.csv").write_text('file,label\n"pictures/a, 0.png",cat\n"pictures/a, 1.png",cat\n')
    assert len(folder.load(tmp_path, size=8, test=0).train) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,label\n0.png,a\n", "the first line must be file,label"),
        ("", "the first line must be"),
        ("file,label\n", "the list is empty"),
        ("file,label\n0.png,\n", "labels.csv line 2: bad row: no label for 0.png"),
        ("file,label\n,a\n", "line 2: bad row: no file"),
        ("file,label,split\n0.png,a,valid\n", "split is 'valid', not train or test"),
        ("file,label,split\n0.png,a,train\n1.png,a,\n", "some rows name a split and some do not"),
        ("file,label\n0.png,a,b,c\n", "more columns"),
        ("file,label\n0.png,a\n0.png,b\n", "line 3: listed twice: 0.png is in line 2 already"),
        ("file,label\n../0.png,a\n", "leads out of the data folder"),
        ("file,label\n/etc/passwd,a\n", "absolute path: write /etc/passwd as it is seen from the folder"),
        ("file,label\nnone.png,a\n", "none.png is not there"),
        ("file,label\n0.png,a\n1.png,A\n", "twin names"),
        ("file,label,split\n0.png,a,train\n1.png,b,test\n", "b: missing in training"),
        (b"file,label\n0.png,\xff\xfe\n", "cannot be read"),
    ],
)
def test_wrong_lists(tmp_path: Path, text: str | bytes, why: str) -> None:
    put(tmp_path / "0.png", 0)
    put(tmp_path / "1.png", 1)
    (tmp_path / "labels.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=why) as error:
        folder.load(tmp_path)
    assert error.value.where


def case(tmp_path: Path, name: str) -> Path:
    """Odd trees, by name."""
    good = tree(tmp_path / "data", {"a": 3, "b": 3})
    match name:
        case "hidden files":
            (good / ".git" / "x").mkdir(parents=True)
            (good / "a" / ".hidden.png").write_bytes(b"junk")
            (good / "__MACOSX").mkdir()
        case "other files beside the classes":
            (good / "README.txt").write_text("hello")
        case "sub-folders inside a class":
            put(good / "a" / "deep" / "er" / "x.png", "x")
        case "non-ASCII, emoji and long names":
            tree(good, {"żółć": 2, "🦊": 2, "n" * 200: 2, "a b c": 2})
        case "a name in two normal forms":
            tree(good, {unicodedata.normalize("NFD", "é"): 2})
        case "a link inside":
            (good / "a" / "l.png").symlink_to(good / "a" / "0.png")
        case "a class called train":
            tree(good, {"train": 2})
        case "one class alone":
            return tree(tmp_path / "single", {"only": 3})
        case "upper-case extension":
            (good / "a" / "0.png").rename(good / "a" / "0.PNG")
        case "duplicates in a class":
            (good / "a" / "copy.png").write_bytes((good / "a" / "0.png").read_bytes())
        case "an empty folder":
            (tmp_path / "empty").mkdir()
            return tmp_path / "empty"
        case "a file":
            return put(tmp_path / "x.png", 0)
        case "a model":
            (good / "versions").mkdir()
            (good / "current.json").write_text("{}")
        case "nothing":
            return tmp_path / "nothing"
        case "empty class":
            (good / "c").mkdir()
        case "case-only twins":
            tree(good, {"A": 2})
        case "a link out":
            (good / "a" / "l.png").symlink_to(put(tmp_path / "secret.png", "s"))
        case "a class that is a link":
            (good / "c").symlink_to(good / "a", target_is_directory=True)
        case "a loop of links":
            (good / "a" / "self").symlink_to(good / "a", target_is_directory=True)
        case "pictures without a class":
            put(good / "x.png", "x")
        case "train and test share a picture":
            tree(good / "train", {"a": 3})
            tree(good / "test", {"a": 1})
        case "not UTF-8":
            put(good / os.fsdecode(b"\xff\xfe") / "0.png", "x")
    return good


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("hidden files", 2),
        ("other files beside the classes", 2),
        ("sub-folders inside a class", 2),
        ("non-ASCII, emoji and long names", 6),
        ("a name in two normal forms", 3),
        ("a link inside", 2),
        ("a class called train", 3),
        ("one class alone", 1),
        ("upper-case extension", 2),
        ("duplicates in a class", 2),
        ("an empty folder", "no classes"),
        ("a file", "neither a folder nor a .csv file"),
        ("a model", "is a model's folder, not one of pictures"),
        ("nothing", "does not exist"),
        ("empty class", "c: empty class"),
        ("case-only twins", "twin names"),
        ("a link out", "l.png: link leading out"),
        ("a class that is a link", "c: link to a folder"),
        ("a loop of links", "self: link to a folder"),
        ("pictures without a class", "x.png: stray picture"),
        ("train and test share a picture", "in training and test"),
        ("not UTF-8", r"\\udcff\\udcfe: odd name: is not valid UTF-8"),
    ],
)
def test_odd_trees(tmp_path: Path, name: str, outcome: int | str) -> None:
    path = case(tmp_path, name)
    if isinstance(outcome, str):
        with pytest.raises(DataError, match=outcome) as error:
            folder.load(path)
        assert str(path) in error.value.where
        return
    source = folder.load(path)
    assert len(source.class_names) == outcome
    assert all(unicodedata.is_normalized("NFC", c) for c in source.class_names)
    assert sum(len(x) for x, _ in source.train.batches([np.arange(len(source.train))])) == len(source.train)


class TestSkipping:
    def test_bad_files_are_left_out_and_listed(self, tmp_path: Path) -> None:
        tree(tmp_path, {"a": 6, "b": 6, "c": 1})
        clean = folder.load(tmp_path)
        (tmp_path / "a" / "bad.png").write_bytes(b"")
        (tmp_path / "b" / "copy.png").write_bytes((tmp_path / "a" / "0.png").read_bytes())
        (tmp_path / "c" / "0.png").write_bytes(b"no picture")
        with pytest.raises(DataError, match="3 faults") as error:
            folder.load(tmp_path)
        assert "--skip-bad" in error.value.next
        source = folder.load(tmp_path, skip_bad=True)
        assert source.class_names == ("a", "b")
        used = {path.name for part in (source.train, source.test) for path in map(part.item, range(len(part)))}  # type: ignore[attr-defined]
        assert not used & {"bad.png", "copy.png"}
        assert len(source.train) + len(source.test) == 11, "of a picture in two classes no copy is used"
        told = "\n".join(source.skipped)
        for line in ("a/bad.png: zero-byte", "b/copy.png: in two classes", "c: no picture is left"):
            assert line in told
        assert clean.skipped == ()
        assert clean.fingerprint != source.fingerprint

    def test_of_a_picture_in_both_splits_the_test_copy_stays(self, tmp_path: Path) -> None:
        tree(tmp_path / "train", {"a": 4})
        tree(tmp_path / "test", {"a": 2})
        source = folder.load(tmp_path, skip_bad=True)
        assert (len(source.train), len(source.test)) == (2, 2)

    def test_what_skipping_cannot_mend_is_refused(self, tmp_path: Path) -> None:
        tree(tmp_path, {"a": 3, "A": 3})
        with pytest.raises(DataError, match="twin names") as error:
            folder.load(tmp_path, skip_bad=True)
        assert "--skip-bad" not in error.value.next

    def test_nothing_left(self, tmp_path: Path) -> None:
        put(tmp_path / "a" / "0.png", 0).write_bytes(b"")
        with pytest.raises(DataError, match="no picture"):
            folder.load(tmp_path, skip_bad=True)

    def test_many_faults_are_cut_short(self, tmp_path: Path) -> None:
        for i in range(50):
            put(tmp_path / "a" / f"{i}.png", i).write_bytes(b"")
        with pytest.raises(DataError, match="and 30 more"):
            folder.load(tmp_path)


class TestFingerprint:
    def load(self, root: Path) -> Source:
        return folder.load(root, size=8)

    @pytest.mark.parametrize("what", ["added", "removed", "renamed", "edited", "moved"])
    def test_a_change_is_noticed_and_named(self, tmp_path: Path, what: str) -> None:
        tree(tmp_path, {"a": 4, "b": 4})
        before = self.load(tmp_path)
        path = tmp_path / "a" / "2.png"
        match what:
            case "added":
                put(tmp_path / "a" / "9.png", "new")
            case "removed":
                path.unlink()
            case "renamed":
                path.rename(tmp_path / "a" / "x.png")
            case "edited":
                raw = path.read_bytes()
                path.write_bytes(raw + b"\0")  # by one byte, the pixels are the same
            case "moved":
                path.rename(tmp_path / "b" / "x.png")
        after = self.load(tmp_path)
        assert after.fingerprint != before.fingerprint
        want = {
            "added": "added: a/9.png",
            "removed": "removed: a/2.png",
            "renamed": "renamed: a/2.png is now a/x.png",
            "edited": "edited: a/2.png",
            "moved": "renamed: a/2.png is now b/x.png",
        }
        assert file_changes(before.files, after.files) == [want[what]]

    def test_times_and_the_order_of_listing_do_not_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree(tmp_path, {"a": 4, "b": 4})
        before = self.load(tmp_path)
        for path in tmp_path.rglob("*.png"):
            os.utime(path, (1, 1))
        scandir = os.scandir

        class Backwards:
            def __init__(self, path: object):
                with scandir(path) as entries:  # type: ignore[call-overload]
                    self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

            def __enter__(self) -> list[object]:
                return self.entries

            def __exit__(self, *_: object) -> None: ...

        monkeypatch.setattr("randpath.data._tree.os.scandir", Backwards)
        after = self.load(tmp_path)
        assert after.fingerprint == before.fingerprint
        assert [after.train.item(i) for i in range(6)] == [before.train.item(i) for i in range(6)]  # type: ignore[attr-defined]

    def test_digests_are_remembered_until_the_file_changes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        path = put(tmp_path / "d" / "a.png", 0)
        first = digests(tmp_path / "d", ["a.png"])
        opened: list[Path] = []
        monkeypatch.setattr(
            Path, "open", lambda self, *a, _open=Path.open, **k: (opened.append(self), _open(self, *a, **k))[1]
        )
        assert digests(tmp_path / "d", ["a.png"]) == first
        assert path not in opened
        os.utime(path, (1, 1))
        assert digests(tmp_path / "d", ["a.png"]) == first
        assert path in opened
        put(path, 1)
        assert digests(tmp_path / "d", ["a.png"]) != first
        (remembered,) = (tmp_path / "home").rglob("*.json")
        for junk in ("", "[]", '{"a.png": 3}', '{"a.png": [1, 2, 3]}'):
            remembered.write_text(junk)
            assert digests(tmp_path / "d", ["a.png"]) != first


def test_copies_of_a_picture_are_drawn_to_one_side(tmp_path):
    """A picture that was trained on is no test, whatever its file is called."""
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(20):
            picture = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            picture.save(tmp_path / label / f"{i}.png")
            picture.save(tmp_path / label / f"{i}-again.png")
    source = folder.load(tmp_path, size=8)
    train, test = (
        {x.tobytes() for part in data.batches([np.arange(len(data))]) for x in part[0].numpy()}
        for data in (source.train, source.test)
    )
    assert len(source.test) == 2 * 2 * 4  # a fifth of the 20 pictures of each class, both copies
    assert not train & test
