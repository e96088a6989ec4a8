"""Model directories that an enemy, a bad disk or a careless copy made: exit 65, and nothing is executed."""

import hashlib
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from randpath.commands.app import main
from randpath.model.classifier import PathClassifier
from randpath.storage import checkpoint
from tests.pictures import pixels

VERSION = Path("versions") / "000002"
WEIGHTS, DOCUMENT = VERSION / "weights.safetensors", VERSION / "model.json"


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(os.environ["RANDPATH_BOMB"]),)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Path:
    """A small model of pictures with two versions, and a teacher."""
    place = tmp_path_factory.mktemp("healthy") / "model"
    X = np.stack([pixels(i) for i in range(24)])
    model = PathClassifier(epochs=1, threads=1, modules=2, width=8, candidates=1)
    model.fit(X[:16], ["a"] * 8 + ["b"] * 8).save(place)
    model.partial_fit(X[16:], ["c"] * 8).save(place)
    return place


# ---- ways to spoil it: each gets a copy of the model


def resealed(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """Change files of the version, then write a manifest that fits: the enemy knows how SHA-256 works."""

    def spoil(model: Path) -> None:
        change(model)
        listed = {
            path.name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size": path.stat().st_size}
            for path in (model / VERSION).iterdir()
            if path.name != checkpoint.MANIFEST
        }
        manifest = checkpoint.encode_document({"format": checkpoint.FORMAT, "files": listed})
        (model / VERSION / checkpoint.MANIFEST).write_bytes(manifest)

    return spoil


def document(*keys: str | int, value: Any) -> Callable[[Path], None]:
    """model.json with another value at that place."""

    def change(model: Path) -> None:
        found = json.loads((model / DOCUMENT).read_text())
        inner = found
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        _fresh(model / DOCUMENT, (json.dumps(found, sort_keys=True) + "\n").encode())

    return resealed(change)


def tensors(file: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A .safetensors file with other tensors, well-formed."""

    def rewrite(model: Path) -> None:
        found = checkpoint.read_tensors(model / VERSION / file)
        change(found)
        _fresh(model / VERSION / file, checkpoint.encode_tensors(found))

    return resealed(rewrite)


def header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A forged header in front of the weights' bytes."""

    def rewrite(model: Path) -> None:
        data = (model / WEIGHTS).read_bytes()
        length = int.from_bytes(data[:8], "little")
        found = json.loads(data[8 : 8 + length])
        change(found)
        text = json.dumps(found).encode()
        _fresh(model / WEIGHTS, struct.pack("<Q", len(text)) + text + data[8 + length :])

    return resealed(rewrite)


def raw(file: Path, make: Callable[[bytes], bytes], *, seal: bool = False) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        _fresh(model / file, make((model / file).read_bytes()))

    return resealed(change) if seal else change


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def rewrite(model: Path) -> None:
        path = model / VERSION / checkpoint.MANIFEST
        found = json.loads(path.read_text())
        change(found)
        _fresh(path, checkpoint.encode_document(found))

    return rewrite


def _fresh(path: Path, data: bytes) -> None:
    """Write a new file: the old one may be hard-linked from the version before."""
    path.unlink()
    path.write_bytes(data)


def _flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def _out_of_reach(found: dict[str, Any]) -> None:
    found["files"]["../../../../etc/passwd.json"] = found["files"].pop("model.json")


def _first(found: dict[str, Any]) -> str:
    return sorted(name for name in found if name.startswith("layers"))[0]


def _overlap(found: dict[str, Any]) -> None:
    a, b = [entry for name, entry in found.items() if name.startswith("head")]
    a["data_offsets"], b["data_offsets"] = b["data_offsets"], b["data_offsets"]


def _shape(found: dict[str, Any]) -> None:
    found["head.bias"]["shape"] = [2**40]


def _wide(found: dict[str, Any]) -> None:
    found["head.weight"] = found["head.weight"][:, :-1].clone()


def _nan(found: dict[str, Any]) -> None:
    found[_first(found)].fill_(float("nan"))


def _label(found: dict[str, Any]) -> None:
    found["labels"][0] = 99


def _negative(found: dict[str, Any]) -> None:
    found["labels"][0] = -1


def _one_fewer(found: dict[str, Any]) -> None:
    found["labels"] = found["labels"][:-1].clone()


def _odd_pixels(found: dict[str, Any]) -> None:
    found["items"] = found["items"][:, :-1].clone()


def _as_link(model: Path) -> None:
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).symlink_to("/etc/passwd")


def _version_link(model: Path) -> None:
    (model / VERSION).rename(model / "elsewhere")
    (model / VERSION).symlink_to(model / "elsewhere")


def _bomb(model: Path) -> None:
    _fresh(model / WEIGHTS, pickle.dumps(Bomb()))


def _torch_zip(model: Path) -> None:
    import torch

    torch.save({"w": torch.ones(2)}, model / "x")
    _fresh(model / WEIGHTS, (model / "x").read_bytes())
    (model / "x").unlink()


HOSTILE: dict[str, Callable[[Path], None]] = {
    "pickle renamed, not in the manifest": _bomb,
    "pickle renamed, manifest forged": resealed(_bomb),
    "torch.save renamed": resealed(_torch_zip),
    "pickle added": lambda model: (model / VERSION / "extra.pkl").write_bytes(pickle.dumps(Bomb())) and None,
    "pickle as the document": resealed(lambda model: _fresh(model / DOCUMENT, pickle.dumps(Bomb()))),
    "flipped bit in the weights": raw(WEIGHTS, _flip),
    "flipped bit in the exemplars": raw(VERSION / "memory_train.safetensors", _flip),
    "flipped bit in the document": raw(DOCUMENT, _flip),
    "flipped bit in the manifest": raw(VERSION / "MANIFEST.json", _flip),
    "weights cut short": raw(WEIGHTS, lambda data: data[:-1]),
    "weights empty": raw(WEIGHTS, lambda data: b"", seal=True),
    "weights missing": lambda model: (model / WEIGHTS).unlink(),
    "document missing": lambda model: (model / DOCUMENT).unlink(),
    "manifest missing": lambda model: (model / VERSION / "MANIFEST.json").unlink(),
    "weights missing, manifest forged": resealed(lambda model: (model / WEIGHTS).unlink()),
    "teacher missing, manifest forged": resealed(lambda model: (model / VERSION / "teacher.safetensors").unlink()),
    "weights are a link": _as_link,
    "version is a link": _version_link,
    "../ in the manifest": manifest(_out_of_reach),
    "negative size in the manifest": manifest(lambda found: found["files"]["model.json"].update(size=-1)),
    "manifest of a newer format": manifest(lambda found: found.update(format=99)),
    "header of 100 MB": raw(WEIGHTS, lambda data: struct.pack("<Q", 100_000_000) + b" " * 3_000_000, seal=True),
    "header longer than the file": raw(WEIGHTS, lambda data: struct.pack("<Q", 2**62) + data[8:], seal=True),
    "overlapping offsets": header(_overlap),
    "offsets past the end": header(lambda found: found["head.bias"].update(data_offsets=[0, 2**50])),
    "forged shape": header(_shape),
    "foreign dtype": header(lambda found: found["head.bias"].update(dtype="F8_E5M2")),
    "tensor twice": raw(WEIGHTS, lambda data: data.replace(b"head.bias", b"head.weig"), seal=True),
    "tensor of another width": tensors("weights.safetensors", _wide),
    "tensor missing": tensors("weights.safetensors", lambda found: found.__delitem__("head.bias")),
    "foreign tensor": tensors("weights.safetensors", lambda found: found.update(more=found["head.bias"].clone())),
    "weights of NaN": tensors("weights.safetensors", _nan),
    "exemplar of an unknown class": tensors("memory_train.safetensors", _label),
    "exemplar of class -1": tensors("memory_train.safetensors", _negative),
    "fewer labels than exemplars": tensors("memory_train.safetensors", _one_fewer),
    "exemplars of another size": tensors("memory_train.safetensors", _odd_pixels),
    "network of a billion channels": document("plan", "width", value=10**9),
    "a million modules": document("plan", "modules", value=10**6),
    "a million threads": document("plan", "threads", value=10**6),
    "picture of a terapixel": document("plan", "shape", value=[10**6, 10**6, 3]),
    "standard deviation of zero": document("plan", "std", value=[0.0, 1.0, 1.0]),
    "backbone that is a module path": document("plan", "backbone", value="os.system"),
    "another backbone": document("plan", "backbone", value="compact"),
    "plan with an unknown entry": document("plan", "hook", value="x"),
    "plan that is a list": document("plan", value=[]),
    "path of another network": document("method", "P", value=[[1, 0, 1]]),
    "path of text": document("method", "P", value="abc"),
    "more names than classes": document("names", value=["a", "b", "c", "d"]),
    "names not unique": document("names", value=["a", "a", "b"]),
    "name that is a list": document("names", value=["a", "b", [1]]),
    "temperature of zero": document("temperature", value=0.0),
    "power of no number": document("power", value=-1.0),
    "model.json of a newer format": document("format", value=2),
    "model.json that is no table": resealed(lambda model: _fresh(model / DOCUMENT, b"[]\n")),
    "model.json nested without end": resealed(lambda model: _fresh(model / DOCUMENT, b"[" * 200_000)),
    "history without an end": document("history", 1, "classes_added", value=[]),
    "history of another network": document("history", 0, "path", value=[[1]]),
    "history that is text": document("history", value="abc"),
    "history without a calibration": document("history", 1, value={"k": 2}),
    "saturation that is text": document("history", 1, "saturation", value="full"),
    "what dropped is a list": document("history", 1, "dropped", value=["a"]),
    "a confusion of three texts": document("history", 1, "confusions", value=[["a", "b", "c"]]),
    "origins of no class": document("history", 1, "origins", value=[[]]),
    "origins of too many classes": document("history", 1, "origins", value=[["1.0"], ["1.1"]]),
    "pointer to another directory": raw(Path("current.json"), lambda data: b'{"version": "../../x"}\n'),
    "pointer to a missing version": raw(Path("current.json"), lambda data: b'{"version": 7}\n'),
    "pointer below zero": raw(Path("current.json"), lambda data: b'{"version": -2}\n'),
    "pointer missing": lambda model: (model / "current.json").unlink(),
    "pointer of a gigabyte of nothing": raw(Path("current.json"), lambda data: b" " * 70_000_000),
}


def ask(capsys, *typed) -> tuple[int, dict, str]:
    with pytest.raises(SystemExit) as left:
        main([*map(str, typed), "--json"])
    said = capsys.readouterr()
    return left.value.code, json.loads(said.out), said.err


@pytest.mark.parametrize("name", HOSTILE)
def test_is_refused_and_a_good_version_answers(healthy, tmp_path, monkeypatch, capsys, name):
    model, bomb = tmp_path / "model", tmp_path / "bomb"
    monkeypatch.setenv("RANDPATH_BOMB", str(bomb))
    shutil.copytree(healthy, model)
    HOSTILE[name](model)
    code, told, warned = ask(capsys, "info", model)
    assert code == 0
    while code == 0:  # a good version answers, and stderr says so, until there is none
        assert f"{model} is damaged" in warned or f"{model / 'current.json'} " in warned
        assert f"Version {told['version']} is used" in warned
        shutil.rmtree(model / "versions" / f"{told['version']:06d}")
        code, told, warned = ask(capsys, "info", model)
    assert (code, bomb.exists()) == (65, False), told
    assert set(told) == {"error", "where", "kept", "next"}
    assert told["error"]


def test_a_writer_sets_the_damaged_version_aside(healthy, tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(healthy, model)
    known = {path: path.read_bytes() for path in (model / "versions" / "000001").iterdir()}
    HOSTILE["flipped bit in the weights"](model)
    code, told, warned = ask(capsys, "rename", model, "a", "zero")
    assert (code, told["version"]) == (0, 2)
    assert "Version 1 is used instead" in warned
    assert sorted(path.name for path in (model / "versions").iterdir()) == ["000001", "000002", "000002.bad"]
    assert known == {path: path.read_bytes() for path in (model / "versions" / "000001").iterdir()}
    code, told, warned = ask(capsys, "info", model)
    assert (code, told["version"], "zero" in told["classes"], warned) == (0, 2, True, "")


def test_rollback_leaves_a_damaged_version_behind(healthy, tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(healthy, model)
    HOSTILE["flipped bit in the weights"](model)
    assert ask(capsys, "rollback", model)[0] == 0
    code, told, warned = ask(capsys, "info", model)
    assert (code, told["version"], warned) == (0, 1, "")


def test_there_are_at_least_thirty_cases():
    assert len(HOSTILE) >= 30
