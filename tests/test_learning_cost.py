"""What a network costs, by hand."""

import torch
from torch import nn

from randpath.learning.cost import count_flops, megabytes


def test_megabytes_are_millions_of_bytes():
    large = torch.empty(1_500_000_000, dtype=torch.uint8, device="meta")
    assert megabytes({"a": {"w": large}, "b": {"w": torch.zeros(250)}}) == 1500.001


def test_flops_of_one_picture_and_of_one_vector():
    """Two each for 3 x 4 places of 2 filters of 3 channels x 9 pixels; and for 5 numbers to 7."""
    assert count_flops(nn.Conv2d(3, 2, 3), (5, 6, 3), "cpu") == 2 * (3 * 4) * 2 * (3 * 9)
    assert count_flops(nn.Linear(5, 7), (5,), "cpu") == 2 * 5 * 7
