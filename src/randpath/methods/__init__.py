"""All methods, by the names that `--method` takes; read top to bottom."""

from randpath.learning.method import Method
from randpath.methods.der import DER
from randpath.methods.dgr import DGR
from randpath.methods.dmc import DMC
from randpath.methods.ewc import EWC
from randpath.methods.finetune import FineTune
from randpath.methods.fixedrep import FixedRepresentation
from randpath.methods.gem import GEM
from randpath.methods.icarl import ICaRL
from randpath.methods.joint import Joint
from randpath.methods.logistic import JointLogistic, Logistic
from randpath.methods.lwf import LwF
from randpath.methods.mas import MAS
from randpath.methods.ncm import NCM
from randpath.methods.online_ewc import OnlineEWC
from randpath.methods.progressive import Progressive
from randpath.methods.ranpac import RanPAC
from randpath.methods.rehearsal import Rehearsal
from randpath.methods.rps import RPS, AnchoredRPS
from randpath.methods.rtf import RtF
from randpath.methods.rwalk import RWalk
from randpath.methods.si import SI
from randpath.methods.slda import SLDA

METHODS: dict[str, type[Method]] = {
    "rps": RPS,  # Adaptive RPS-Net, and the 2019 RPS-Net with switch_every
    "joint": Joint,
    "finetune": FineTune,
    "fixedrep": FixedRepresentation,
    # weights held where they mattered
    "ewc": EWC,
    "online_ewc": OnlineEWC,
    "si": SI,
    "mas": MAS,
    "rwalk": RWalk,
    # distillation
    "lwf": LwF,
    "dmc": DMC,
    # exemplars
    "rehearsal": Rehearsal,
    "icarl": ICaRL,
    "gem": GEM,
    # drawn pictures
    "dgr": DGR,
    "rtf": RtF,
    # a part per task
    "progressive": Progressive,
    "der": DER,
    # for feature vectors
    "anchored": AnchoredRPS,  # Adaptive RPS-Net beside a closed-form solution: what a model with a start is
    "logistic": Logistic,
    "joint_logistic": JointLogistic,
    # solved, not trained
    "ncm": NCM,
    "slda": SLDA,
    "ranpac": RanPAC,
}
