"""A training step in float32 against mixed precision (training.mixed), in one run, on one thread."""

import time

import torch
import torch.nn.functional as F

from randpath.engines.device import lacks_bfloat16
from randpath.learning.train import Training, precision
from randpath.network.backbones import Backbone

BATCH, STEPS = 32, 6
torch.set_num_threads(1)
if reason := lacks_bfloat16():
    raise SystemExit(reason)
print("network | float32, ms an image | mixed, ms an image | mixed / float32")
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
    print(f"compact {width} | {cost[False]:.2f} | {cost[True]:.2f} | {cost[True] / cost[False]:.2f}", flush=True)
