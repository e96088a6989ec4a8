"""TensorBoard event files of a run, written by hand: records of scalars need no library.

    tensorboard --logdir RUN/tensorboard

A file holds records: length (8 bytes), masked CRC-32C of it (4), data, masked CRC-32C of the data (4). The data is an
Event message of Protocol Buffers: wall_time = 1, step = 2, file_version = 3, summary = 5 {value = 1 {tag = 1,
simple_value = 2}}.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from randpath.report.reading import RunFiles
from randpath.storage import checkpoint

Scalar = tuple[str, int, float]  # tag, step, value


def write_events(run: RunFiles) -> Path:
    """One file for each task that is done, so that a later call adds to what a watcher has read already."""
    folder = run.directory / "tensorboard"
    for line in run.tasks:
        k = line["k"]
        file = folder / f"events.out.tfevents.{k:010d}.randpath"
        if not file.exists():
            data = _record(_double(1, 0.0) + _bytes(3, b"brain.Event:2"))
            checkpoint.replace_file(file, data + b"".join(_record(_event(scalar)) for scalar in scalars(run, k)))
    return folder


def scalars(run: RunFiles, k: int) -> Iterator[Scalar]:
    """What a task measured: over tasks, and over the epochs of each candidate."""
    line = run.tasks[k - 1]
    for name in ("accuracy", "forgetting", "saturation", "parameters", "parameters_trained", "megabytes", "flops"):
        if line.get(name) is not None:
            yield f"task/{name}", k, float(line[name])
    for j, accuracy in enumerate(line["accuracy_by_task"], start=1):
        yield f"accuracy_by_task/{j}", k, float(accuracy)
    for epoch in run.epochs:
        if epoch["k"] == k:
            of = f"_{epoch['fit']}" if "fit" in epoch else ""  # of a task that has several
            of += f"_member_{epoch['member']}" if "member" in epoch else ""
            for name in ("loss_ce", "loss_dist", "validation", "lr", "phi"):
                if epoch.get(name) is not None:
                    yield f"{name}/task_{k}{of}_candidate_{epoch['candidate']}", epoch["epoch"], float(epoch[name])


def _event(scalar: Scalar) -> bytes:
    tag, step, value = scalar
    one = _bytes(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
    return _double(1, float(step)) + bytes([2 << 3]) + _varint(step) + _bytes(5, _bytes(1, one))


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """
    >>> _varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Castagnoli's cyclic redundancy check.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
