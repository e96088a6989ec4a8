"""Save and load, the lock; what is done when a disk fails or a file is damaged is in tests/faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from randpath.errors import Damaged, DiskTrouble, Locked
from randpath.storage import checkpoint
from randpath.storage.lock import lock

TENSORS = {
    "weights": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7), "none": torch.zeros(0, 3)},
    "memory": {"images": np.arange(64, dtype=np.uint8).reshape(1, 8, 8), "half": torch.ones(3, dtype=torch.bfloat16)},
}
DOCUMENTS = {"state": {"epoch": 3, "names": ["é", "猫"], "loss": 0.1 + 0.2}, "lines": [{"k": 1}]}


def save(directory: Path, name: str = "000001") -> Path:
    return checkpoint.save(directory, name, TENSORS, DOCUMENTS)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = checkpoint.load(save(tmp_path / "new" / "place"))
    assert saved.documents == DOCUMENTS
    assert saved.tensors.keys() == TENSORS.keys()
    for group, tensors in TENSORS.items():
        assert saved.tensors[group].keys() == tensors.keys()
        for name, tensor in tensors.items():
            loaded = saved.tensors[group][name]
            assert torch.equal(loaded, torch.as_tensor(tensor))
            assert loaded.dtype == torch.as_tensor(tensor).dtype
            loaded.fill_(1)  # its own, writable memory


def test_the_same_content_is_the_same_bytes(tmp_path: Path) -> None:
    one, other = save(tmp_path / "one"), save(tmp_path / "other")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


def test_tensors_that_share_memory_or_are_views_are_saved_by_value(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    path = checkpoint.save(tmp_path, "1", {"w": {"whole": whole, "again": whole, "view": whole.T[1:]}}, {})
    loaded = checkpoint.load(path).tensors["w"]
    assert torch.equal(loaded["again"], whole)
    assert torch.equal(loaded["view"], whole.T[1:])


def test_what_cannot_be_loaded_again_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        checkpoint.save(tmp_path, "1", {}, {"state": float("nan")})
    with pytest.raises(Damaged, match="foreign dtype"):
        checkpoint.save(tmp_path, "1", {"w": {"c": torch.zeros(2, dtype=torch.complex64)}}, {})
    for name in ("", "..", "a/b", ".hidden", "1.bad", "a" * 200, "nul\0"):
        with pytest.raises(ValueError, match="no name for a file"):
            checkpoint.save(tmp_path, name, {}, {})
    assert checkpoint.latest(tmp_path) is None


def test_a_name_is_used_once(tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(ValueError, match="used once"):
        save(tmp_path)


def test_unchanged_files_are_linked(tmp_path: Path) -> None:
    first = save(tmp_path)
    second = checkpoint.save(tmp_path, "000002", TENSORS, {**DOCUMENTS, "state": 4}, link=first)
    assert (first / "weights.safetensors").samefile(second / "weights.safetensors")
    assert not (first / "state.json").samefile(second / "state.json")
    checkpoint.prune(tmp_path, keep=1)
    assert checkpoint.load(second).documents["state"] == 4


def test_the_newest_good_one_is_found(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "nowhere") is None
    for epoch in (1, 2, 3):
        checkpoint.save(tmp_path, f"{epoch:06d}", {}, {"epoch": epoch})
    (tmp_path / "000003" / "epoch.json").write_bytes(b"4\n")
    with pytest.warns(UserWarning, match=r"000003/epoch\.json has changed .* set aside as 000003\.bad"):
        found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == "000002"
    checkpoint.save(tmp_path, "000003", {}, {"epoch": 3})  # the name is free again
    assert checkpoint.names(tmp_path) == ["000001", "000002", "000003"]
    assert (tmp_path / "000003.bad" / "epoch.json").exists()
    for name in checkpoint.names(tmp_path):
        (tmp_path / name / "epoch.json").unlink()
    told: list[str] = []
    for _ in range(2):  # and the same the second time, when all are set aside already
        with pytest.raises(Damaged, match=r"every save .* 000001\.bad, 000002\.bad, 000003\.bad, 000003\.bad2"):
            checkpoint.latest(tmp_path, told.append)
    assert len(told) == 3


def test_prune_keeps_the_last_and_the_named(tmp_path: Path) -> None:
    for epoch in range(6):
        checkpoint.save(tmp_path, f"{epoch}", {}, {})
    checkpoint.prune(tmp_path, keep=2, always=["1"])
    assert checkpoint.names(tmp_path) == ["1", "4", "5"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "5"]
    checkpoint.prune(tmp_path, keep=0)
    assert checkpoint.names(tmp_path) == []


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-000001").mkdir()
    (tmp_path / ".tmp-000001" / "weights.safetensors").write_bytes(b"half")
    assert checkpoint.latest(tmp_path) is None
    save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]


def test_lines_documents_and_tensors_on_their_own(tmp_path: Path) -> None:
    rows = [{"k": 1, "name": "é"}, {"k": 2, "name": None}]
    checkpoint.write_lines(tmp_path / "deep" / "metrics.jsonl", rows)
    checkpoint.write_lines(tmp_path / "deep" / "metrics.jsonl", rows)
    assert checkpoint.read_lines(tmp_path / "deep" / "metrics.jsonl") == rows
    checkpoint.write_document(tmp_path / "a.json", DOCUMENTS)
    assert checkpoint.read_document(tmp_path / "a.json") == DOCUMENTS
    checkpoint.write_tensors(tmp_path / "t.safetensors", {"x": np.arange(3)})
    assert checkpoint.read_tensors(tmp_path / "t.safetensors")["x"].tolist() == [0, 1, 2]
    assert not list(tmp_path.rglob(".tmp-*"))


def test_no_room_is_said_with_figures(tmp_path: Path) -> None:
    with pytest.raises(DiskTrouble, match=re.escape("1,000,000,000,000,000,000 bytes needed, ")):
        checkpoint.need_space(tmp_path, 10**18)
    checkpoint.need_space(tmp_path / "not" / "yet", 1)


HOLD = "import sys, time; from pathlib import Path; from randpath.storage.lock import lock\n"
HOLD += "with lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def test_the_second_writer_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    begun = time.monotonic()
    with pytest.raises(Locked, match=rf"process {holder.pid} on \S+, since \d{{4}}-.* is working in {tmp_path}"):
        lock(tmp_path).__enter__()
    assert time.monotonic() - begun < 1 * max(1.0, os.getloadavg()[0])
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with lock(tmp_path):  # freed by death
        assert json.loads((tmp_path / "lock.json").read_text())["pid"] == os.getpid()
        with pytest.raises(Locked), lock(tmp_path):  # also to ourselves
            pass
    with lock(tmp_path):
        pass


def test_of_two_that_start_together_one_gets_the_lock(tmp_path: Path) -> None:
    for pair in range(3):
        command = [sys.executable, "-c", HOLD.replace("60", "1.5"), str(tmp_path / str(pair))]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
        assert sorted(one.communicate()[0] for one in both) == [b"", b"held\n"]


def test_the_lock_comes_before_torch() -> None:
    modules = "randpath.storage.checkpoint, randpath.storage.lock, randpath.engines.processes"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
