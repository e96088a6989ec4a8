"""What a model says of pictures, as `predict --json` prints it and `serve` sends it."""

from typing import Any

import numpy as np

from randpath.data.dataset import Dataset
from randpath.model.model import Model
from randpath.model.stored import encode_label


def answers(model: Model, data: Dataset, top: int = 1) -> list[dict[str, Any]]:
    """For each item its label, the confidence and whether it may be unknown; with top > 1 also the best so many."""
    p, unknown = model.answers(data)
    found = []
    for row, is_unknown in zip(p, unknown):
        best = np.argsort(-row, kind="stable")[:top].tolist()
        ranked = [{"label": encode_label(model.names[c]), "confidence": float(row[c])} for c in best]
        found.append({**ranked[0], "unknown": bool(is_unknown), **({"top": ranked} if top > 1 else {})})
    return found
