"""What a learner costs: FLOPs and bytes."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode


def count_flops(logits: Callable[[Tensor], Tensor], shape: tuple[int, ...], device: str = "cpu") -> int:
    """FLOPs (two per multiply-add) of one item."""
    size = (1, shape[2], shape[0], shape[1]) if len(shape) == 3 else (1, *shape)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        logits(torch.zeros(size, device=device))
    return int(counter.get_total_flops())


def megabytes(tensors: Mapping[str, Mapping[str, Tensor]]) -> float:
    """Model and exemplars, as stored: tensors by file.

    >>> megabytes({"weights": {"w": torch.zeros(250_000)}})
    1.0
    """
    return round(sum(t.nbytes for group in tensors.values() for t in group.values()) / 1e6, 4)
