"""A disk that fails at any operation of a commit: the last good save is intact, and what failed can be done again."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shim import Counter, installed

from randpath.errors import DiskTrouble
from randpath.storage import checkpoint

CODES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PAUSES", (0.0, 0.0))


def content(k: int) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, object]]:
    return {"weights": {"w": torch.full((50,), float(k))}, "memory": {"m": torch.arange(9)}}, {"state": {"k": k}}


def cycle(run: Path, k: int) -> None:
    """What the end of a task does to the disk."""
    name = f"{k:04d}"
    if name not in checkpoint.names(run / "checkpoints"):
        earlier = run / "checkpoints" / f"{k - 1:04d}"
        checkpoint.save(run / "checkpoints", name, *content(k), link=earlier if earlier.exists() else None)
    checkpoint.prune(run / "checkpoints", keep=2)
    checkpoint.write_lines(run / "metrics.jsonl", [{"k": i} for i in range(1, k + 1)])
    checkpoint.discard(run / "work")


def begin(run: Path) -> None:
    for k in (1, 2):
        cycle(run, k)
    (run / "work" / "fit").mkdir(parents=True)
    (run / "work" / "fit" / "file").write_bytes(b"1")
    (run / "checkpoints" / ".tmp-0003").mkdir()  # an earlier crash


def number_of_operations(tmp_path: Path) -> int:
    begin(tmp_path / "count")
    counter = Counter()
    with installed(counter):
        cycle(tmp_path / "count", 3)
    return counter.count


def test_every_operation_fails_once_and_for_ever(tmp_path: Path) -> None:
    total = number_of_operations(tmp_path)
    assert total > 15
    faults = 0
    for n in range(1, total + 1):
        for code in CODES:
            for sticky in (False, True):
                run = tmp_path / f"{n}-{code}-{sticky}"
                begin(run)
                with installed(Counter(n, code, sticky)):
                    if sticky:  # a disk that fails for ever cannot be overlooked
                        with pytest.raises(DiskTrouble, match=rf"{run}.* bytes needed, "):
                            cycle(run, 3)
                    else:  # one that fails once need not stop anybody
                        cycle(run, 3)
                faults += 1
                found = checkpoint.latest(run / "checkpoints")  # warnings are errors: nothing looks damaged
                assert found is not None
                name, saved = found
                assert name in ("0002", "0003")
                k = int(name)
                assert saved.documents["state"] == {"k": k}
                assert torch.equal(saved.tensors["weights"]["w"], content(k)[0]["weights"]["w"])
                assert len(checkpoint.read_lines(run / "metrics.jsonl")) in (2, 3)
                cycle(run, 3)  # there is room again
                assert checkpoint.names(run / "checkpoints") == ["0002", "0003"]
                assert not list(run.rglob(".tmp-*"))
                assert len(checkpoint.read_lines(run / "metrics.jsonl")) == 3
    assert faults == total * len(CODES) * 2


def test_a_file_size_limit_is_noticed(tmp_path: Path) -> None:
    code = """
import resource, sys, torch
from pathlib import Path
from randpath.errors import DiskTrouble
from randpath.storage import checkpoint
checkpoint.PAUSES = (0, 0)
place = Path(sys.argv[1])
checkpoint.save(place, "1", {"w": {"w": torch.zeros(10)}}, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    checkpoint.save(place, "2", {"w": {"w": torch.zeros(10_000)}}, {})
except DiskTrouble as trouble:
    assert "File too large; 40,0" in str(trouble), trouble
    assert checkpoint.latest(place)[0] == "1"
    sys.exit(74)
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 74


def test_a_full_filesystem_is_noticed_and_gone_on_with(tmp_path: Path) -> None:
    code = """
import sys, torch
from pathlib import Path
from randpath.errors import DiskTrouble
from randpath.storage import checkpoint
checkpoint.PAUSES = (0, 0)
place = Path(sys.argv[1])
checkpoint.save(place, "1", {"w": {"w": torch.zeros(10_000)}}, {})
(place / "ballast").write_bytes(bytes(150_000))
try:
    checkpoint.save(place, "2", {"w": {"w": torch.ones(20_000)}}, {})
    sys.exit("was not full")
except DiskTrouble as trouble:
    assert "No space left on device; 80,0" in str(trouble), trouble
assert checkpoint.latest(place)[0] == "1"
(place / "ballast").unlink()
checkpoint.save(place, "2", {"w": {"w": torch.ones(20_000)}}, {})
assert checkpoint.latest(place)[1].tensors["w"]["w"].sum() == 20_000
sys.exit(74)
"""
    inside = 'mount -t tmpfs -o size=256k none "$2" && exec "$0" -c "$1" "$2"'
    shell = ["unshare", "-Urm", "sh", "-c", inside, sys.executable, code, str(tmp_path)]
    try:
        done = subprocess.run(shell, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if "Operation not permitted" in done.stderr or "ermission denied" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 74, done.stderr


def test_a_vanished_directory_is_made_again(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    checkpoint.remove(tmp_path / "run")
    cycle(tmp_path / "run", 3)
    (tmp_path / "file").touch()
    with pytest.raises(DiskTrouble, match="bytes needed"):
        cycle(tmp_path / "file" / "below", 1)
