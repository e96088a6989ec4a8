"""Damage is noticed: a flipped bit, a cut file, files missing, added or swapped; and hostile files are refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from randpath.errors import Damaged
from randpath.storage import checkpoint


def save(directory: Path, name: str = "1", size: int = 5000) -> Path:
    generator = torch.Generator().manual_seed(int(name))
    tensors = {
        "weights": {"conv": torch.randn(size, generator=generator), "head": torch.randn(3, 7, generator=generator)},
        "memory": {"images": torch.randint(0, 256, (4, 8, 8, 1), dtype=torch.uint8, generator=generator)},
    }
    return checkpoint.save(directory, name, tensors, {"state": {"k": int(name), "path": [[True, False]]}, "lines": []})


def is_noticed(path: Path) -> bool:
    try:
        checkpoint.load(path)
    except Damaged as error:
        return str(path) in str(error)
    return False


def flip(directory: Path, count: int, seed: int) -> int:
    path, rng = save(directory), random.Random(seed)
    files = sorted(path.iterdir())
    noticed = 0
    for number in range(count):
        file = files[number % len(files)]  # small files as often as large ones
        good = file.read_bytes()
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        noticed += is_noticed(path)
        file.write_bytes(good)
    checkpoint.load(path)
    return noticed


def test_500_flipped_bits(tmp_path: Path) -> None:
    assert flip(tmp_path, 500, seed=1) == 500


@pytest.mark.faults
def test_10000_flipped_bits(tmp_path: Path) -> None:
    assert flip(tmp_path, 10_000, seed=2) == 10_000


def test_every_bit_of_the_manifest(tmp_path: Path) -> None:
    manifest = (save(tmp_path) / "MANIFEST.json").read_bytes()
    good = checkpoint.parse_manifest(manifest)
    for bit in range(8 * len(manifest)):
        bad = bytearray(manifest)
        bad[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(Damaged):  # or well-formed: but a hash, a size or a name will not fit the files
            assert checkpoint.parse_manifest(bytes(bad)) != good


def test_truncation_at_every_4_kib_and_at_the_ends(tmp_path: Path) -> None:
    path = save(tmp_path, size=50_000)
    cuts = 0
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        lengths = {0, 1, 7, 8, 9, *range(4096, len(good), 4096), len(good) - 1}
        for length in (length for length in lengths if length < len(good)):
            file.write_bytes(good[:length])
            assert is_noticed(path), (file.name, length)
            cuts += 1
        file.write_bytes(good + b"\n")
        assert is_noticed(path)
        file.write_bytes(good)
    checkpoint.load(path)
    assert cuts > 60


def test_every_pair_of_files_swapped(tmp_path: Path) -> None:
    one, two = save(tmp_path, "1"), save(tmp_path, "2")
    pairs = 0
    for a, b in itertools.combinations([*sorted(one.iterdir()), *sorted(two.iterdir())], 2):
        if a.read_bytes() == b.read_bytes():
            continue
        spare = tmp_path / "spare"
        for source, target in ((a, spare), (b, a), (spare, b)):
            source.rename(target)
        assert all(is_noticed(path) for path in {a.parent, b.parent}), (a, b)
        for source, target in ((a, spare), (b, a), (spare, b)):
            source.rename(target)
        pairs += 1
    assert pairs == 44  # of 10 files, less the one pair that is the same in both
    checkpoint.load(one)
    checkpoint.load(two)


def test_missing_added_and_foreign_entries(tmp_path: Path) -> None:
    path = save(tmp_path)
    for file in sorted(path.iterdir()):
        kept = file.rename(tmp_path / "kept")
        assert is_noticed(path)
        file.symlink_to(kept)
        assert is_noticed(path)
        file.unlink()
        file.mkdir()
        assert is_noticed(path)
        file.rmdir()
        if file.name != "MANIFEST.json":
            os.mkfifo(file)
            assert is_noticed(path)
            file.unlink()
        kept.rename(file)
    for extra in ("extra.json", "weights.safetensors.pkl", ".hidden", "Thumbs.db"):
        (path / extra).write_bytes(b"{}\n")
        assert is_noticed(path)
        (path / extra).unlink()
    (tmp_path / "2").symlink_to(path)
    assert is_noticed(tmp_path / "2")
    checkpoint.load(path)


def test_falls_back_over_several_damaged_ones_and_says_so(tmp_path: Path) -> None:
    for name in "123":
        save(tmp_path, name)
    for name in "23":
        (tmp_path / name / "weights.safetensors").write_bytes(b"")
    told: list[str] = []
    found = checkpoint.latest(tmp_path, told.append)
    assert found is not None
    assert found[0] == "1"
    assert [line.split("; ")[1] for line in told] == [
        f"set aside as {name}.bad, going back to the save before it" for name in "32"
    ]
    assert (tmp_path / "3.bad").is_dir()


# ---- what a stranger may send


class Canary:
    """An object that, were it ever unpickled, leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def tensor_file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def hostile_tensor_files(canary: Path) -> Iterator[tuple[str, bytes]]:
    import pickle

    buffer = io.BytesIO()
    torch.save({"w": Canary(canary)}, buffer)
    yield "a torch file", buffer.getvalue()
    yield "a pickle", pickle.dumps(Canary(canary))
    yield "a pickle after a length", tensor_file(pickle.dumps(Canary(canary)))
    buffer = io.BytesIO()
    np.save(buffer, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    yield "an array of objects", buffer.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/code/__torch__.py", "import os")
        archive.writestr("model/data.pkl", pickle.dumps(Canary(canary)))
    yield "TorchScript", buffer.getvalue()
    yield "nothing", b""
    yield "seven bytes", bytes(7)
    yield "no header", bytes(8)
    yield "a header of 2^64 bytes", tensor_file(b"{}", length=2**64 - 1)
    yield "a header longer than the file", tensor_file(b"{}", length=3)
    yield "a header over the limit", tensor_file(b"{}" + b" " * 3_000_000)
    yield "a bottomless header", tensor_file(b"[" * 1_000_000)
    yield "bottomless tables", tensor_file(b'{"a":' * 200_000)
    yield "a million empty lists", tensor_file(b"[" + b"[]," * 600_000 + b"[]]")
    yield "no JSON", tensor_file(b"{,}")
    yield "no UTF-8", tensor_file(b'{"\xff": 1}')
    yield "a list", tensor_file([1])
    yield "a number of 100,000 digits", tensor_file(b"9" * 100_000)
    yield "an infinite number", tensor_file(b'{"w": 1e999}')
    yield "NaN", tensor_file(b'{"w": NaN}')
    yield "a key twice", tensor_file(b'{"w": {}, "w": {}}')
    yield "an empty entry", tensor_file({"w": {}})
    yield "an entry too many", tensor_file({"w": {**entry(), "code": "x"}}, bytes(8))
    yield "an unknown dtype", tensor_file({"w": entry("O")}, bytes(8))
    yield "a dtype that is a list", tensor_file({"w": entry(["F32"])}, bytes(8))
    yield "a negative shape", tensor_file({"w": entry(shape=[-1, -2])}, bytes(8))
    yield "a shape that overflows", tensor_file({"w": entry(shape=[2**62, 2**62, 4])}, bytes(8))
    yield "a shape of truths", tensor_file({"w": entry(shape=[True, 2])}, bytes(8))
    yield "a shape of 10,000 numbers", tensor_file({"w": entry(shape=[1] * 10_000, offsets=[0, 4])}, bytes(4))
    yield "a shape larger than its data", tensor_file({"w": entry(shape=[3])}, bytes(8))
    yield "offsets the wrong way round", tensor_file({"w": entry(offsets=[8, 0])}, bytes(8))
    yield "offsets beyond the file", tensor_file({"w": entry(offsets=[8, 16])}, bytes(8))
    yield "three offsets", tensor_file({"w": entry(offsets=[0, 8, 8])}, bytes(8))
    yield "overlap", tensor_file({"w": entry(), "v": entry()}, bytes(8))
    yield "a hole", tensor_file({"w": entry(), "v": entry(offsets=[12, 20])}, bytes(20))
    yield "data behind the end", tensor_file({"w": entry()}, bytes(9))
    yield "no data", tensor_file({"w": entry()})


def write_with_manifest(
    path: Path, files: dict[str, bytes], manifest: Callable[[dict[str, Any]], object] = dict
) -> Path:
    """A directory whose manifest is right: whoever makes a hostile file can also make its hash."""
    path.mkdir()
    listed = {}
    for name, data in files.items():
        (path / name).write_bytes(data)
        listed[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    document = manifest({"format": 1, "files": listed})
    (path / "MANIFEST.json").write_bytes(
        document if isinstance(document, bytes) else checkpoint.encode_document(document)
    )
    return path


def renamed(name: object) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> object:
        return {"format": 1, "files": {name: next(iter(manifest["files"].values()))}}

    return change


HOSTILE_MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a path upwards": renamed("../outside.json"),
    "a path upwards in the middle": renamed("a/../../outside.json"),
    "an absolute path": renamed("/etc/outside.json"),
    "a Windows path": renamed("..\\outside.json"),
    "a drive": renamed("C:outside.json"),
    "a hidden file": renamed(".outside.json"),
    "a NUL": renamed("w\0.json"),
    "a newline": renamed("w\n.json"),
    "right to left": renamed("w\u202enosj.json"),
    "another kind of file": renamed("w.pkl"),
    "no kind of file": renamed("w"),
    "itself": renamed("MANIFEST.json"),
    "a name of 10,000 letters": renamed("w" * 10_000 + ".json"),
    "an empty name": renamed(""),
    "another format": lambda manifest: {**manifest, "format": 2},
    "a format that is True": lambda manifest: {**manifest, "format": True},
    "a format that is 1.0": lambda manifest: {**manifest, "format": 1.0},
    "no format": lambda manifest: {"files": manifest["files"]},
    "more than a manifest": lambda manifest: {**manifest, "code": "x"},
    "a list of files": lambda manifest: {**manifest, "files": list(manifest["files"])},
    "no hash": lambda manifest: {**manifest, "files": {"w.json": {"size": 1}}},
    "a short hash": lambda manifest: {**manifest, "files": {"w.json": {"size": 1, "sha256": "00"}}},
    "a size that is None": lambda manifest: {**manifest, "files": {"w.json": {"size": None, "sha256": "0" * 64}}},
    "a negative size": lambda manifest: {**manifest, "files": {"w.json": {"size": -1, "sha256": "0" * 64}}},
    "a huge size": lambda manifest: {**manifest, "files": {"w.json": {"size": 10**30, "sha256": "0" * 64}}},
    "spaces": lambda manifest: json.dumps(manifest, indent=3).encode(),
    "nothing": lambda manifest: b"",
    "3 MB": lambda manifest: b" " * 3_000_000,
    "bottomless": lambda manifest: b"[" * 1_000_000,
}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_hostile_tensor_files_are_refused(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    checkpoint.load(save(tmp_path))  # so that torch and safetensors are in memory
    refused = 0
    for name, data in hostile_tensor_files(canary):
        path = write_with_manifest(tmp_path / "hostile", {"w.safetensors": data})
        memory, begun = peak_megabytes(), time.process_time()
        assert is_noticed(path), name
        assert time.process_time() - begun < 2, name  # of CPU: the machine may be busy
        assert peak_megabytes() - memory < 64 + len(data) / 1e6, name
        shutil.rmtree(path)
        refused += 1
    assert refused >= 30
    assert not canary.exists()


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_hostile_manifests_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.json").write_bytes(b"1\n")
    path = write_with_manifest(tmp_path / "hostile", {"w.json": b"1\n"}, HOSTILE_MANIFESTS[name])
    with pytest.raises(Damaged):
        checkpoint.load(path)


def test_hostile_documents_are_refused(tmp_path: Path) -> None:
    for number, data in enumerate(
        [
            b"",
            b"[" * 10**6,
            b'{"a":' * 10**5,
            b"NaN",
            b"-Infinity",
            b"1e400",
            b"\xff",
            b"'",
            b"9" * 10**5,
            b'{"a":1,"a":2}',
        ]
    ):
        path = write_with_manifest(tmp_path / str(number), {"w.json": data})
        with pytest.raises(Damaged):
            checkpoint.load(path)


# ---- a seeded mutator of bytes

PIECES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\\",
        b"\0",
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b"\xff",
        b"9" * 30,
    ),
    *(b"[" * 2000, b"../", b'"w"', b'"shape"', b"F64", b"18446744073709551615", b"\\u0000", b"\\ud800", b" "),
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    work = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(work) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(work):
            work[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(work):
            work[at] = rng.randrange(256)
        elif kind == 2:
            del work[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 3:
            work[at:at] = rng.choice(PIECES)
        elif kind == 4:
            work[at:at] = work[rng.randrange(len(work) + 1) :][:20]
        else:
            work = work[:at] if rng.random() < 0.3 else work
    if rng.random() < 0.5 and len(work) > 8:  # a length that fits, so that more of them reach the parser
        text_end = bytes(work).rfind(b"}") + 1
        if text_end > 8:
            work[:8] = struct.pack("<Q", text_end - 8)
    return bytes(work)


def fuzz(count: int, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    tensors = checkpoint.encode_tensors(
        {"conv.weight": torch.zeros(2, 3), "n": torch.tensor(3), "images": torch.zeros(1, 2, 2, 1, dtype=torch.uint8)}
    )
    manifest = checkpoint.encode_document(
        {"format": 1, "files": {f"{key}.safetensors": {"sha256": "0" * 64, "size": 9} for key in ("a", "b")}}
    )
    checkpoint.parse_tensors(tensors)
    checkpoint.parse_manifest(manifest)
    memory, slowest = peak_megabytes(), 0.0
    counts = {"refused": 0, "read": 0}
    for number in range(count):
        parse, good = ((checkpoint.parse_tensors, tensors), (checkpoint.parse_manifest, manifest))[number % 2]
        data = mutated(good, rng)
        begun = time.perf_counter()
        try:
            parse(data)
            counts["read"] += 1
        except Damaged:  # and nothing else
            counts["refused"] += 1
        slowest = max(slowest, time.perf_counter() - begun)
    assert slowest < 2
    assert peak_megabytes() - memory < 64
    return counts


def test_20000_mutated_manifests_and_headers() -> None:
    assert sum(fuzz(20_000, seed=3).values()) == 20_000


@pytest.mark.faults
def test_1000000_mutated_manifests_and_headers() -> None:
    counts = fuzz(1_000_000, seed=4)
    assert sum(counts.values()) == 1_000_000
    assert counts["read"] > 1000  # not all are refused at the first byte
