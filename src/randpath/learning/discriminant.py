"""A second opinion beside the classifier: the exemplars' linear discriminant, solved after each task."""

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
    ends. Their means and their common covariance can not be learned by heart. The covariance is shrunk by
    d / (d + n), n exemplars with d features. Where mirror images are trained on, each exemplar is there twice.
    """
    head = answer.head
    views = [answer.features, lambda x: answer.features(x.flip(-1))][: 2 if augment.mirror else 1]
    sums = Sums.nothing(head.num_features)
    for view in views:
        f = predict(view, exemplars, augment, head.weight.device)
        for c in np.unique(exemplars.labels).tolist():
            sums = sums.plus(f[torch.from_numpy(exemplars.labels == c)], c)
    d, n = head.num_features, len(exemplars)
    W, b = lda(sums, d / (d + n))
    head.weight.add_(W.to(head.weight), alpha=weight)
    head.bias.add_(b.to(head.bias), alpha=weight)
