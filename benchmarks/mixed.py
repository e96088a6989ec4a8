"""A training step in float32 against mixed precision (training.mixed), in one run, on one thread.

python benchmarks/mixed.py --record docs/results/examples/mixed.json
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from randpath.bench.provenance import commit, environment
from randpath.engines.device import lacks_bfloat16
from randpath.learning.train import Training, precision
from randpath.network.backbones import Backbone

BATCH, STEPS = 32, 6
torch.set_num_threads(1)
if reason := lacks_bfloat16():
    raise SystemExit(reason)
parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("--record", type=Path, default=None, help="write the result to this JSON file")
options = parser.parse_args()
header = ["network", "float32, ms an image", "mixed, ms an image", "mixed / float32"]
rows = []
print(" | ".join(header))
for width in (24, 48, 96, 160):
    cost = {}
    for mixed in (False, True):
        net = Backbone("compact", (32, 32, 3), 1, "none", width, "whiten", "gelu").build(0).train()
        net.grow_head(10)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        g = torch.Generator().manual_seed(0)
        x, y = torch.randn(BATCH, 3, 32, 32, generator=g), torch.randint(10, (BATCH,), generator=g)
        for step in range(STEPS + 2):
            if step == 2:  # warm
                began = time.process_time()
            optimizer.zero_grad()
            with precision(Training(mixed=mixed), x.device):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        cost[mixed] = (time.process_time() - began) / STEPS / BATCH * 1e3
    numbers = (cost[False], cost[True], cost[True] / cost[False])
    rows.append([f"`compact`, width {width}", *(f"{number:.2f}" for number in numbers)])
    print(" | ".join(rows[-1]), flush=True)
if options.record:
    result = {"command": "python benchmarks/mixed.py", "tables": [{"header": header, "rows": rows}]}
    result |= {"versions": environment(), "commit": commit()}
    options.record.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
