"""The start of a model: one copy of its file in the model directory, named by its SHA-256, for all versions."""

import contextlib
import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path

from randpath.data.features import MOST_BYTES, Start, open_start
from randpath.errors import Damaged, DataError
from randpath.model import pretrained
from randpath.storage import checkpoint, inside

FOLDER = "start"  # of a model directory


@dataclass(frozen=True)
class Named:
    """Which start a model has."""

    name: str  # efficientnet_lite0, timm:NAME, torchvision:NAME, or that of a file
    sha256: str


def read(network: str) -> tuple[bytes, Start]:
    """The file of a start, given as a file or by name, and what it is."""
    path = Path(network)
    if path.suffix == ".onnx":
        if not path.is_file():
            raise DataError(f"{path} does not exist", where=str(path), next=f"randpath start {pretrained.LITE0} {path}")
        data = inside.read(path, MOST_BYTES)
        return data, open_start(data, path.name)
    data = pretrained.make(network)
    return data, open_start(data, network)


def place(directory: Path, sha256: str) -> Path:
    return directory / FOLDER / f"{sha256}.onnx"


def keep(directory: Path, data: bytes) -> None:
    """Put the one copy there; those that no version has (of a `learn` that was given up) go. For the writer alone."""
    file = place(directory, hashlib.sha256(data).hexdigest())
    checkpoint.ensure_directory(file.parent)
    for name in inside.listing(file.parent):
        if name != file.name:
            checkpoint.discard(file.with_name(name))
    if inside.kind(file) is None or inside.read(file, MOST_BYTES) != data:
        checkpoint.replace_file(file, data)


def kept_start(directory: Path, start: Named) -> Start:
    """The start of a model, once every byte of its file is checked."""
    return open_start(kept_file(directory, start), start.name)


def kept_file(directory: Path, start: Named) -> bytes:
    """The file of a model's start; raises Damaged, with the way to restore it."""
    file = place(directory, start.sha256)
    made = start.name == pretrained.LITE0 or ":" in start.name
    how = f"randpath start {start.name} {shlex.quote(str(file))}" if made else f"copy {start.name} to {file}"
    try:
        with inside.held(directory) if directory.is_dir() else contextlib.nullcontext():
            data = inside.read(file, MOST_BYTES)
    except FileNotFoundError:
        raise Damaged(f"the start of the model is missing: {file}", where=str(file), next=how) from None
    if hashlib.sha256(data).hexdigest() != start.sha256:
        raise Damaged(f"the start of the model is damaged: {file}", where=str(file), next=how)
    return data
