"""The published datasets: the real files where they are, and small trees in the same layout for those too large."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from randpath.data import named
from randpath.data.dataset import Arrays, Source, file_changes
from randpath.data.stream import TaskStream
from randpath.errors import DataError, UsageError
from tests.pictures import put


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def moments(source: Source) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, exactly, from its histogram."""
    assert isinstance(source.train, Arrays)
    means, stds = [], []
    for c in range(source.train.shape[2]):
        share = np.bincount(source.train.items[..., c].ravel(), minlength=256) / source.train.items[..., c].size
        value = np.arange(256) / 255
        means.append(float(share @ value))
        stds.append(float(np.sqrt(share @ (value - means[-1]) ** 2)))
    return means, stds


def test_digits() -> None:
    source = named.load("digits")
    assert (len(source.train), len(source.test), source.train.shape) == (1347, 450, (8, 8, 1))
    assert np.bincount(source.train.labels).tolist() == [134, 136, 133, 137, 136, 136, 136, 134, 130, 135]
    mean, std = moments(source)
    assert mean == pytest.approx(source.mean, abs=1e-4)
    assert std == pytest.approx(source.std, abs=1e-4)
    assert isinstance(source.train, Arrays)
    assert isinstance(source.test, Arrays)
    assert source.train.items.max() == 255
    assert source.fingerprint == "eb703d1a" + source.fingerprint[8:]
    assert source.fingerprint == named.load("digits").fingerprint


class TestRealFiles:
    def test_mnist(self, real_data: Callable[[str], Path]) -> None:
        source = named.load("mnist", real_data("mnist"))
        assert (len(source.train), len(source.test), source.train.shape) == (60_000, 10_000, (32, 32, 1))
        assert np.bincount(source.train.labels).tolist() == [
            5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
        ]  # fmt: skip
        assert np.bincount(source.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        mean, std = moments(source)
        assert mean == pytest.approx(source.mean, abs=1e-4)
        assert std == pytest.approx(source.std, abs=1e-4)
        assert mean[0] * 1024 / 784 == pytest.approx(0.1307, abs=1e-4), "the well-known figure, without the border"
        assert isinstance(source.train, Arrays)
        assert not source.train.items[:, :2].any()
        assert not source.train.items[:, :, -2:].any()

    def test_cifar100(self, real_data: Callable[[str], Path]) -> None:
        source = named.load("cifar100", real_data("cifar100"))
        assert (len(source.train), len(source.test), source.train.shape) == (50_000, 10_000, (32, 32, 3))
        assert set(np.bincount(source.train.labels)) == {500}
        assert set(np.bincount(source.test.labels)) == {100}
        assert source.class_names[:3] == ("apple", "aquarium_fish", "baby")
        mean, std = moments(source)
        assert mean == pytest.approx(source.mean, abs=1e-4)
        assert std == pytest.approx(source.std, abs=1e-4)
        stream = TaskStream(source, 10, 1993, seed=0)
        assert (len(stream.task(1).train), len(stream.task(1).val), len(stream.test(10))) == (4500, 500, 1000)

    def test_svhn(self, real_data: Callable[[str], Path]) -> None:
        source = named.load("svhn", real_data("svhn"))
        assert source.train.shape == (32, 32, 3)
        counts = np.bincount(source.train.labels)
        if len(source.train) == 20_000:  # the part that lies on our machines
            assert counts.tolist() == [1367, 3784, 2890, 2326, 2077, 1889, 1501, 1520, 1314, 1332]
            assert len(source.test) == 10_000
        else:
            assert (len(source.train), len(source.test), counts[1]) == (73_257, 26_032, 13_861)
        mean, std = moments(source)
        assert mean == pytest.approx(source.mean, abs=5e-3)
        assert std == pytest.approx(source.std, abs=5e-3)


def write_idx(path: Path, array: np.ndarray, *, packed: bool) -> None:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    raw = head + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".gz" * packed).write_bytes(gzip.compress(raw) if packed else raw)


def made_idx(root: Path, name: str, *, packed: bool = True, n: int = 20) -> None:
    draw = np.random.RandomState(0)
    for split in ("train", "t10k"):
        write_idx(root / name / f"{split}-images-idx3-ubyte", draw.randint(0, 256, (n, 28, 28)), packed=packed)
        write_idx(root / name / f"{split}-labels-idx1-ubyte", np.arange(n) % 10, packed=packed)


