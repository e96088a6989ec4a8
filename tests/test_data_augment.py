"""Augmentation: exact pixels without rotation, the right geometry with it, and the generator decides everything."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from randpath.data.augment import Augment
from randpath.keyed import rng
from tests.pictures import pixels

ONE = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}  # normalisation that gives back the bytes


def batch(n: int = 6, h: int = 8, w: int = 10, c: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.stack([pixels(i, h, w, c) for i in range(n)]))


def test_plain_is_normalisation_alone() -> None:
    x = batch()
    augment = Augment((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    want = (x.permute(0, 3, 1, 2).double() / 255 - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.2, 0.25, 0.3]
    ).view(3, 1, 1)
    assert augment.plain(x).dtype == torch.float32
    torch.testing.assert_close(augment.plain(x), want.float())


def test_feature_vectors_are_normalised_in_both() -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    augment = Augment((1.0,), (2.0,))
    torch.testing.assert_close(augment.plain(x), (x - 1) / 2)
    torch.testing.assert_close(augment.train(x, rng(0)), (x - 1) / 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 4), st.booleans(), st.integers(0, 10**6), st.sampled_from([1, 3]))
def test_without_rotation_it_is_a_crop_of_the_padded_picture(padding: int, mirror: bool, seed: int, c: int) -> None:
    x = batch(c=c)
    augment = Augment((0.0,) * c, (1 / 255,) * c, padding=padding, mirror=mirror, degrees=0)
    got = augment.train(x, rng(seed)).round().to(torch.uint8).permute(0, 2, 3, 1)
    padded = F.pad(x, (0, 0, padding, padding, padding, padding))
    for i in range(len(x)):
        crops = [
            crop.flip(1) if flip else crop
            for dy in range(2 * padding + 1)
            for dx in range(2 * padding + 1)
            for crop in [padded[i, dy : dy + 8, dx : dx + 10]]
            for flip in ((False, True) if mirror else (False,))
        ]
        assert any(torch.equal(got[i], crop) for crop in crops)


def test_every_shift_and_both_sides_occur() -> None:
    x = torch.zeros(4000, 9, 9, 1, dtype=torch.uint8)
    x[:, 4, 4] = 255
    out = Augment((0.0,), (1.0,), padding=2, degrees=0).train(x, rng(0))
    places = out.flatten(1).argmax(1).bincount(minlength=81)
    assert (places > 0).sum() == 25
    assert places[places > 0].min() > 100  # 160 expected
    x[:, 4, 4], x[:, 4, 0] = 0, 255
    out = Augment((0.0,), (1.0,), padding=0, mirror=True, degrees=0).train(x, rng(0))
    assert 1800 < int(out[:, 0, 4, 8].sum()) < 2200


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("shape", [(8, 8), (8, 12)])
def test_a_tiny_rotation_agrees_with_the_exact_gather(mirror: bool, shape: tuple[int, int]) -> None:
    x = batch(16, *shape)
    exact = Augment(**ONE, padding=2, mirror=mirror, degrees=0).train(x, rng(3))
    turned = Augment(**ONE, padding=2, mirror=mirror, degrees=1e-4).train(x, rng(3))
    torch.testing.assert_close(turned, exact, atol=0.2, rtol=0)


@pytest.mark.parametrize(("h", "w"), [(33, 33), (33, 65)])
def test_the_angle_is_an_angle_whatever_the_shape(h: int, w: int) -> None:
    """A dot right of the middle moves on a circle, by less than `degrees`."""
    x = torch.zeros(500, h, w, 1, dtype=torch.uint8)
    x[:, h // 2, w // 2 + 12] = 255
    out = Augment((0.0,), (1.0,), padding=0, degrees=10).train(x, rng(0))[:, 0]
    mass = out.sum((1, 2))
    row = (out * torch.arange(h).view(1, -1, 1)).sum((1, 2)) / mass - h // 2
    column = (out * torch.arange(w).view(1, 1, -1)).sum((1, 2)) / mass - w // 2
    angle = torch.atan2(row, column) * 180 / math.pi
    assert angle.abs().max() < 12  # a dot is blended over whole pixels
    assert angle.min() < -7
    assert angle.max() > 7
    assert (torch.hypot(row, column) - 12).abs().max() < 0.6


def test_what_enters_is_black() -> None:
    x = torch.full((50, 8, 8, 3), 255, dtype=torch.uint8)
    for degrees in (0.0, 10.0):
        out = Augment((0.5,) * 3, (0.5,) * 3, padding=4, degrees=degrees).train(x, rng(1))
        assert float(out.min()) == pytest.approx(-1, abs=1e-6)
        assert float(out.max()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("degrees", [0.0, 10.0])
def test_the_generator_decides_everything(degrees: float) -> None:
    x, augment = batch(), Augment((0.5,) * 3, (0.5,) * 3, mirror=True, degrees=degrees)
    first = augment.train(x, rng(0, 1, "augment", 2, 3))
    torch.manual_seed(5)
    assert torch.equal(first, augment.train(x, rng(0, 1, "augment", 2, 3)))
    assert not torch.equal(first, augment.train(x, rng(0, 1, "augment", 2, 4)))
    assert torch.equal(x, batch()), "the batch itself is left alone"


def test_it_goes_through_json() -> None:
    augment = Augment((0.5,), (0.25,), padding=2, mirror=True, degrees=5.0)
    again = json.loads(json.dumps(dataclasses.asdict(augment)))
    assert Augment(**{**again, **{name: tuple(again[name]) for name in ("mean", "std", "jitter")}}) == augment


def test_one_image_and_none() -> None:
    for n in (0, 1):
        for degrees in (0.0, 10.0):
            assert Augment((0.5,) * 3, (0.5,) * 3, degrees=degrees).train(batch(1)[:n], rng(0)).shape == (n, 3, 8, 10)


def grey(x: np.ndarray) -> np.ndarray:
    return (x @ np.array([0.299, 0.587, 0.114]))[..., None]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_jitter_is_a_factor_of_brightness_contrast_or_saturation(which: int) -> None:
    """Image by image: what a plain formula gives for some factor from 1 - j to 1 + j, cut off at 0 and 255."""
    x, jitter = batch(40), tuple(0.4 * (i == which) for i in range(3))
    out = Augment(**ONE, padding=0, degrees=0, jitter=jitter).train(x, rng(0)).permute(0, 2, 3, 1).double().numpy()
    found = []
    for before, after in zip(x.double().numpy(), out):
        about = [np.zeros(1), grey(before).mean(), grey(before)][which]
        far = before - about
        free = (after > 0.5) & (after < 254.5) & (np.abs(far) > 20)
        factor = np.median((after - about)[free] / far[free])
        np.testing.assert_allclose(after, np.clip(about + factor * far, 0, 255), atol=1e-2)
        found.append(factor)
    assert 0.6 <= min(found) < 0.75
    assert 1.25 < max(found) <= 1.4


def test_all_three_at_once_stay_pictures_and_grey_pictures_stay_grey() -> None:
    out = Augment(**ONE, padding=0, degrees=5, jitter=(1.0, 1.0, 1.0)).train(batch(60), rng(1))
    assert float(out.min()) >= 0
    assert float(out.max()) <= 255.001
    one = Augment((0.0,), (1 / 255,), padding=0, degrees=0, jitter=(0.0, 0.0, 0.9)).train(batch(c=1), rng(1))
    torch.testing.assert_close(one, batch(c=1).permute(0, 3, 1, 2).float())


def test_without_jitter_nothing_more_is_drawn() -> None:
    first, second = rng(0), rng(0)
    Augment(**ONE).train(batch(), first)
    Augment(**ONE, jitter=(0.5, 0.0, 0.0)).train(batch(), second)
    assert first.random() != second.random()
    a, b = (Augment(**ONE, jitter=j).train(batch(), rng(0)) for j in ((0.0, 0.0, 0.0), (1e-9, 0.0, 0.0)))
    torch.testing.assert_close(a, b)  # the same crops and angles
