"""All methods, by the names that `--method` takes; read top to bottom."""

from randpath.learning.method import Method
from randpath.methods.der import DER
from randpath.methods.finetune import FineTune
from randpath.methods.icarl import ICaRL
from randpath.methods.joint import Joint
from randpath.methods.lwf import LwF
from randpath.methods.rehearsal import Rehearsal
from randpath.methods.rps import RPS

METHODS: dict[str, type[Method]] = {
    "rps": RPS,  # Adaptive RPS-Net, and the 2019 RPS-Net with switch_every
    "finetune": FineTune,
    "rehearsal": Rehearsal,
    "joint": Joint,
    "lwf": LwF,
    "icarl": ICaRL,
    "der": DER,
}
