"""How much each parameter matters for what was learned, and the penalty for moving it: EWC, MAS, SI, RWalk."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.keyed import rng
from randpath.learning.fisher import gradients, log_likelihood

Named = dict[str, Tensor]  # one number for each number of each parameter
Labels = Literal["model", "true"]


def penalty(params: Mapping[str, Tensor], anchor: Mapping[str, Tensor], importance: Mapping[str, Tensor]) -> Tensor:
    """sum_j Omega_j (theta_j - theta*_j)^2.

    >>> w = {"w": torch.tensor([1.0, 2.0])}
    >>> penalty(w, {"w": torch.tensor([0.0, 0.0])}, {"w": torch.tensor([3.0, 0.5])}).item()
    5.0
    """
    return torch.stack([(importance[n] * (p - anchor[n]).square()).sum() for n, p in params.items()]).sum()


def values(net: nn.Module) -> Named:
    """A copy of each parameter as it stands."""
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def sample(
    data: Dataset, augment: Augment, device: str, images: int | None, *key: int | str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised batches of at most `images` images (none: all), drawn without repetition by the key."""
    chosen = np.arange(len(data))
    if images is not None and images < len(data):
        chosen = np.sort(rng(*key, "sample").choice(len(data), images, replace=False))
    for x, y in data.batches(np.array_split(chosen, -(-len(chosen) // 128))):
        yield augment.plain(x.to(device)), y.to(device)


def fisher(
    net: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], num_classes: int, labels: Labels = "model"
) -> Named:
    """F_j = mean over images x of E_y (d log p(y | x) / d theta_j)^2, image by image: never a batch's mean, squared.

    `model`: y is distributed as the network says, the Fisher information proper, as an exact sum over all classes.
    `true`: y is the image's label, the empirical Fisher information.
    """
    if labels == "true":
        return _mean(net, batches, log_likelihood, torch.square)

    def weighted(q: Tensor, y: Tensor) -> Tensor:
        """sqrt(p(y)) log p(y), p(y) held still: its squared gradient is p(y) (d log p(y) / d theta)^2."""
        log_p = log_likelihood(q, y)
        return log_p * (log_p.detach() / 2).exp()

    every_label = ((x, torch.full_like(y, c)) for x, y in batches for c in range(num_classes))
    mean = _mean(net, every_label, weighted, torch.square)  # over images and labels
    return {name: num_classes * value for name, value in mean.items()}


def sensitivity(net: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> Named:
    """Omega_j = mean over images x of |d |q(x)|^2 / d theta_j| (MAS, eq. 3 with the squared norm of the output)."""
    return _mean(net, batches, lambda q, y: q.square().sum(), torch.abs)


def _mean(
    net: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    of: Callable[[Tensor, Tensor], Tensor],
    what: Callable[[Tensor], Tensor],
) -> Named:
    """The mean over images of `what` of each image's own gradient, added up in float64."""
    params = dict(net.named_parameters())
    total = [torch.zeros_like(p, requires_grad=False, dtype=torch.float64) for p in params.values()]
    seen = 0
    for chunk in gradients(net, None, list(params.values()), batches, of):
        seen += len(chunk[0])
        for sum_, g in zip(total, chunk):
            sum_ += what(g.double()).sum(dim=0)
    return {name: (sum_ / max(seen, 1)).to(p.dtype) for (name, p), sum_ in zip(params.items(), total)}


def path_integral(total: Mapping[str, Tensor], before: Mapping[str, Tensor], now: nn.Module, g: Named) -> None:
    """omega_j += -g_j (theta_j after the step - theta_j before): what each parameter took off the loss (SI, eq. 3)."""
    with torch.no_grad():
        for name, p in now.named_parameters():
            total[name].sub_(g[name] * (p - before[name]))
