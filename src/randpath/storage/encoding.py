"""Bytes to objects and back: documents, manifests and tensors, no file in sight, so that a fuzzer can feed them.

torch is imported only where it is needed, so that a lock can be taken before.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from randpath.errors import Damaged

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

FORMAT = 1  # of the manifest; an unknown one is refused
MANIFEST = "MANIFEST.json"
BAD = ".bad"  # NAME.bad was damaged, and is kept for whoever wants to look
MAX_HEADER = 2_000_000  # bytes: some 15,000 tensors; bounds the memory that a hostile header can cost
MAX_DOCUMENT = 64_000_000
BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2}
BYTES |= {"I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}


def encode_document(document: object) -> bytes:
    """Canonical JSON: the same document, the same bytes; NaN and infinity are refused.

    >>> encode_document({"b": 1, "a": "\u00e9"})
    b'{"a": "\\xc3\\xa9", "b": 1}\\n'
    """
    return (json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def parse_document(data: bytes) -> Any:
    """JSON, strictly: no key twice, no NaN, no infinity, no bottomless nesting; raises Damaged.

    >>> parse_document(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    randpath.errors.Damaged: not a JSON document: 'a' is there twice
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice")
        return found

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError(f"{text} is not a finite number")
        return number

    if len(data) > MAX_DOCUMENT:
        raise Damaged(f"a document of {len(data):,} bytes, more than {MAX_DOCUMENT:,}")
    try:
        return json.loads(data.decode(), object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not a JSON document: {error}") from error


def parse_manifest(data: bytes) -> dict[str, tuple[str, int]]:
    """The files of a manifest with their SHA-256 and size; anything but our own bytes is refused."""
    document = parse_document(data)
    if not isinstance(document, dict) or set(document) != {"format", "files"}:
        raise Damaged("not a manifest")
    if type(document["format"]) is not int or document["format"] != FORMAT:
        raise Damaged(f"format {document['format']!r} of the manifest is not {FORMAT}: written by a newer version?")
    if not isinstance(document["files"], dict):
        raise Damaged("the manifest lists no files")
    listed = {}
    for name, entry in document["files"].items():
        check_name(name, Damaged)
        if not name.endswith((".json", ".safetensors")) or name == MANIFEST:
            raise Damaged(f"{name!r} is no name for a file of ours")
        if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
            raise Damaged(f"the manifest's entry for {name} is incomplete")
        sha256, size = entry["sha256"], entry["size"]
        if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise Damaged(f"the manifest's SHA-256 of {name} is none")
        if type(size) is not int or size < 0:
            raise Damaged(f"the manifest's size of {name} is none")
        listed[name] = (sha256, size)
    if encode_document(document) != data:  # so a flipped bit anywhere in it is noticed
        raise Damaged("the manifest has changed since it was written")
    return listed


def encode_tensors(tensors: Mapping[str, Tensor | np.ndarray[Any, Any]]) -> bytes:
    """The bytes of a .safetensors file: the same tensors, the same bytes."""
    import safetensors.torch
    import torch

    own = {name: torch.as_tensor(value).detach().cpu().contiguous().clone() for name, value in tensors.items()}
    data = safetensors.torch.save(own)
    parse_header(data)  # what would not load again must not be saved
    return data


def parse_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, in memory of their own; raises Damaged."""
    import safetensors
    import safetensors.torch

    parse_header(data)
    try:
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise Damaged(f"not a safetensors file: {error}") from error


def parse_header(data: bytes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of each tensor, after checking that they fill the file exactly, without overlap or hole.

    >>> import numpy as np
    >>> parse_header(encode_tensors({"w": np.zeros((2, 3), np.uint8)}))
    {'w': ('U8', (2, 3))}
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, MAX_HEADER):
        raise Damaged("not a safetensors file: its header has no sensible length")
    header = parse_document(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise Damaged("not a safetensors file: its header is no table")
    header.pop("__metadata__", None)
    found, spans = {}, []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise Damaged(f"not a safetensors file: the entry of {name!r} is incomplete")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in BYTES:
            raise Damaged(f"tensor {name!r} has the foreign dtype {dtype!r}")
        for numbers in (shape, offsets):
            if not isinstance(numbers, list) or len(numbers) > 64 or any(type(n) is not int or n < 0 for n in numbers):
                raise Damaged(f"tensor {name!r} has an impossible shape or place")
        if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * BYTES[dtype]:
            raise Damaged(f"the shape of tensor {name!r} does not fit its size")
        found[name] = (dtype, tuple(shape))
        spans.append((offsets[0], offsets[1]))
    end = 0
    for begin, stop in sorted(spans):
        if begin != end:
            raise Damaged("the tensors of a safetensors file overlap or leave a hole")
        end = stop
    if end != len(data) - 8 - length:
        raise Damaged(f"a safetensors file of {len(data):,} bytes, not {end + 8 + length:,}")
    return found


def check_name(name: str, error: type[Exception] = ValueError) -> None:
    """A plain file name: nothing that leads to another directory, hides, or means something to a system."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) or BAD in name:
        raise error(f"{name[:100]!r} is no name for a file of ours")
