"""Threads that wait spinning, asleep, or as randpath chooses: what a `compact` step on two of them costs.

    python benchmarks/threads.py [--steps 40] [--rounds 5]

Three cases: a lone run; a run beside another busy process; three processes that one command starts. In each, all three
ways take turns in one run, so that a change of the machine's mood meets them alike. On a machine that others use, the
lone run is none, and the program says so. Fails if the choice is more than 1.1 times slower than the better way.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from randpath.engines import waiting

STEP = """
import time
from randpath.engines import waiting
if {chosen}: waiting.choose()
import torch
from randpath.network.backbones import Backbone
from randpath.network.path import Path
torch.set_num_threads(2)
net = Backbone("compact", (32, 32, 3), M=1, attention="none").build(0)
net.grow_head(10)
net.train()
P = Path.full(net.L, 1)
g = torch.Generator().manual_seed(0)
x, y = torch.randn(32, 3, 32, 32, generator=g), torch.randint(10, (32,), generator=g)
def step():
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(x, P), y).backward()
for _ in range(5): step()
began = time.monotonic()
for _ in range({steps}): step()
print((time.monotonic() - began) / {steps} * 1e3)
"""
WAYS = ("spinning", "asleep", "chosen")


def milliseconds(way: str, steps: int, processes: int) -> float:
    """Of one step, the mean over processes that run at once."""
    environment = {name: value for name, value in os.environ.items() if name not in waiting.OWN}
    if way == "asleep" or (way == "chosen" and processes > 1):  # as engines/processes.py starts its workers
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    code = STEP.format(steps=steps, chosen=way == "chosen")
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(processes)
    ]
    return statistics.mean(float(process.communicate()[0]) for process in started)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    others = waiting.busy_cores()
    if others > 0:
        print(f"{others:g} threads of other processes are running: these figures are not those of a quiet machine")
    print(f"case | {' | '.join(f'{way}, ms' for way in WAYS)} | chosen / better")
    worst = 0.0
    for case, processes, beside in (("a lone run", 1, 0), ("beside a busy process", 1, 1), ("three at once", 3, 0)):
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        with busy(beside):
            for _ in range(options.rounds):
                for way in WAYS:
                    found[way].append(milliseconds(way, options.steps, processes))
        ms = {way: statistics.median(times) for way, times in found.items()}
        ratio = ms["chosen"] / min(ms["spinning"], ms["asleep"])
        worst = max(worst, ratio)
        print(f"{case} | {' | '.join(f'{ms[way]:.0f}' for way in WAYS)} | {ratio:.2f}", flush=True)
    if worst > 1.1:
        sys.exit(f"the choice is {worst:.2f} times slower than the better of the two")


if __name__ == "__main__":
    main()
