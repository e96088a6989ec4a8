"""Threads that wait asleep where others want the cores, and how the user's own setting wins."""

import os
import subprocess
import sys

import pytest

from randpath.engines import waiting
from randpath.engines.processes import Processes


@pytest.fixture
def nothing_set(monkeypatch):
    for name in waiting.OWN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(waiting.os, "sched_getaffinity", lambda _: range(2), raising=False)
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 2)


def looks(monkeypatch, *runnable: int) -> None:
    """What the next looks at the machine see, this process included."""
    seen = iter(runnable)
    monkeypatch.setattr(waiting, "_runnable", lambda: next(seen))


def test_a_lone_run_on_a_quiet_machine_spins(nothing_set, monkeypatch):
    looks(monkeypatch, 1, 1, 2, 1, 1)  # a passing one is no company
    waiting.choose()
    assert "OMP_WAIT_POLICY" not in os.environ


def test_beside_another_process_threads_sleep(nothing_set, monkeypatch):
    looks(monkeypatch, 2, 2, 1, 2, 3)
    waiting.choose()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_many_cores_have_room_for_both(nothing_set, monkeypatch):
    monkeypatch.setattr(waiting.os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 16)
    looks(monkeypatch, *[13] * 5)
    waiting.choose()
    assert "OMP_WAIT_POLICY" not in os.environ
    looks(monkeypatch, *[14] * 5)
    waiting.choose()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "1000")])
def test_the_users_own_setting_wins(nothing_set, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    looks(monkeypatch, *[9] * 5)
    waiting.choose()
    with waiting.asleep():
        assert {n: os.environ[n] for n in waiting.OWN if n in os.environ} == {name: value}


def test_the_real_machine_can_be_looked_at():
    assert waiting.busy_cores() >= 0


def variable(name, tick):
    return os.environ.get(name)


def test_worker_processes_sleep_and_this_one_is_left_as_it_was(nothing_set):
    with Processes(1) as pool:
        assert list(pool.map(variable, ["OMP_WAIT_POLICY"])) == ["PASSIVE"]
    assert "OMP_WAIT_POLICY" not in os.environ


FIT = """
import hashlib, torch
from randpath.network.backbones import Backbone
from randpath.network.path import Path
torch.set_num_threads(2)
net = Backbone("compact", (16, 16, 3), M=1, width=8).build(0)
net.grow_head(10)
g = torch.Generator().manual_seed(0)
x, y = torch.randn(32, 3, 16, 16, generator=g), torch.randint(10, (32,), generator=g)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x, Path.full(net.L, 1)), y).backward()
    optimizer.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
"""


def test_both_ways_give_the_same_bytes():
    ways = ({"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "1000"})
    printed = [
        subprocess.run(
            [sys.executable, "-c", FIT], env={**os.environ, **way}, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for way in ways
    ]
    assert printed[0] == printed[1]
    assert len(printed[0].strip()) == 64
