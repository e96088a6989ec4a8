"""Training does not know where its pictures lie: from files, from arrays, from a stored memory, the same bits."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from randpath.bench.experiment import Experiment
from randpath.bench.run import make_method
from randpath.data import folder
from randpath.data.augment import Augment
from randpath.data.dataset import Arrays, Dataset, Files, Source
from randpath.data.stream import TaskStream
from randpath.learning.method import Method, Work
from randpath.learning.train import Training
from tests.pictures import put

EXPERIMENT = Experiment(
    dataset="folder",
    tasks=2,
    backbone="compact",
    width=8,
    modules=2,
    memory=9,
    training=Training(epochs=2, batch=6),
    options={"N": 2},
)


def in_memory(data: Dataset) -> Arrays:
    (x, y), *_ = data.batches([np.arange(len(data))])
    return Arrays(x.numpy(), y.numpy())


@pytest.fixture
def source(tmp_path: Path) -> Source:
    for c in "abcd":
        for i in range(8):
            put(tmp_path / "data" / c / f"{i}.png", f"{c}{i}", 40, 50)
    return folder.load(tmp_path / "data", size=16)


def logits(method: Method, data: Dataset) -> torch.Tensor:
    (x, _), *_ = data.batches([np.arange(len(data))])
    return method.inference()(Augment((0.5,) * 3, (0.5,) * 3).plain(x))


@pytest.mark.parametrize("name", ["rps", "rehearsal"])
def test_files_and_arrays_train_the_same_bits(source: Source, tmp_path: Path, name: str) -> None:
    experiment = replace(EXPERIMENT, method=name, options={"N": 2} if name == "rps" else {})
    plain = replace(source, train=in_memory(source.train), test=in_memory(source.test))
    results = []
    for given in (source, plain):
        stream = TaskStream(given, 2, "natural", seed=0)
        method = make_method(experiment, given)
        test = in_memory(stream.test(1))
        first, second = stream.task(1), stream.task(2)
        method.learn(first, Work())
        state = method.state_dict()
        if isinstance(given.train, Files):  # yesterday's pictures are gone; the memory has its own
            for c in "ab":
                shutil.rmtree(tmp_path / "data" / c)
            assert any("blob" in tensors for tensors in state.tensors.values())
        again = make_method(experiment, given)
        again.load_state_dict(state)
        for one in (method, again):
            one.learn(second, Work())
            results.append(logits(one, test))
    for other in results[1:]:
        assert torch.equal(results[0], other)
