"""A step of a late task with freed memory given back to the system, as glibc does by itself, and kept, in one run.

    python benchmarks/allocation.py [--record docs/results/examples/allocation.json]

The step: `compact` of width 48 in mixed precision where the CPU has it, frozen lanes beside one that learns, on one
thread. Both ways take turns, each in a process of its own, so that a change of the machine's mood meets them alike.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from randpath.bench.provenance import commit, environment

STEP = """
import resource, torch
import torch.nn.functional as F
from randpath.engines.allocation import keep_freed_memory
from randpath.engines.device import lacks_bfloat16
from randpath.learning.train import Training, precision
from randpath.network.backbones import Backbone
from randpath.network.fold import fold
from randpath.network.path import Path
if {keep}: keep_freed_memory()
torch.set_num_threads(1)
net = Backbone("compact", (32, 32, 3), 10, "none", 48, "whiten", "gelu", "lanes").build(0)
net.grow_head(100)
lanes = lambda first, last: Path(tuple(tuple(first <= m < last for m in range(10)) for _ in range(net.L)))
frozen, P = fold(net, lanes(0, {lanes})), lanes({lanes}, {lanes} + 1)
params = net.train_only(P)
net.train()
optimizer = torch.optim.SGD(params.values(), lr=0.01, momentum=0.9, nesterov=True)
training = Training(mixed=not lacks_bfloat16())
g = torch.Generator().manual_seed(0)
x, y = torch.randn(32, 3, 32, 32, generator=g), torch.randint(100, (32,), generator=g)
x = x.to(memory_format=torch.channels_last)  # as pictures come
head = torch.nn.Linear(({lanes} + 1) * net.num_features, 100)
def step():
    with precision(training, x.device):
        q = head(torch.cat([frozen.features(x), net.features(x, P)], dim=1))
    optimizer.zero_grad()
    F.cross_entropy(q.float(), y).backward()
    optimizer.step()
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt
for _ in range(5): step()
began, before = used()
for _ in range({steps}): step()
ended, after = used()
print((ended - began) / {steps} * 1e3, (after - before) / {steps})
"""


def measured(keep: bool, lanes: int, steps: int) -> list[float]:
    """CPU milliseconds and page faults of a step."""
    code = STEP.format(keep=keep, lanes=lanes, steps=steps)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
options = parser.parse_args()
header = ["frozen lanes", "given back, CPU ms a step", "kept, CPU ms a step", "kept / given back", "page faults a step"]
rows = []
print(" | ".join(header))
for lanes in (1, 4, 8):
    rounds = [[measured(keep, lanes, options.steps) for keep in (False, True)] for _ in range(options.rounds)]
    (given_back, faults), (kept, fewer) = (
        [statistics.median(one[way][i] for one in rounds) for i in (0, 1)] for way in (0, 1)
    )
    ratio = statistics.median(one[1][0] / one[0][0] for one in rounds)
    rows.append([str(lanes), f"{given_back:.0f}", f"{kept:.0f}", f"{ratio:.2f}", f"{faults:,.0f} and {fewer:,.0f}"])
    print(" | ".join(rows[-1]), flush=True)
if options.record:
    result = {"command": "python benchmarks/allocation.py", "tables": [{"header": header, "rows": rows}]}
    result |= {"versions": environment(), "commit": commit()}
    options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
