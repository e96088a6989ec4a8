"""The nearest vector that points away from none of several others: the quadratic programme of GEM, solved exactly."""

import numpy as np
import torch
from torch import Tensor


def project(g: Tensor, G: Tensor, margin: float = 0.0) -> Tensor:
    """g' = g + G^T v, with v >= margin the minimum of 1/2 v^T G G^T v + (G g)^T v; g itself if no constraint is broken.

    With margin 0 it is the vector nearest to g with <g', g_t> >= 0 for every row g_t of G (GEM, eq. 8 to 11).

    >>> project(torch.tensor([1.0, -1.0]), torch.tensor([[0.0, 2.0]])).tolist()
    [1.0, 0.0]
    """
    products = G @ g
    if bool((products >= 0).all()) or not bool(products.isfinite().all()):
        return g  # what is not finite is for the training loop to name
    Q = (G @ G.T).double().cpu().numpy()
    # With v = w + margin, w >= 0, the programme is one over w with the same Q.
    c = products.double().cpu().numpy() + Q @ np.full(len(Q), margin)
    v = non_negative_minimum(Q, c) + margin
    return g + torch.from_numpy(v).to(g) @ G


def non_negative_minimum(Q: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The w >= 0 that makes 1/2 w^T Q w + c^T w smallest, Q symmetric and positive semidefinite.

    Lawson and Hanson's active set (1974): let in the variable whose gradient is steepest, solve for those that are in,
    and step back to the boundary when one of them would turn negative. It ends after finitely many steps.

    >>> non_negative_minimum(np.diag([2.0, 4.0]), np.array([-2.0, 3.0])).tolist()
    [1.0, 0.0]
    """
    n = len(c)
    w, inside = np.zeros(n), np.zeros(n, bool)
    scale = max(float(np.abs(Q).max()), 1e-300)
    Q, c = Q / scale, c / scale  # the same minimum; gradients may be tiny
    tolerance = 1e-12 * max(1.0, float(np.abs(c).max()))
    for _ in range(3 * n + 10):  # exact arithmetic needs no limit
        slope = -(Q @ w + c)
        outside = ~inside
        if not outside.any() or slope[outside].max() <= tolerance:
            return w
        inside[np.flatnonzero(outside)[np.argmax(slope[outside])]] = True
        while True:
            goal = np.zeros(n)
            goal[inside] = np.linalg.lstsq(Q[np.ix_(inside, inside)], -c[inside], rcond=None)[0]
            negative = inside & (goal <= 0)
            if not negative.any():
                break
            share = float(np.min(w[negative] / np.maximum(w[negative] - goal[negative], 1e-300)))
            w = w + share * (goal - w)
            inside &= w > tolerance
            w[~inside] = 0.0
        w = goal
    return w
