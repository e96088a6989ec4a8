"""randpath teaches an image classifier new classes without its old data: Adaptive RPS-Net.

The paper's letters, as the code uses them inside equations:

    k, K        task number (from 1), number of tasks
    L, M        layers, parallel modules a layer
    P           path: one module a layer, an L x M matrix of 0 and 1
    P_fixed     what was frozen at the last switch
    P_tr        P xor (P and P_fixed): what is trained
    P_ts        P_fixed or P: what answers at inference
    N           candidate paths tried after a switch
    tau         weight of a module's output in the last layer (attention)
    I, mu_sat   element-wise maximum of per-image squared gradients; relative saturation
    S           the tasks after which the path was switched; S_0 the first
    phi, gamma  weight of the distillation loss (the controller) and its scale
    q, q'       logits of the network and of its previous state (the teacher)
    A_k         accuracy on the test images of all classes seen, after task k
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from randpath.backbones import Backbone as Backbone
    from randpath.estimator import PathClassifier as PathClassifier
    from randpath.experiment import Experiment as Experiment
    from randpath.experiment import run as run
    from randpath.fold import fold as fold
    from randpath.methods import METHODS as METHODS
    from randpath.network import PathNetwork as PathNetwork
    from randpath.path import Path as Path
    from randpath.train import Training as Training

_PLACES = {
    "Backbone": "backbones",
    "Experiment": "experiment",
    "METHODS": "methods",
    "Path": "path",
    "PathClassifier": "estimator",
    "PathNetwork": "network",
    "Training": "train",
    "fold": "fold",
    "run": "experiment",
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are asked for: `import randpath` costs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"randpath has no {name!r}; it has {', '.join(_PLACES)}")
    return getattr(import_module(f"randpath.{_PLACES[name]}"), name)
