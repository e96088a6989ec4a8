"""A second opinion beside the classifier: the exemplars' linear discriminant."""

import numpy as np
import torch

from randpath.data.augment import Augment
from randpath.data.dataset import Dataset
from randpath.learning.closed import Sums, lda
from randpath.learning.train import predict
from randpath.network.fold import Folded


@torch.no_grad()
def add_discriminant(answer: Folded, exemplars: Dataset, weight: float, augment: Augment) -> None:
    """W f + b becomes W f + b + weight (W' f + b'), W' and b' of the linear discriminant of the exemplars' features.

    A classifier soon knows the few exemplars of an old class by heart, and they teach it no longer where that class
    ends. Their means and their common covariance cannot be learned by heart. The covariance is shrunk by
    d / (d + n), n exemplars with d features. Where mirror images are trained on, each exemplar is there twice.
    """
    head, classes = answer.head, np.unique(exemplars.labels)
    d, n = head.num_features, len(exemplars)
    if n <= len(classes):  # nothing tells how far a class spreads
        return
    views = [answer.features]
    if augment.mirror and len(exemplars.shape) == 3:
        views.append(lambda x: answer.features(x.flip(-1)))
    f = torch.stack([predict(view, exemplars, augment, head.weight.device) for view in views])
    sums = Sums.nothing(d)
    for i, c in enumerate(classes):
        sums = sums.plus(f[:, torch.from_numpy(exemplars.labels == c)].flatten(0, 1), i)
    W, b = lda(sums, d / (d + n))
    # What all classes have in common says nothing; without it a class that has no exemplar keeps its own logit.
    head.weight[classes] += weight * (W - W.mean(dim=0)).to(head.weight)
    head.bias[classes] += weight * (b - b.mean()).to(head.bias)