class TestMadeFiles:
    @pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
    def test_idx_plain_or_packed(self, tmp_path: Path, name: str) -> None:
        for packed in (True, False):
            made_idx(tmp_path / str(packed), name, packed=packed)
        one, other = (named.load(name, tmp_path / str(packed)) for packed in (True, False))
        assert one.fingerprint == other.fingerprint
        assert one.train.shape == (32, 32, 1)
        assert one.mirror == (name == "fashion_mnist")
        assert one.train.labels.tolist() == [*range(10), *range(10)]
        write_idx(tmp_path / "True" / name / "t10k-labels-idx1-ubyte", 9 - np.arange(20) % 10, packed=True)
        edited = named.load(name, tmp_path / "True")
        assert edited.fingerprint != one.fingerprint
        assert file_changes(one.files, edited.files) == ["edited: t10k-labels-idx1-ubyte.gz"]

    def test_cifar10(self, tmp_path: Path) -> None:
        draw = np.random.RandomState(0)
        folder = tmp_path / "cifar10"
        folder.mkdir()
        raw = draw.randint(0, 256, (6, 20, 3073)).astype(np.uint8)
        raw[:, :, 0] = np.arange(20) % 10
        for i, name in enumerate([*(f"data_batch_{j}" for j in range(1, 6)), "test_batch"]):
            raw[i].tofile(folder / f"{name}.bin")
        source = named.load("cifar10", tmp_path)
        assert (len(source.train), len(source.test)) == (100, 20)
        assert isinstance(source.train, Arrays)
        # record 25 is the sixth of the second batch: red at (row 3, column 4) is byte 1 + 3 * 32 + 4
        assert source.train.items[25, 3, 4].tolist() == [raw[1, 5, 1 + c * 1024 + 3 * 32 + 4] for c in range(3)]
        assert source.class_names[3] == "cat"

    def test_tiny_imagenet(self, tmp_path: Path) -> None:
        folder = tmp_path / "tiny_imagenet"
        for c in ("n02", "n01"):
            for i in range(3):
                put(folder / "train" / c / "images" / f"{c}_{i}.JPEG", f"{c}{i}", 64, 64)
        for i in range(3):
            put(folder / "val" / "images" / f"val_{i}.JPEG", f"v{i}", 64, 64)
        (folder / "wnids.txt").write_text("n02\nn01\n")
        (folder / "val" / "val_annotations.txt").write_text(
            "".join(f"val_{i}.JPEG\t{c}\t0\t0\t62\t62\n" for i, c in enumerate(("n01", "n02", "n01")))
        )
        source = named.load("tiny_imagenet", tmp_path)
        assert source.class_names == ("n01", "n02")
        assert (source.train.labels.tolist(), source.test.labels.tolist()) == ([0, 0, 0, 1, 1, 1], [0, 1, 0])
        assert next(source.train.batches([np.arange(6)]))[0].shape == (6, 64, 64, 3)
        (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\t0\n")
        with pytest.raises(DataError, match="line 1: class 'n99'"):
            named.load("tiny_imagenet", tmp_path)

    def made_imagenet(self, root: Path, classes: int) -> list[str]:
        names = [f"n{i:08d}" for i in range(classes)]
        for c in names:
            put(root / "imagenet" / "train" / c / f"{c}_1.JPEG", c, 40, 50)
            put(root / "imagenet" / "val" / c / "v.JPEG", c + "v", 50, 40)
        return names

    def test_imagenet(self, tmp_path: Path) -> None:
        names = self.made_imagenet(tmp_path, 3)
        put(tmp_path / "imagenet" / "train" / names[0] / "second.JPEG", "second", 30, 30)
        source = named.load("imagenet", tmp_path, size=16)
        assert source.class_names == tuple(names)
        assert source.train.labels.tolist() == [0, 0, 1, 2]
        stream = TaskStream(source, 3, "natural", seed=0)
        x, y = next(stream.task(1).train.batches([np.arange(2)]))
        assert (tuple(x.shape), y.tolist()) == ((2, 16, 16, 3), [0, 0])
        assert next(stream.test(3).batches([np.arange(1)]))[0].shape == (1, 16, 16, 3)

    def test_imagenet_100_is_drawn_as_icarl_does(self, tmp_path: Path) -> None:
        names = self.made_imagenet(tmp_path, 120)
        source = named.load("imagenet100", tmp_path, size=16)
        order = np.arange(120)
        np.random.RandomState(1993).shuffle(order)
        assert source.class_names == tuple(names[i] for i in order[:100])
        (tmp_path / "imagenet" / "classes.txt").write_text("\n".join(reversed(names)))
        again = named.load("imagenet100", tmp_path, size=16)
        assert again.class_names == tuple(names[119 - i] for i in order[:100])
        assert again.fingerprint != source.fingerprint

    def test_flat_validation_images_are_explained(self, tmp_path: Path) -> None:
        put(tmp_path / "imagenet" / "train" / "n1" / "a.JPEG", 0)
        put(tmp_path / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG", 1)
        with pytest.raises(DataError, match="move each validation image into the folder of its class"):
            named.load("imagenet", tmp_path)

    def test_ms_celeb(self, tmp_path: Path) -> None:
        folder = tmp_path / "ms_celeb"
        lines = []
        for i, label in enumerate(("10", "9", "9", "100")):
            put(folder / "faces" / f"a {i}.jpg", i, 20, 20)
            lines.append(f"faces/a {i}.jpg {label}")
        (folder / "train.txt").write_text("\n".join(lines) + "\n\n")
        (folder / "test.txt").write_text(lines[0])
        source = named.load("ms_celeb", tmp_path, size=16)
        assert source.class_names == ("9", "10", "100"), "numbers in their own order"
        assert (source.train.labels.tolist(), source.test.labels.tolist()) == ([1, 0, 0, 2], [1])
        assert next(source.train.batches([np.arange(4)]))[0].shape == (4, 16, 16, 3)


class TestWrongFiles:
    """Twelve and more wrong files and labels, each named before the first step."""

    @pytest.mark.parametrize("name", [name for name in named.DATASETS if name != "digits"])
    def test_a_missing_dataset_says_what_to_put_where(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(DataError) as error:
            named.load(name, tmp_path)
        assert str(tmp_path) in error.value.where
        assert "put" in error.value.next
        if name in named.REMOTES:
            assert f"randpath data {name}" in error.value.next

    def test_an_unknown_name(self) -> None:
        with pytest.raises(ValueError, match=r"there is no dataset 'minst'; there are digits, mnist"):
            named.load("minst")
        with pytest.raises(ValueError, match="size of its own"):
            named.load("digits", size=32)

    @pytest.mark.parametrize(
        ("labels", "why"),
        [
            (np.full(20, 10), r"train-labels-idx1-ubyte.gz: label 10 of item 0 is not in 0\.\.9"),
            (np.arange(19) % 10, "20 images but 19 labels"),
            (np.zeros((20, 1)), "labels"),
        ],
    )
    def test_wrong_idx_labels(self, tmp_path: Path, labels: np.ndarray, why: str) -> None:
        made_idx(tmp_path, "mnist")
        write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte", labels, packed=True)
        with pytest.raises(DataError, match=why):
            named.load("mnist", tmp_path)

    def test_images_and_labels_exchanged(self, tmp_path: Path) -> None:
        made_idx(tmp_path, "mnist")
        folder = tmp_path / "mnist"
        (folder / "train-images-idx3-ubyte.gz").rename(folder / "x")
        (folder / "train-labels-idx1-ubyte.gz").rename(folder / "train-images-idx3-ubyte.gz")
        (folder / "x").rename(folder / "train-labels-idx1-ubyte.gz")
        with pytest.raises(DataError, match="train-images"):
            named.load("mnist", tmp_path)

    @pytest.mark.parametrize(
        "raw",
        [b"", b"\0\0", b"\0\0\x0d\x01\0\0\0\1\0", b"\0\0\x08\x03\0\0\0\1", b"\0\0\x08\x01\0\0\0\x09abc", b"\xff" * 40],
    )
    def test_a_broken_idx_file(self, tmp_path: Path, raw: bytes) -> None:
        for packed in (True, False):
            made_idx(tmp_path, "mnist", packed=packed)
            name = "train-images-idx3-ubyte" + ".gz" * packed
            (tmp_path / "mnist" / name).write_bytes(raw)
            (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(raw)
            with pytest.raises(DataError, match="train-images-idx3-ubyte"):
                named.load("mnist", tmp_path)

    def test_a_cut_gz_file(self, tmp_path: Path) -> None:
        made_idx(tmp_path, "mnist")
        path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz cannot be read"):
            named.load("mnist", tmp_path)

    @pytest.mark.parametrize(
        ("size", "label", "why"), [(3074, 100, "label 100 of item 0"), (3073, 0, "records of 3,074")]
    )
    def test_wrong_cifar_records(self, tmp_path: Path, size: int, label: int, why: str) -> None:
        folder = tmp_path / "cifar100"
        folder.mkdir()
        (folder / "fine_label_names.txt").write_text("\n".join(f"c{i}" for i in range(100)))
        for name in ("train.bin", "test.bin"):
            np.full(size, label, np.uint8).tofile(folder / name)
        with pytest.raises(DataError, match=why):
            named.load("cifar100", tmp_path)

    @pytest.mark.parametrize(
        ("x", "y", "why"),
        [
            (np.zeros((32, 32, 3, 2), np.uint8), [11, 1], "label 11 of item 0"),
            (np.zeros((32, 32, 3, 2), np.uint8), [-1, 1], "label -1 of item 0"),
            (np.zeros((32, 32, 3, 2), np.float32), [1, 1], "float32"),
            (np.zeros((2, 32, 32, 3), np.uint8), [1, 1], "not uint8"),
            (np.zeros((32, 32, 3, 2), np.uint8), [1, 1, 1], "2 images but 3 labels"),
        ],
    )
    def test_wrong_svhn(self, tmp_path: Path, x: np.ndarray, y: list[int], why: str) -> None:
        (tmp_path / "svhn").mkdir()
        for split in ("train", "test"):
            savemat(tmp_path / "svhn" / f"{split}_32x32.mat", {"X": x, "y": np.array(y)[:, None]})
        with pytest.raises(DataError, match=why):
            named.load("svhn", tmp_path)

    def test_svhn_that_is_no_mat_file(self, tmp_path: Path) -> None:
        (tmp_path / "svhn").mkdir()
        for raw in (b"", b"hello" * 100, b"MATLAB 5.0 MAT-file" + bytes(200)):
            for split in ("train", "test"):
                (tmp_path / "svhn" / f"{split}_32x32.mat").write_bytes(raw)
            with pytest.raises(DataError, match=r"train_32x32\.mat"):
                named.load("svhn", tmp_path)

    @pytest.mark.parametrize(
        ("train", "test", "why"),
        [
            ("justonefield", "", "line 1 is not `path label`"),
            ("../a.jpg 1", "", "leads out"),
            ("/etc/passwd 1", "", "leads out"),
            ("a.jpg 1", "a.jpg 2", "label 2 does not occur in train.txt"),
            ("missing.jpg 1", "", "missing.jpg cannot be read"),
        ],
    )
    def test_wrong_lists(self, tmp_path: Path, train: str, test: str, why: str) -> None:
        put(tmp_path / "ms_celeb" / "a.jpg", 0)
        (tmp_path / "ms_celeb" / "train.txt").write_text(train)
        (tmp_path / "ms_celeb" / "test.txt").write_text(test)
        with pytest.raises(DataError, match=why):
            named.load("ms_celeb", tmp_path)


def test_auxiliary_pictures_take_the_size_and_colours_of_the_others():
    digits = named.load("digits").train
    wide = named.unlabelled("digits", (16, 16, 3))
    assert wide.shape == (16, 16, 3) and wide.items.dtype == np.uint8 and not wide.labels.any()
    assert (wide.items[..., 0] == wide.items[..., 2]).all()
    means = wide.items[..., 0].mean(axis=(1, 2)), digits.items.mean(axis=(1, 2, 3))
    assert np.abs(means[0] - means[1]).max() < 8  # the same pictures, only larger
    assert (named.unlabelled("digits", (8, 8, 1)).items == digits.items).all()
    with pytest.raises(UsageError, match="cannot serve beside"):
        named.unlabelled("digits", (64,))
