"""Per-image squared gradients: a loop of single images against vmap over a chunk, in one run, on one thread."""

import time

import numpy as np
import torch

from randpath.learning import fisher
from randpath.network.backbones import Backbone
from randpath.network.path import Path

torch.set_num_threads(1)
print("network | values an image | loop, ms an image | vmap, ms an image | vmap / loop")
for name, width, shape, images in [
    ("mlp", 50, (8, 8, 1), 256),
    ("mlp", 200, (8, 8, 1), 256),
    ("mlp", 400, (32, 32, 1), 128),
    ("compact", 16, (32, 32, 3), 64),
    ("compact", 48, (32, 32, 3), 64),
    ("resnet18_cifar", 16, (32, 32, 3), 16),
]:
    net = Backbone(name, shape, M=2, width=width).build(0)
    net.grow_head(10)
    P = Path.random(net.L, 2, np.random.default_rng(0))
    parameters = net.parameters_of_path(P)
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(images, shape[2], *shape[:2], generator=g), torch.randint(10, (images,), generator=g)
    cost = {}
    for way, limit in (("loop", 0), ("vmap", 10**12)):
        fisher.VMAP_LIMIT = limit
        fisher.fisher_max(net, P, parameters, [(x[:8], y[:8])])  # warm up
        began = time.process_time()
        fisher.fisher_max(net, P, parameters, [(x, y)])
        cost[way] = (time.process_time() - began) / images * 1e3
    size = sum(p.numel() for p in parameters)
    print(f"{name} {width} | {size:,} | {cost['loop']:.2f} | {cost['vmap']:.2f} | {cost['vmap'] / cost['loop']:.2f}")
