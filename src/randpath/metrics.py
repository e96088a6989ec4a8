"""What is measured of a class-incremental learner: functions of arrays, no torch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """The share of items that are right.

    >>> accuracy([0, 1, 2, 2], [0, 1, 1, 2])
    0.75
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predicted)))


def mean_class_accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """The mean over classes of the accuracy within the class: how candidates are compared.

    >>> mean_class_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    y, guess = np.asarray(labels), np.asarray(predicted)
    return float(np.mean([np.mean(guess[y == c] == c) for c in np.unique(y)]))


def class_weights(labels: np.ndarray) -> np.ndarray:
    """A weight for each item so that all classes together weigh the same: old classes have few held-out pictures.

    >>> class_weights(np.array([0, 0, 1])).tolist()
    [0.25, 0.25, 0.5]
    """
    counts = np.bincount(labels)
    return np.asarray(1 / (counts[labels] * np.count_nonzero(counts)))


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean over tasks j < k of (best earlier accuracy - present accuracy) of task j; none with one task.

    Row k of `matrix` holds the accuracies on tasks 1..k after task k.

    >>> round(forgetting([[0.9], [0.7, 0.8], [0.8, 0.5, 0.9]]), 3)
    0.2
    """
    k = len(matrix) - 1
    if k == 0:
        return None
    return float(np.mean([max(row[j] for row in matrix[j:k]) - matrix[k][j] for j in range(k)]))


def average_incremental_accuracy(A: Sequence[float]) -> float:
    """Mean of A_1..A_K.

    >>> average_incremental_accuracy([1.0, 0.5])
    0.75
    """
    return float(np.mean(A))


def confusion(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> np.ndarray:
    """counts[true, predicted].

    >>> confusion([0, 1, 1], [0, 0, 1], 2).tolist()
    [[1, 0], [1, 1]]
    """
    counts = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(counts, (np.asarray(labels), np.asarray(predicted)), 1)
    return counts


def backward_transfer(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean over tasks j < K of (final accuracy - accuracy just after learning) of task j; none with one task.

    >>> round(backward_transfer([[0.9], [0.7, 0.8]]), 3)
    -0.2
    """
    K = len(matrix)
    if K == 1:
        return None
    return float(np.mean([matrix[-1][j] - matrix[j][j] for j in range(K - 1)]))


def top_accuracy(labels: ArrayLike, scores: ArrayLike, n: int = 5) -> float:
    """The share of items whose class is among the n highest scores.

    >>> top_accuracy([2], [[0.5, 0.3, 0.2]], 2), top_accuracy([1], [[0.5, 0.3, 0.2]], 2)
    (0.0, 1.0)
    """
    order = np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, :n]
    return float(np.mean((order == np.asarray(labels)[:, None]).any(axis=1)))


def forward_transfer(matrix: Sequence[Sequence[float]], alone: Sequence[float]) -> float | None:
    """Mean over tasks j > 1 of (accuracy on task j just after learning it - accuracy of learning task j alone).

    `alone[j]`: the accuracy that the same network reaches on task j's classes when it learns nothing else. The form of
    Lopez-Paz and Ranzato (2017) tests a task before it is learned: there a classifier that grows has no logit for it.

    >>> round(forward_transfer([[0.9], [0.7, 0.8], [0.8, 0.5, 0.9]], [0.9, 0.7, 0.95]), 3)
    0.025
    """
    if len(alone) != len(matrix):
        raise ValueError(f"{len(matrix)} tasks, but {len(alone)} accuracies of tasks learned alone")
    if len(matrix) == 1:
        return None
    return float(np.mean([matrix[j][j] - alone[j] for j in range(1, len(matrix))]))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and the sample standard deviation (n - 1); none with one seed.

    >>> mean_and_deviation([1.0, 2.0, 3.0]), mean_and_deviation([0.5])
    ((2.0, 1.0), (0.5, None))
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), deviation


def spread(values: Sequence[float]) -> str:
    """The same, to be read.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([])
    ('2.00 ± 1.41', '2.00', '-')
    """
    if not values:
        return "-"
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def class_accuracies(counts: ArrayLike) -> list[float | None]:
    """The accuracy within each class, from confusion counts[true, predicted]; none for a class without items.

    >>> class_accuracies([[3, 1, 0], [0, 2, 0], [0, 0, 0]])
    [0.75, 1.0, None]
    """
    c = np.asarray(counts)
    return [float(row[i] / row.sum()) if row.sum() else None for i, row in enumerate(c)]
