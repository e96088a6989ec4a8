"""The command that says what is in pictures. torch is imported inside it."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from randpath.commands.reading import Json, Threads, open_model, percent, picture_shape, print_json, use_threads
from randpath.commands.terminal import Bar
from randpath.errors import DataError, UsageError, as_typed
from randpath.names import shown
from randpath.storage import checkpoint

if TYPE_CHECKING:
    from randpath.model.model import Model

AT_ONCE = 512  # pictures in memory
IS_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


def predict(
    model: Path,
    *images: Path,
    top: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 1,
    csv: Path | None = None,
    device: str = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> int:
    """Say what is in a picture: its class, how sure that is, and whether it may be none of the known ones.

    A picture that cannot be read does not stop the others: it is named at the end, with exit code 65.

    Parameters
    ----------
    model
        The model directory.
    images
        Picture files, and folders of them.
    top
        How many classes to name for each picture, the most probable first.
    csv
        Write a table to this file, too.
    device
        cpu, cuda, cuda:1, mps.
    threads
        How many to use; default all cores.
    as_json
        Print one JSON object.
    """
    if not images:
        raise UsageError("no picture was given", next=as_typed("predict", model, "IMAGE..."))
    if csv is not None and not csv.parent.is_dir():
        raise UsageError(f"there is no folder {csv.parent}", where=str(csv), next="make it first, or mend the name")
    _, loaded = open_model(model, device)
    use_threads(threads)
    files = _files(images)
    found, faults = _asked(loaded, files, top)
    if csv is not None:
        checkpoint.replace_file(csv, _table(found, min(top, len(loaded.names))).encode(errors="backslashreplace"))
    if as_json:
        print_json({"predictions": found} | (_told(faults, len(files)) if faults else {}))
        return DataError.exit_code if faults else 0
    width = max((len(shown(one["file"])) for one in found), default=0)
    for one in found:
        print(f"{shown(one['file']):{width}}  {_line(one)}")
    if faults:
        told = _told(faults, len(files))
        raise DataError(str(told["error"]), where=str(told["where"]))
    return 0


def _files(images: Sequence[Path]) -> list[Path]:
    """The pictures that were named, and those of folders, by their extension, in order."""
    from randpath.data.decode import EXTENSIONS

    files: list[Path] = []
    for image in images:
        if image.is_dir():
            inside = sorted(Path(top) / name for top, _, names in os.walk(image) for name in names)
            own = [f for f in inside if f.suffix.lower() in EXTENSIONS and not f.name.startswith(".")]
            if not own:
                raise DataError(f"there is no picture in {image}", where=str(image))
            files += own
        else:
            files.append(image)
    return files


def _asked(model: "Model", files: list[Path], top: int) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """An answer for every picture that can be read, and the others with what is wrong with them."""
    import numpy as np

    from randpath.data.dataset import Arrays
    from randpath.data.decode import PictureError, decode, read
    from randpath.model.answers import answers

    shape = picture_shape(model)
    found: list[dict[str, Any]] = []
    faults: list[dict[str, str]] = []
    with Bar(f"looking at {len(files):,} pictures") as bar:
        for start in range(0, len(files), AT_ONCE):
            good: list[Path] = []
            pixels: list[np.ndarray] = []
            for file in files[start : start + AT_ONCE]:
                try:
                    pixels.append(decode(read(file), shape, name=str(file)))
                    good.append(file)
                except PictureError as error:
                    faults.append({"file": str(file), "error": error.fault})
            if good:
                data = Arrays(np.stack(pixels), np.zeros(len(good), np.int64))
                found += [{"file": str(file), **one} for file, one in zip(good, answers(model, data, top))]
            bar.show(min(1.0, (start + AT_ONCE) / len(files)))
    return found, faults


def _line(one: dict[str, Any]) -> str:
    ranked = one.get("top") or [{"label": one["label"], "confidence": one["confidence"]}]
    listed = "   ".join(f"{percent(rank['confidence'])}  {shown(str(rank['label']))}" for rank in ranked)
    return f"{listed}  (unknown?)" if one["unknown"] else listed


def _told(faults: list[dict[str, str]], number: int) -> dict[str, object]:
    """The one object of an error, beside the answers."""
    listed = "; ".join(f"{shown(fault['file'])}: {fault['error']}" for fault in faults[:10])
    more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
    what = f"{len(faults)} of {number} pictures could not be read: {listed}{more}"
    return {"error": what, "where": faults[0]["file"], "kept": "the others are answered", "next": "", "faults": faults}


def _table(found: list[dict[str, Any]], top: int) -> str:
    """The answers as CSV; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    more = [f"{what}_{rank}" for rank in range(2, top + 1) for what in ("label", "confidence")]
    writer.writerow(["file", "label", "confidence", "unknown", *more])
    for one in found:
        others = [cell for rank in one.get("top", [])[1:] for cell in (_cell(rank["label"]), rank["confidence"])]
        unknown = "yes" if one["unknown"] else "no"
        writer.writerow([_cell(one["file"]), _cell(one["label"]), one["confidence"], unknown, *others])
    return file.getvalue()


def _cell(value: object) -> object:
    """A text as it may stand in a table.

    >>> _cell("=1+1"), _cell("wren"), _cell(-3)
    ("'=1+1", 'wren', -3)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(IS_FORMULA) else value
