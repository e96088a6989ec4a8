"""Pictures and a network of your own in one file, which is also a recipe: nothing of randpath has to be changed.

    randpath bench examples/add_a_dataset.py                    run it
    randpath bench examples/add_a_dataset.py --methods rehearsal,gem,icarl --seeds 0,1
    randpath resume runs/add_a_dataset-rehearsal-tuned-0        this file is found again

The pictures are stripes in six directions with noise. A folder with one sub-folder per class needs no code at all:
dataset="folder:PATH".
"""

from pathlib import Path

import numpy as np
from torch import nn

from randpath import Experiment, Training, replace
from randpath.data.dataset import Arrays, Source
from randpath.data.named import DATASETS, source
from randpath.network.backbones import BACKBONES, whole

NAMES = tuple(f"{30 * c} degrees" for c in range(6))


def stripes(each: int, seed: int) -> Arrays:
    """uint8 pictures (n, 12, 12, 1) and their labels, 0 to 5."""
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(6), each)
    y, x = np.mgrid[:12, :12]
    angle = np.deg2rad(30 * labels)[:, None, None]
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 1.5 + rng.uniform(0, 6.3, (len(labels), 1, 1)))
    pixels = 128 + 60 * wave + rng.normal(0, 30, wave.shape)
    return Arrays(pixels.clip(0, 255).astype(np.uint8)[..., None], labels)


def load(root: Path) -> Source:
    """`root` is where published data lies ($RANDPATH_DATA); read your own files there, or anywhere."""
    return source("stripes", stripes(60, 0), stripes(20, 1), NAMES, mean=(0.5,), std=(0.25,), mirror=False)


def network() -> nn.Module:
    """Any module that turns pictures into features; its weights come from the experiment's seed."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 5, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(),
    )  # fmt: skip


DATASETS["stripes"] = load
BACKBONES["two_convolutions"] = whole(network, num_features=16)

tuned = Experiment(
    dataset="stripes",
    tasks=3,
    method="rehearsal",
    backbone="two_convolutions",
    modules=1,
    attention="none",
    memory=60,
    padding=1,
    degrees=0.0,
    training=Training(epochs=10, batch=16, lr=3e-3),
)
paper = replace(tuned, variant="paper")
