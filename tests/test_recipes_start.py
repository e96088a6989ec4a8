"""The paper's recipes in full start here: their first task, on a few images in the layout of the published data."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from randpath.bench.run import steps
from tests.pictures import put

# What is made smaller for this machine; M = 8, N = 8 and all else stay as the recipe has them.
SMALL = ("width=4", "training.epochs=1")


def made_cifar100(root: Path) -> None:
    folder = root / "cifar100"
    folder.mkdir()
    for name, each in (("train", 5), ("test", 1)):
        raw = np.random.RandomState(0).randint(0, 256, (100 * each, 3074)).astype(np.uint8)
        raw[:, 1] = np.arange(100 * each) % 100
        raw.tofile(folder / f"{name}.bin")
    (folder / "fine_label_names.txt").write_text("\n".join(f"class{c}" for c in range(100)))


def made_svhn(root: Path) -> None:
    folder = root / "svhn"
    folder.mkdir()
    for name, n in (("train", 60), ("test", 20)):
        X = np.random.RandomState(0).randint(0, 256, (32, 32, 3, n)).astype(np.uint8)
        savemat(folder / f"{name}_32x32.mat", {"X": X, "y": np.arange(n)[:, None] % 10 + 1})


def made_imagenet(root: Path) -> None:
    for c in range(100):
        for split, each in (("train", 5), ("val", 1)):
            for i in range(each):
                put(root / "imagenet" / split / f"n{c:08d}" / f"{i}.JPEG", f"{c}{split}{i}", 20, 20)


def made_ms_celeb(root: Path) -> None:
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for c in range(20):
        for i in range(6):
            put(root / "ms_celeb" / f"{c}" / f"{i}.jpg", f"{c} {i}", 20, 20)
            lists["test" if i == 5 else "train"].append(f"{c}/{i}.jpg {c}")
    for name, lines in lists.items():
        (root / "ms_celeb" / f"{name}.txt").write_text("\n".join(lines))


MADE = {"cifar100": made_cifar100, "svhn": made_svhn, "imagenet": made_imagenet, "ms_celeb": made_ms_celeb}
CLASSES = {  # of the first task
    "cifar100_2": 50, "cifar100_5": 20, "cifar100_10": 10, "cifar100_20": 5, "svhn_5": 2,
    "imagenet100_10": 10, "imagenet1k_10": 10, "ms_celeb_10": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for make in MADE.values():
        make(root)
    return root


@pytest.mark.parametrize("variant", ["paper", "tuned"])
@pytest.mark.parametrize("name", CLASSES)
def test_the_first_task_of_a_full_recipe_runs(name, variant, made, tmp_path, monkeypatch):
    monkeypatch.setenv("RANDPATH_DATA", str(made))
    experiment = getattr(importlib.import_module(f"randpath.recipes.{name}"), variant).with_settings(SMALL)
    if name.startswith(("imagenet", "ms_celeb")):
        experiment = experiment.with_settings(["size=64", "padding=8", "width=8"])
    line = next(steps(experiment, tmp_path))
    assert len(line["classes"]) == CLASSES[name]
    assert np.array(line["path"]).shape == (9, 8)
    assert (tmp_path / "checkpoints" / "0001").is_dir()


@pytest.mark.parametrize("name", CLASSES)
def test_a_full_recipe_is_the_papers(name):
    """Section 4.1: N = 8, M = 8, th = 0, 50 epochs of Adam, gamma 2.5 (CIFAR-100), 10 (ImageNet) or by its rule."""
    e = importlib.import_module(f"randpath.recipes.{name}").paper
    assert (e.modules, e.options["N"], e.options["threshold"], e.attention) == (8, 8, 0, "peak")
    assert (e.training.epochs, e.training.optimizer, e.training.lr, e.training.schedule) == (50, "adam", 1e-3, "halve")
    assert e.tasks == int(name.rpartition("_")[2])
    assert e.width is None
    gamma, memory, backbone = {
        "cifar100": (2.5, 2000, "resnet18_cifar"),
        "svhn": (None, 4400, "resnet18_cifar"),
        "imagenet100": (10, 2000, "resnet18_imagenet"),
        "imagenet1k": (10, 20_000, "resnet18_imagenet"),
        "ms_celeb": (None, 50_000, "resnet18_imagenet"),
    }[name.rpartition("_")[0]]
    assert (e.options.get("gamma"), e.memory, e.backbone) == (gamma, memory, backbone)
