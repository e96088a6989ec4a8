"""What lies in a data folder, and every fault that can be seen without opening a picture."""

import csv
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from randpath import names as rule
from randpath.data.decode import EXTENSIONS
from randpath.errors import DataError
from randpath.names import shown as shown

IGNORED = {"Thumbs.db", "desktop.ini", "__MACOSX"}  # and whatever begins with a dot
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}


@dataclass(frozen=True)
class Fault:
    """One fault of a data folder; `drop` are the files that skipping bad ones leaves out, None if that cannot help."""

    kind: str
    where: str
    what: str
    severe: bool = True  # the others are listed too, but one can learn in spite of them
    drop: tuple[str, ...] | None = ()

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.what}"


@dataclass(frozen=True)
class Picture:
    """A file (relative to the root, with "/"), its class, and the split it was put in: "train", "test" or ""."""

    file: str
    label: str
    split: str


@dataclass
class Tree:
    """The pictures of a data folder, sorted by name, and the faults of its structure."""

    root: Path
    pictures: list[Picture] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, kind: str, where: str, what: str, severe: bool = True, drop: tuple[str, ...] | None = ()) -> None:
        self.faults.append(Fault(kind, shown(where), what, severe, drop))


def scan(folder: Path) -> Tree:
    """One sub-folder a class; or train/ and test/ with such sub-folders; or a CSV of file,label[,split]."""
    if not folder.exists():
        raise DataError(f"{folder} does not exist", where=str(folder))
    if folder.is_file() and folder.suffix.lower() != ".csv":
        raise DataError(f"{folder} is neither a folder nor a .csv file", where=str(folder))
    if (folder / "current.json").is_file() and (folder / "versions").is_dir():
        raise DataError(f"{folder} is a model's folder, not one of pictures", where=str(folder))
    listed = folder if folder.is_file() else folder / "labels.csv"
    if listed.is_file():
        tree = Tree(listed.parent)
        _rows(tree, listed)
    else:
        tree = Tree(folder)
        if (folder / "train").is_dir() and (folder / "test").is_dir():
            for split in ("train", "test"):
                _classes(tree, split)
        else:
            _classes(tree, "")
    tree.pictures.sort(key=lambda picture: picture.file)
    _compare(tree)
    return tree


def _classes(tree: Tree, split: str) -> None:
    top = tree.root / split
    names = []
    for entry in _entries(tree, top, split):
        where = _join(split, entry.name)
        if not entry.is_dir():
            if Path(entry.name).suffix.lower() in EXTENSIONS:
                tree.fault("stray picture", where, "lies beside the class folders, so it has no class", drop=(where,))
            continue
        names.append(entry.name)
        label = rule.normal(entry.name)
        files = list(_files(tree, where))
        tree.pictures += [Picture(file, label, split) for file in files]
        if not files:
            tree.fault("empty class", where, "a class folder without a picture")
    _names(tree, names, split, classes=True)
    if not names:
        tree.fault("no classes", split or str(tree.root), "there is no sub-folder; each class needs one", drop=None)


def _files(tree: Tree, folder: str) -> Iterator[str]:
    """The files below a class folder, sub-folders included."""
    entries = _entries(tree, tree.root / folder, folder)
    _names(tree, [entry.name for entry in entries], folder)
    for entry in entries:
        where = _join(folder, entry.name)
        if entry.is_dir():
            yield from _files(tree, where)
        elif stat.S_ISREG(entry.stat().st_mode):
            yield where
        else:
            tree.fault("unreadable", where, "neither a file nor a folder", drop=(where,))


