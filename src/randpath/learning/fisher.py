"""Per-image squared gradients of the log-likelihood: their element-wise maximum (ours) and mean (EWC's)."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from randpath.network.path import Path

# Below this many gradient values an image, vmap over a chunk beats a loop of single images (benchmarks/fisher.py).
VMAP_LIMIT = 200_000
VMAP_FLOATS = 4_000_000  # gradient values in flight at once: they should stay in the cache


def log_likelihood(q: Tensor, y: Tensor) -> Tensor:
    """log f(x; theta) of the true label: the log-softmax over the classes seen; q (classes,), y a number."""
    return F.log_softmax(q, dim=0).gather(0, y.unsqueeze(0)).squeeze(0)


def gradients(
    net: nn.Module,
    path: Path | None,  # none: the module is called with x alone
    parameters: Sequence[nn.Parameter],
    batches: Iterable[tuple[Tensor, Tensor]],
    of: Callable[[Tensor, Tensor], Tensor] = log_likelihood,
) -> Iterator[list[Tensor]]:
    """For every chunk of images, d of(q_i, y_i) / d theta for each image i and each of `parameters`.

    The square for the log-likelihood is the diagonal of the empirical Fisher information. Never a batch's mean
    gradient. Batch-norm is in eval mode. Whoever squares does so in float64: of well fitted images the squares are too
    small for float32.
    """
    names = {id(p): name for name, p in net.named_parameters()}
    everything = {name: p.detach() for name, p in net.named_parameters()}  # no graph where no gradient is asked for
    chosen = {names[id(p)]: p.detach() for p in parameters}
    size = sum(p.numel() for p in parameters)
    chunk = max(1, VMAP_FLOATS // size)
    was_training = net.training
    net.eval()

    def scalar(some: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        arguments = (x.unsqueeze(0),) if path is None else (x.unsqueeze(0), path)
        return of(functional_call(net, {**everything, **some}, arguments).squeeze(0), y)

    for x, y in batches:
        if size <= VMAP_LIMIT:
            per_image = vmap(grad(scalar), in_dims=(None, 0, 0))
            for xs, ys in zip(torch.split(x, chunk), torch.split(y, chunk)):
                g = per_image(chosen, xs, ys)
                yield [g[name] for name in chosen]
        else:
            wanted = [p.detach().requires_grad_() for p in parameters]
            for xi, yi in zip(x, y):
                one = scalar(dict(zip(chosen, wanted)), xi, yi)
                yield [g.unsqueeze(0) for g in torch.autograd.grad(one, wanted)]
    net.train(was_training)


def fisher_max(
    net: nn.Module,
    path: Path | None,
    parameters: Sequence[nn.Parameter],
    batches: Iterable[tuple[Tensor, Tensor]],
    of: Callable[[Tensor, Tensor], Tensor] = log_likelihood,
) -> list[Tensor]:
    """I = max over images of F_i, element by element (eq. 5)."""
    largest = [torch.zeros_like(p, requires_grad=False) for p in parameters]  # |gradient|
    for chunk in gradients(net, path, parameters, batches, of):
        for present, g in zip(largest, chunk):
            torch.maximum(present, g.abs().amax(dim=0), out=present)
    return [g.double().square() for g in largest]


def fisher_mean(
    net: nn.Module, path: Path | None, parameters: Sequence[nn.Parameter], batches: Iterable[tuple[Tensor, Tensor]]
) -> list[Tensor]:
    """F = mean over images of F_i, element by element: what EWC weighs its penalty with."""
    total = [torch.zeros_like(p, requires_grad=False, dtype=torch.float64) for p in parameters]
    count = 0
    for chunk in gradients(net, path, parameters, batches):
        count += len(chunk[0])
        for sum_, g in zip(total, chunk):
            sum_ += g.double().square().sum(dim=0)
    return [sum_ / max(count, 1) for sum_ in total]
