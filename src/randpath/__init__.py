"""randpath teaches an image classifier new classes without its old data: Adaptive RPS-Net.

The paper's letters, as the code uses them inside equations:

    k, K        task number (from 1), number of tasks
    L, M        layers, parallel modules per layer
    P           path: one module per layer, an L x M matrix of 0 and 1
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

from randpath import moved

if TYPE_CHECKING:
    from dataclasses import replace as replace

    from randpath.bench.experiment import Experiment as Experiment
    from randpath.bench.load import load_run as load_run
    from randpath.bench.run import run as run
    from randpath.learning.train import Training as Training
    from randpath.methods import METHODS as METHODS
    from randpath.model.classifier import PathClassifier as PathClassifier
    from randpath.network.backbones import Backbone as Backbone
    from randpath.network.fold import fold as fold
    from randpath.network.layers import PathNetwork as PathNetwork
    from randpath.network.path import Path as Path

_PLACES = {
    "Backbone": "randpath.network.backbones",
    "Experiment": "randpath.bench.experiment",
    "METHODS": "randpath.methods",
    "Path": "randpath.network.path",
    "PathClassifier": "randpath.model.classifier",
    "PathNetwork": "randpath.network.layers",
    "Training": "randpath.learning.train",
    "fold": "randpath.network.fold",
    "load_run": "randpath.bench.load",
    "replace": "dataclasses",  # recipes change an Experiment with it
    "run": "randpath.bench.run",
}
__all__ = [*_PLACES]

moved.tell_of_old_names()


def __getattr__(name: str) -> Any:
    """The public names, imported when they are asked for: `import randpath` costs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"randpath has no {name!r}; it has {', '.join(_PLACES)}{moved.hint(name)}")
    return getattr(import_module(_PLACES[name]), name)