def _entries(tree: Tree, folder: Path, shown_as: str) -> list["os.DirEntry[str]"]:
    """The entries to look at, sorted by name; a link must lead to a file inside the root."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        tree.fault("unreadable", shown_as or str(folder), error.strerror or str(error))
        return []
    good = []
    for entry in entries:
        if entry.name.startswith(".") or entry.name in IGNORED:
            continue
        if not entry.is_symlink() or _inside(tree, Path(entry.path), _join(shown_as, entry.name)):
            good.append(entry)
    return good


def _inside(tree: Tree, link: Path, where: str) -> bool:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):  # a loop is a RuntimeError up to Python 3.12
        tree.fault("broken link", where, "leads nowhere, or round in a circle", drop=(where,))
        return False
    if not target.is_relative_to(tree.root.resolve()):
        tree.fault("link leading out", where, "leads out of the data folder", drop=(where,))
    elif target.is_dir():
        tree.fault("link to a folder", where, "a folder must not be a link", drop=(where,))
    else:
        return True
    return False


def _rows(tree: Tree, listed: Path) -> None:
    try:
        with listed.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, skipinitialspace=True)
            if not {"file", "label"} <= set(reader.fieldnames or ()):
                raise DataError(
                    f"{listed.name}: the first line must be file,label or file,label,split", where=str(listed)
                )
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{listed.name} cannot be read: {error}", where=str(listed)) from error
    seen: dict[str, int] = {}
    for line, row in rows:
        where = f"{listed.name} line {line}"
        file, label = row["file"] or "", rule.normal((row["label"] or "").strip())
        split = (row.get("split") or "").strip()
        path = tree.root / file
        if not file or not label:
            tree.fault("bad row", where, "no file" if not file else f"no label for {shown(file)}")
        elif what := rule.fault(label):
            tree.fault("bad row", where, f"the label {shown(label)[:100]!r} {what}")
        elif split not in ("train", "test", ""):
            tree.fault("bad row", where, f"split is {shown(split)!r}, not train or test")
        elif None in row:
            tree.fault("bad row", where, "more columns than the first line names")
        elif file in seen:
            tree.fault("listed twice", where, f"{shown(file)} is in line {seen[file]} already")
        elif Path(file).is_absolute():
            tree.fault("absolute path", where, f"write {shown(file)} as it is seen from the folder of {listed.name}")
        elif ".." in Path(file).parts:
            tree.fault("path leading out", where, f"{shown(file)} leads out of the data folder")
        elif not path.is_file():
            tree.fault("missing file", where, f"{shown(file)} is not there")
        elif not path.resolve().is_relative_to(tree.root.resolve()):
            tree.fault("link leading out", where, f"{shown(file)} leads out of the data folder")
        else:
            seen[file] = line
            _names(tree, [label], where)
            tree.pictures.append(Picture(file, label, split))
    if not rows:
        tree.fault("no classes", listed.name, "the list is empty", drop=None)
    splits = {picture.split for picture in tree.pictures}
    if len(splits) > 1 and "" in splits:
        tree.fault("bad row", listed.name, "some rows name a split and some do not", drop=None)
    labels = sorted({picture.label for picture in tree.pictures})
    _twins(tree, labels, "", classes=True)


def _names(tree: Tree, names: list[str], where: str, *, classes: bool = False) -> None:
    """Names that randpath or other systems refuse, or that cannot be told apart there."""
    for name in names:
        severe = rule.fault(name)
        if odd := severe or _odd(name):
            place = _join(where, name)
            drop = None if classes else (place,)
            tree.fault("odd name", place, odd, bool(severe), drop if severe else ())
    _twins(tree, names, where, classes=classes)


def _twins(tree: Tree, names: list[str], where: str, *, classes: bool) -> None:
    first: dict[str, str] = {}
    for name in names:
        twin = first.setdefault(rule.normal(name).casefold(), name)
        if twin != name:
            what = f"differs from {shown(twin)!r} in upper and lower case (or accents) alone"
            tree.fault("twin names", _join(where, name), what, classes, None if classes else ())


def _odd(name: str) -> str:
    """What other systems would have against a name."""
    if name != name.strip() or name.endswith("."):
        return "begins or ends with a space, or ends with a dot"
    if name.split(".")[0].casefold() in RESERVED:
        return "is a device on Windows"
    if any(c in '<>:"|?*\\' for c in name):
        return 'has one of <>:"|?*\\'
    if len(name.encode()) > 200:
        return "is longer than 200 bytes"
    return ""


def _compare(tree: Tree) -> None:
    """Classes against their number of pictures, and training against test."""
    count: dict[tuple[str, str], int] = {}
    for picture in tree.pictures:
        count[picture.split, picture.label] = count.get((picture.split, picture.label), 0) + 1
    has_split = any(split for split, _ in count)
    for label in sorted({label for _, label in count}):
        training = count.get(("train", label), 0) + count.get(("", label), 0)
        if training == 1:
            tree.fault("one picture", label, "a class with a single training picture", severe=False)
        if training == 0:
            files = tuple(picture.file for picture in tree.pictures if picture.label == label)
            tree.fault("missing in training", label, "a class of the test pictures alone", drop=files)
        elif has_split and ("test", label) not in count:
            tree.fault("missing in test", label, "a class without a test picture", severe=False)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
