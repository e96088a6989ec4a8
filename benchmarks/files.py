"""Whether decoding keeps the trainer busy: photographs as files against the same pictures in memory, in one run.

    python benchmarks/files.py [--number 512] [--size 64]

Makes JPEG files of 500 x 375, then trains one epoch of `compact` on them three times, one torch thread: from the files,
from the files again (now decoded), and from an array; beside each, how long it waited for pictures.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path as File

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays, Dataset, Files
from randpath.keyed import rng
from randpath.network.backbones import Backbone
from randpath.network.path import Path


def make(root: File, number: int) -> list[File]:
    draw, paths = rng("benchmark", "files"), []
    for i in range(number):
        coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), np.uint8))
        paths.append(root / f"{i}.jpg")
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


def epoch(data: Dataset, augment: Augment, width: int) -> tuple[float, float]:
    """Seconds in all, and seconds of waiting for pictures."""
    net = Backbone("compact", data.shape, width=width).build(0)
    net.grow_head(10)
    path = Path.random(net.L, net.M, rng("benchmark"))
    optimizer = torch.optim.Adam(net.train_only(path).values(), 1e-3)
    order = rng("benchmark", "order").permutation(len(data))
    batches = data.batches([order[i : i + 64] for i in range(0, len(data), 64)])
    start, waited = time.perf_counter(), 0.0
    while True:
        before = time.perf_counter()
        x, y = next(batches, (None, None))
        waited += time.perf_counter() - before
        if x is None or y is None:
            return time.perf_counter() - start, waited
        optimizer.zero_grad()
        F.cross_entropy(net(augment.train(x, rng(0)), path), y).backward()
        optimizer.step()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=512)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    augment = Augment((0.5,) * 3, (0.25,) * 3, mirror=True)
    shape = (given.size, given.size, 3)
    with tempfile.TemporaryDirectory() as temporary:
        paths = make(File(temporary), given.number)
        labels = np.arange(given.number) % 10
        files = Files(paths, labels, shape)
        start = time.perf_counter()
        pixels = np.stack([files._decoded(path) for path in paths])
        alone = time.perf_counter() - start
        result = {"decoding alone, one thread": given.number / alone}
        for name, data in (("files", files), ("files again", files), ("array", Arrays(pixels, labels))):
            seconds, waited = epoch(data, augment, given.width)
            result[name] = given.number / seconds
            print(f"{name:12} {given.number / seconds:8.1f} pictures/s, waiting {waited / seconds:6.1%}")
    print(json.dumps({name: round(value, 1) for name, value in result.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
