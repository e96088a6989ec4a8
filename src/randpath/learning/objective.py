"""The incremental learning objective: L = L_ce + phi(k, gamma) * L_dist (section 3.4)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(q: Tensor, labels: Tensor, log_counts: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
    """L_ce = -1/n sum_i t_i log softmax(q_i), over all classes seen.

    With `log_counts` (the logarithm of each class's number of training images) it is the balanced softmax: the logits
    learn to be right for equally frequent classes although the memory holds few images of the old ones. Not in the
    paper; the `tuned` recipes use it.

    `smoothing` is the share of each target that all classes have in common, in equal parts; under the balanced softmax
    in parts as their numbers of images: equal parts would say that rare classes are frequent, and hold the others down.

    >>> import torch
    >>> round(cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1])).item(), 4)
    0.6931
    """
    if log_counts is None:
        return F.cross_entropy(q, labels, label_smoothing=smoothing)
    q = q + log_counts
    if not smoothing:
        return F.cross_entropy(q, labels)
    common = log_counts.softmax(dim=-1)  # n_c / n
    return (1 - smoothing) * F.cross_entropy(q, labels) + smoothing * F.cross_entropy(q, common.expand_as(q))


def log_counts(labels: np.ndarray, num_classes: int) -> Tensor:
    """log n_c, n_c the number of training images of class c, for the balanced softmax; none counts as one.

    >>> log_counts(np.array([0, 0, 2]), 3).exp().round().tolist()
    [2.0, 1.0, 1.0]
    """
    return torch.from_numpy(np.bincount(labels, minlength=num_classes)).clamp(min=1).float().log()


def distillation(q: Tensor, q_teacher: Tensor, temperature: float = 2.0) -> Tensor:
    """L_dist = 1/n sum_i KL(softmax(q'_i / t) || softmax(q_i / t)), over the old classes: those the teacher knows.

    No t^2 factor: the paper's controller phi scales the term.

    >>> import torch
    >>> distillation(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[1.0, 2.0]])).item()
    0.0
    """
    old = q[:, : q_teacher.shape[1]]
    log_student = F.log_softmax(old / temperature, dim=1)
    log_teacher = F.log_softmax(q_teacher / temperature, dim=1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


def phi(k: int, gamma: float, switches: Sequence[int]) -> float:
    """The controller: 1 if k <= S_0, else (k - S_0) * gamma; S_0 is the task of the first switch. No switch yet: 1.

    >>> phi(3, 2.5, []), phi(2, 2.5, [2, 4]), phi(4, 2.5, [2, 4])
    (1.0, 1.0, 5.0)
    """
    if not switches or k <= switches[0]:
        return 1.0
    return (k - switches[0]) * gamma


def phi_by_ratio(old: int, new: int, gamma: float) -> float:
    """Our controller, for `tuned`: gamma * sqrt(old classes / new classes), more for more that is to be kept.

    >>> phi_by_ratio(90, 10, 1.5), phi_by_ratio(0, 10, 1.5)
    (4.5, 0.0)
    """
    return gamma * math.sqrt(old / max(new, 1))


def soft_cross_entropy(q: Tensor, q_teacher: Tensor, temperature: float = 2.0) -> Tensor:
    """-t^2 / n sum_i sum_c softmax(q'_i / t)_c log softmax(q_i / t)_c over all classes; a new class's target is 0.

    What replayed pictures are learned with (RtF): unlike `distillation`, it also pushes the new classes down.

    >>> round(soft_cross_entropy(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[5.0, 1.0]]), 1.0).item(), 4)
    1.0986
    """
    target = F.softmax(q_teacher / temperature, dim=1)
    log_student = F.log_softmax(q / temperature, dim=1)[:, : q_teacher.shape[1]]
    return -(temperature**2) * (target * log_student).sum(dim=1).mean()


def double_distillation(q: Tensor, q_old: Tensor, q_new: Tensor) -> Tensor:
    """1/n sum_i mean_c (q_i,c - target_i,c)^2, targets: the two teachers' logits, each less its mean over its classes.

    DMC, eq. 5 to 7: the student regresses the old network's logits and those of one that knows the new classes alone.

    >>> q, q_old, q_new = torch.tensor([[1.0, -1.0, 3.0]]), torch.tensor([[6.0, 4.0]]), torch.tensor([[9.0]])
    >>> double_distillation(q, q_old, q_new).item()  # targets 1, -1, 0
    3.0
    """
    target = torch.cat([part - part.mean(dim=1, keepdim=True) for part in (q_old, q_new)], dim=1)
    return (q - target).square().mean()
