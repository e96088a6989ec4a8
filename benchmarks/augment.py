"""How long augmentation takes, beside a training step of `compact` and beside the usual ways, all in one run.

    python benchmarks/augment.py [--batch 128] [--size 32]

One thread; microseconds an image, the least of several rounds that take turns (other work on the machine then hits
all alike). Exit 1 if ours takes more than a tenth of a training step. kornia is left out where it is not installed.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.nn import functional as F

from randpath.data.augment import Augment
from randpath.keyed import rng
from randpath.network.backbones import Backbone
from randpath.network.path import Path

MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def per_image(x: np.ndarray, draw: np.random.Generator, degrees: float) -> torch.Tensor:
    """What a torchvision-style loader does to each image: pad, crop, mirror, rotate, to tensor, normalise."""
    out = []
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    for pixels in x:
        image = ImageOps.expand(Image.fromarray(pixels), 4)
        top, left = draw.integers(0, 9, 2)
        image = image.crop((left, top, left + pixels.shape[1], top + pixels.shape[0]))
        if draw.random() < 0.5:
            image = ImageOps.mirror(image)
        if degrees:
            image = image.rotate(draw.uniform(-degrees, degrees), Image.Resampling.BILINEAR)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        out.append(tensor.sub_(mean).div_(std))
    return torch.stack(out)


def kornia_way(degrees: float) -> Callable[[torch.Tensor], torch.Tensor] | None:
    try:
        K = importlib.import_module("kornia.augmentation")
    except ImportError:
        return None
    parts = [K.RandomCrop((32, 32), padding=4, cropping_mode="slice"), K.RandomHorizontalFlip()]
    if degrees:
        parts = [K.RandomAffine(degrees, translate=(4 / 32, 4 / 32)), K.RandomHorizontalFlip()]
    both = torch.nn.Sequential(*parts, K.Normalize(torch.tensor(MEAN), torch.tensor(STD)))
    return lambda x: both(x.permute(0, 3, 1, 2).float() / 255)


def training_step(x: torch.Tensor) -> Callable[[], None]:
    """Forward, backward and one step of Adam, on one path of `compact` at its own width."""
    net = Backbone("compact", tuple(x.shape[1:])).build(0)
    net.grow_head(100)
    path = Path.random(net.L, net.M, rng("benchmark"))
    params = list(net.train_only(path).values())
    optimizer = torch.optim.Adam(params, 1e-3)
    ready = Augment(MEAN, STD).plain(x)
    y = torch.arange(len(x)) % 100

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(ready, path), y).backward()
        optimizer.step()

    return step


def least(ways: dict[str, Callable[[], object]], images: int, rounds: int = 7) -> dict[str, float]:
    """Microseconds an image; the ways take turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            repeat = 1 if name == "training step" else 3
            start = time.perf_counter()
            for _ in range(repeat):
                way()
            best[name] = min(best[name], (time.perf_counter() - start) / repeat / images * 1e6)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    draw = rng("benchmark", "augment")
    x = torch.from_numpy(draw.integers(0, 256, (given.batch, given.size, given.size, 3), np.uint8))
    turned, moved = (Augment(MEAN, STD, mirror=True, degrees=degrees) for degrees in (10.0, 0.0))
    ways: dict[str, Callable[[], object]] = {
        "training step": training_step(x),
        "ours": lambda: turned.train(x, draw),
        "ours, no rotation": lambda: moved.train(x, draw),
        "ours, plain": lambda: turned.plain(x),
        "Pillow, image by image": lambda: per_image(x.numpy(), draw, 10),
        "Pillow, no rotation": lambda: per_image(x.numpy(), draw, 0),
    }
    for name, degrees in (("kornia", 10.0), ("kornia, no rotation", 0.0)):
        way = kornia_way(degrees)
        if way is not None:
            ways[name] = lambda way=way: way(x)  # type: ignore[misc]
    times = least(ways, given.batch)
    for name, microseconds in times.items():
        print(f"{name:24} {microseconds:9.1f} us an image {microseconds / times['training step']:8.2%} of a step")
    share = times["ours"] / times["training step"]
    print(json.dumps({name: round(value, 1) for name, value in times.items()}))
    return 0 if share <= 0.10 else 1


if __name__ == "__main__":
    sys.exit(main())
