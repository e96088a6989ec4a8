"""The sixteen tables and figures of the paper's section 4: what each claims, how it is tried, and what would refute it.

An arm is one curve or row. Its commands are what `randpath bench` takes, without the seed: `small` for one CPU core,
`full` with the paper's settings, for GPUs. The rules were written before the first run of their item.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from randpath.paper import rules
from randpath.paper.rules import Rule, above_all, compare, higher, of_each, slowing  # fmt: skip

Scale = Literal["small", "full"]


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    name: str
    place: str  # in the paper
    title: str
    claim: str
    rule: Rule
    small: Mapping[str, str]  # arm -> arguments of bench
    full: Mapping[str, str]
    published: Mapping[str, float] = field(default_factory=dict)  # arm -> final accuracy in the paper
    picture: Literal["accuracy", "top5", "parameters", "flops", "saturation", "convergence", "matrix"] = "accuracy"
    differs: str = ""  # between the paper and the small scale, beyond size
    needs: str = ""  # data that must be put in place first
    seeds: Sequence[int] = (0, 1)
    minutes: float = 0.0  # CPU time of all small runs, estimated before the first; 0 where there are none


MNIST, CIFAR20 = "mnist_5_small --variant paper", "cifar20_10_small --variant paper"
ARENA = "mnist_5_arena --variant paper"  # the protocol's own settings, for all methods
CIFAR, SVHN = "cifar100_10 --variant paper", "svhn_5 --variant paper"


def _sets(**settings: object) -> str:
    """As bench takes them.

    >>> _sets(options_gamma=2, memory=5)
    ' --set options.gamma=2 --set memory=5'
    """
    return "".join(f" --set {name.replace('_', '.', 1)}={value}" for name, value in settings.items())


def _rivals(base: str, *names: str) -> dict[str, str]:
    # DMC learns from pictures of no class of the stream: here those of SVHN, without labels.
    return {name: f"{base} --method {name}" + (_sets(auxiliary="svhn") if name == "dmc" else "") for name in names}


def _each(base: str, key: str, values: Sequence[object], **always: object) -> dict[str, str]:
    """An arm for each value of one setting."""
    letter = {"options_gamma": "gamma", "options_switch_every": "J", "modules": "M", "options_threshold": "th"}
    return {f"{letter.get(key, key)} = {v}": base + _sets(**{**always, key: v}) for v in values}


def _searches(base: str) -> dict[str, str]:
    genetic = base + _sets(options_search="tournament")
    return {
        "random": base,
        "tournament, 1 generation": genetic + _sets(options_generations=1),
        "tournament, 10 generations": genetic + _sets(options_generations=10),
    }


def _budgets(found: Mapping[str, Any]) -> list[int]:
    """The exemplar budgets of the arms "rps, N"."""
    return sorted(int(arm.removeprefix("rps, ")) for arm in found if arm.startswith("rps, "))


RIVALS = ("finetune", "fixedrep", "lwf", "ewc", "si", "mas", "rwalk", "dmc", "icarl")
ON_MNIST = ("joint", "ewc", "online_ewc", "si", "mas", "lwf", "gem", "dgr", "rtf")

SMALL_TREE = _sets(size=64, padding=8, width=16, memory=500, training_epochs=8)

ATTENTION = ("peak", "mean", "conv", "channel", "none")

ITEMS = (
    Item(
        name="curves", place="figure 4", title="Accuracy over 20, 10, 5 and 2 tasks on CIFAR-100",
        claim="Adaptive RPS-Net ends above every other method in all four settings: in 10 tasks 7.3 points above "
        "iCaRL; in 2 tasks 3.2 points below joint training.",
        rule=Rule(
            "rps ends above every other method but joint training in ten tasks, and above iCaRL in 20, 5 and 2",
            lambda found: above_all(found, "rps", *RIVALS, "rehearsal")
            + [higher(found, f"rps, {k} tasks", f"icarl, {k} tasks") for k in (20, 5, 2) if "icarl, 2 tasks" in found]),
        small={"rps": CIFAR20, **_rivals(CIFAR20, "rehearsal", *RIVALS, "joint")}
        | {f"{m}, {k} tasks": f"{CIFAR20} --method {m}" + _sets(tasks=k) for k in (20, 5, 2) for m in ("rps", "icarl")},
        full={
            **{f"rps, {k} tasks": f"cifar100_{k} --variant paper" for k in (20, 5, 2)}, "rps": CIFAR,
            **_rivals(CIFAR, *RIVALS, "joint"),
        },
        published={
            "rps": 0.6083, "rps, 20 tasks": 0.5354, "dmc": 0.362, "lwf": 0.24, "si": 0.233, "rwalk": 0.18, "ewc": 0.164,
            "mas": 0.156, "finetune": 0.115, "fixedrep": 0.088, "icarl": 0.50,
        },
        differs="In 20, 5 and 2 tasks only iCaRL beside it. All methods choose on validation images.",
        seeds=(0,), minutes=40,
    ),
    Item(
        name="large", place="table 1", title="ImageNet-100, ImageNet-1K and MS-Celeb-10K in ten tasks",
        claim="Top-5 accuracy after ten tasks: 74.1 % against iCaRL's 63.5 % on ImageNet-100, 48.8 against 44.1 on "
        "ImageNet-1K, 69.2 against 65.5 on MS-Celeb-10K.",
        rule=Rule(
            "by top-5 accuracy, rps ends above iCaRL, fine-tuning, fixed representation and LwF on ImageNet-100, and "
            "above iCaRL on MS-Celeb",
            lambda found: [
                compare(found, f"{arm.partition(':')[0]}: rps", arm, lambda r: float(r["top5"][-1]))
                for arm in found if not arm.startswith("ImageNet-1K") and not arm.endswith("rps")
            ],
        ),
        small={
            "ImageNet-100: rps": "imagenet100_10 --variant paper" + SMALL_TREE + _sets(options_N=2),
            **{f"ImageNet-100: {m}": f"imagenet100_10 --variant paper --method {m}" + SMALL_TREE
               for m in ("finetune", "fixedrep", "lwf", "icarl")},
            "MS-Celeb: rps": "ms_celeb_10 --variant paper" + SMALL_TREE + _sets(options_N=2),
            "MS-Celeb: icarl": "ms_celeb_10 --variant paper --method icarl" + SMALL_TREE,
        },
        full={
            **{f"ImageNet-100: {m}": f"imagenet100_10 --variant paper --method {m}"
               for m in ("rps", "finetune", "fixedrep", "lwf", "icarl")},
            **{f"ImageNet-1K: {m}": f"imagenet1k_10 --variant paper --method {m}"
               for m in ("rps", "finetune", "fixedrep", "lwf", "icarl")},
            **{f"MS-Celeb: {m}": f"ms_celeb_10 --variant paper --method {m}" for m in ("rps", "icarl")},
        },
        published={
            "ImageNet-100: rps": 0.741, "ImageNet-100: finetune": 0.099, "ImageNet-100: fixedrep": 0.353,
            "ImageNet-100: lwf": 0.367, "ImageNet-100: icarl": 0.635, "ImageNet-1K: rps": 0.488,
            "ImageNet-1K: finetune": 0.082, "ImageNet-1K: fixedrep": 0.385, "ImageNet-1K: lwf": 0.242,
            "ImageNet-1K: icarl": 0.441, "MS-Celeb: rps": 0.692, "MS-Celeb: icarl": 0.655,
        },
        differs="The pictures: `examples/small_tree.py` lays out 50 of each class of CIFAR-100 (JPEG) like ImageNet, "
        "and 50 others like MS-Celeb. 64 pixels, 500 exemplars, eight epochs. It shows that the recipes run to their "
        "end, and nothing about ImageNet or faces.",
        needs="ImageNet (folders train and val, one sub-folder per class) in $RANDPATH_DATA/imagenet, and MS-Celeb in "
        "$RANDPATH_DATA/ms_celeb: `randpath data imagenet` says what goes where; or a small tree of the same layout "
        "(examples/small_tree.py)",
        picture="top5", seeds=(0,), minutes=20,
    ),
    Item(
        name="digits", place="table 2", title="MNIST and SVHN in five tasks",
        claim="96.16 % on MNIST and 90.83 % on SVHN after five tasks: above all methods compared, GEM, DGR and RtF "
        "among them, and near joint training (97.53, 93.23). Plain rehearsal is left out of the table.",
        rule=Rule(
            "rps ends above every other method but joint training, plain rehearsal among them",
            lambda found: above_all(found, "rps", "rehearsal", *(m for m in ON_MNIST if m != "joint")),
        ),
        small={"rps": ARENA, **_rivals(ARENA, "rehearsal", "finetune", *ON_MNIST)},
        full={
            "rps": "mnist_5 --variant paper", **_rivals("mnist_5 --variant paper", "rehearsal", *ON_MNIST),
            "SVHN: rps": SVHN, "SVHN: joint": f"{SVHN} --method joint", "SVHN: gem": f"{SVHN} --method gem",
        },
        published={
            "rps": 0.9616, "joint": 0.9753, "ewc": 0.1980, "online_ewc": 0.1977, "si": 0.1967, "mas": 0.1952,
            "lwf": 0.2417, "gem": 0.9220, "dgr": 0.9124, "rtf": 0.9256, "rehearsal": 0.9559, "SVHN: rps": 0.9083,
            "SVHN: joint": 0.9323, "SVHN: gem": 0.7561,
        },
        differs="MNIST only, four epochs, one candidate path. The paper leaves out plain rehearsal; 95.59 % is "
        "from the protocol's own repository.",
        minutes=40,
    ),
    Item(
        name="contributions", place="figure 5a", title="What each part of the method adds",
        claim="On CIFAR-100 in ten tasks: a single path 37.97 %, with distillation 44.93 %, with the controller phi "
        "51.76 %, with multiple paths 58.48 %.",
        rule=Rule(
            "each part adds to those before it",
            lambda found: [
                higher(found, "+ distillation", "single path"), higher(found, "+ controller", "+ distillation"),
                higher(found, "+ paths", "+ controller"),
            ],
        ),
        small={
            "single path": f"{CIFAR20} --method rehearsal",
            "+ distillation": CIFAR20 + _sets(modules=1, attention="none", options_N=1, options_threshold=99),
            "+ controller": CIFAR20
            + _sets(modules=1, attention="none", options_N=1, options_threshold=99, options_controller="ratio"),
            "+ paths": CIFAR20 + _sets(attention="none", options_switch_every=2),
        },
        full={
            "single path": f"{CIFAR} --method rehearsal",
            "+ distillation": CIFAR + _sets(modules=1, attention="none", options_N=1, options_threshold=99),
            "+ controller": CIFAR
            + _sets(modules=1, attention="none", options_N=1, options_threshold=99, options_controller="ratio"),
            "+ paths": CIFAR + _sets(attention="none", options_switch_every=2),
        },
        published={"single path": 0.3797, "+ distillation": 0.4493, "+ controller": 0.5176, "+ paths": 0.5848},
        differs="Without a switch the paper's phi stays 1, so the third arm grows phi by (old / new classes) instead.",
        minutes=30,
    ),
    Item(
        name="parameters", place="figure 5b", title="Parameters over tasks",
        claim="After ten tasks 72.26 M parameters: more than iCaRL's one network (21.3 M), far fewer than Progressive "
        "Nets (932.84 M), and growing like the logarithm of the number of tasks.",
        rule=Rule(
            "the parameters of rps grow less in the later half of the tasks than in the first, and end below those of "
            "Progressive Nets",
            lambda found: [
                of_each(found, "rps", lambda r: slowing(r["parameters_by_task"])),
                *(compare(found, arm, "rps", lambda r: r["parameters"] / 1e6) for arm in found if arm == "progressive"),
            ],
            noise=0.0,
        ),
        small={
            "rps": CIFAR20 + _sets(attention="none", options_switch_every=2, options_N=1, training_epochs=1),
            "one network": f"{CIFAR20} --method rehearsal" + _sets(training_epochs=1),
            "progressive": f"{CIFAR20} --method progressive" + _sets(training_epochs=1),
        },
        full={
            "rps": CIFAR + _sets(attention="none", options_switch_every=2),
            "one network": f"{CIFAR} --method rehearsal",
            "progressive": f"{CIFAR} --method progressive",
        },
        picture="parameters",
        differs="Switched by count, every two tasks, so that there is growth to see; one epoch and one candidate: "
        "parameters do not depend on them.",
        seeds=(0,), minutes=3,
    ),
    Item(
        name="exemplars", place="figure 5c", title="Exemplar budget",
        claim="Accuracy rises with the number of exemplars, and Adaptive RPS-Net is above iCaRL at every budget.",
        rule=Rule(
            "the largest budget ends above the smallest, and rps above iCaRL at each",
            lambda found: [
                *(higher(found, f"rps, {n}", f"rps, {_budgets(found)[0]}") for n in _budgets(found)[-1:]),
                *(higher(found, f"rps, {n}", f"icarl, {n}") for n in _budgets(found) if f"icarl, {n}" in found),
            ],
        ),
        small={
            f"{m}, {n}": f"{MNIST} --method {m}" + _sets(memory=n)
            for m in ("rps", "icarl", "rehearsal") for n in (200, 500, 1000, 2000)
        },
        full={
            f"{m}, {n}": f"{CIFAR} --method {m}" + _sets(memory=n)
            for m in ("rps", "icarl") for n in (500, 1000, 2000, 5000)
        },
        differs="MNIST, with 20 to 200 exemplars of a class.", minutes=24,
    ),
    Item(
        name="attention", place="figure 5d", title="Attention functions",
        claim="Re-weighting paths by their peak response is better than by the mean response, by path response (A), by "
        "(B), or not at all.",
        rule=Rule("peak ends above mean, conv, channel and none", lambda found: above_all(found, "peak")),
        small={a: CIFAR20 + _sets(attention=a, options_switch_every=2) for a in ATTENTION},
        full={a: CIFAR + _sets(attention=a) for a in ATTENTION},
        differs="Switched by count, every two tasks: the attention has something to weigh only after a switch.",
        minutes=40,
    ),
    Item(
        name="gamma", place="figure 6a", title="Scale of the controller, gamma",
        claim="gamma = 2.5 is best on CIFAR-100; 1 forgets the old, 8 learns too little of the new (51 % at task 10).",
        rule=Rule(
            "2.5 ends above 1 and above 8",
            lambda found: [higher(found, "gamma = 2.5", other) for other in ("gamma = 1", "gamma = 8")],
        ),
        small=_each(CIFAR20, "options_gamma", (1, 2.5, 8), options_switch_every=2),
        full=_each(CIFAR, "options_gamma", (1, 2.5, 8), options_switch_every=2),
        published={"gamma = 8": 0.51}, differs="None beyond size: paths change every two tasks, as in the paper.",
        minutes=24,
    ),
    Item(
        name="J", place="figure 6b", title="Tasks that share a path, J",
        claim="Many paths (J = 1) are worse; few are as good as more (two paths for CIFAR-100, J = 5).",
        rule=Rule(
            "J = 2 ends above J = 1, and J = 5 within two points of J = 2",
            lambda found: [higher(found, "J = 2", "J = 1"), higher(found, "J = 5", "J = 2", by=-0.02)],
        ),
        small=_each(CIFAR20, "options_switch_every", (1, 2, 5), attention="none"),
        full=_each(CIFAR, "options_switch_every", (1, 2, 5), attention="none"),
        differs="None beyond size.", minutes=24,
    ),
    Item(
        name="M", place="figure 6c", title="Modules of a layer, M",
        claim="The network performs well even when all paths are saturated: few modules cost little accuracy, and a "
        "single path (M = 1) is near the state of the art.",
        rule=Rule(
            "M = 2 ends within two points of M = 8",
            lambda found: [higher(found, "M = 2", "M = 8", by=-0.02)],
        ),
        small=_each(CIFAR20, "modules", (1, 2, 4, 8), attention="none", options_switch_every=2),
        full=_each(CIFAR, "modules", (1, 2, 4, 8), attention="none", options_switch_every=2),
        differs="None beyond size.", minutes=30,
    ),
    Item(
        name="flops", place="figure 6d", title="FLOPs over tasks, for M and J",
        claim="The cost of an answer grows like the logarithm of the number of tasks; with M = 2, J = 2 it is 63.7 % "
        "lower than with M = 8, J = 1; with M = 1 it is constant.",
        rule=Rule(
            "with M = 8, J = 1 FLOPs grow less in the later half of the tasks than in the first; M = 2, J = 2 needs "
            "fewer than half of them; M = 1 does not grow but for the head",
            lambda found: [
                of_each(found, "M = 8, J = 1", lambda r: slowing(r["flops_by_task"])),
                (0.5 - found["M = 2, J = 2"][0]["flops"] / found["M = 8, J = 1"][0]["flops"], 0.0),
                of_each(found, "M = 1, J = 1", lambda r: 0.02 - (r["flops_by_task"][-1] / r["flops_by_task"][0] - 1)),
            ],
            noise=0.0,
        ),
        small={
            f"M = {m}, J = {j}": CIFAR20
            + _sets(modules=m, attention="none", options_switch_every=j, options_N=1, training_epochs=1)
            for m, j in ((8, 1), (8, 2), (2, 2), (1, 1))
        },
        full={
            f"M = {m}, J = {j}": CIFAR + _sets(modules=m, attention="none", options_switch_every=j)
            for m, j in ((8, 1), (8, 2), (2, 2), (1, 1))
        },
        picture="flops", differs="One epoch and one candidate: FLOPs do not depend on how long is trained.",
        seeds=(0,), minutes=4,
    ),
    Item(
        name="saturation", place="figure 7", title="Saturation under switching rules",
        claim="mu_sat is a sawtooth: it rises while a path is reused and falls with a new one. An adaptive rule "
        "(th = 2, 3 paths, 59.15 %) is about as accurate as switching every two tasks (5 paths, 59.93 %).",
        rule=Rule(
            "mu_sat falls in the task after a switch, on average; the adaptive rule (th = 2; at small scale th = 0) "
            "ends within two points of J = 2 with fewer paths",
            lambda found: [
                of_each(found, "J = 2", rules.fall_after_switch),
                higher(found, rules.adaptive(found), "J = 2", by=-0.02),
                compare(found, "J = 2", rules.adaptive(found), lambda r: float(sum(map(bool, r["switched"][:-1])))),
            ],
        ),
        small={
            "J = 2": CIFAR20 + _sets(options_switch_every=2), "th = 0": CIFAR20,
            "th = 1": CIFAR20 + _sets(options_threshold=1),
        },
        full={
            "J = 2": CIFAR + _sets(options_switch_every=2), "th = 0": CIFAR,
            "th = 2": CIFAR + _sets(options_threshold=2), "th = 3": CIFAR + _sets(options_threshold=3),
        },
        published={"J = 2": 0.5993, "th = 2": 0.5915}, picture="saturation",
        differs="mu_sat of a smaller network is smaller: th = 0 and 1 stand for the paper's 2 and 3.", minutes=24,
    ),
    Item(
        name="forward", place="figure 8", title="Forward transfer",
        claim="The last task reaches 95 % of its final accuracy within one epoch, the second needs up to 20 of 50.",
        rule=Rule(
            "the last task needs fewer epochs than the second until 95 % of its final validation accuracy",
            lambda found: [of_each(found, "rps", rules.epochs_saved)],
        ),
        small={"rps": MNIST + _sets(training_epochs=10)}, full={"rps": CIFAR}, picture="convergence",
        differs="MNIST, ten epochs. Validation images of all classes seen stand for test images.", minutes=5,
    ),
    Item(
        name="confusion", place="figure 9", title="Backward transfer",
        claim="A task is known less well when it is new than later: as the model evolves, its accuracy rises.",
        rule=Rule(
            "on average over tasks, the accuracy at the end is above that just after learning",
            lambda found: [of_each(found, "rps", rules.gained)],
        ),
        small={"rps": MNIST}, full={"rps": CIFAR}, picture="matrix", differs="MNIST.", minutes=3,
    ),
    Item(
        name="genetic", place="section 4.3", title="Random selection against a genetic algorithm",
        claim="On MNIST, an MLP of 2 x 100, M = 8, J = 1, five runs: random selection 96.52 %; binary tournament "
        "selection 71.24 % in its first generation and 96.32 % after 10.2 generations.",
        rule=Rule(
            "random selection ends above one generation of the tournament, and no more than one point below ten",
            lambda found: [
                higher(found, "random", "tournament, 1 generation"),
                higher(found, "random", "tournament, 10 generations", by=-0.01),
            ],
        ),
        small=_searches(MNIST + _sets(width=100, memory=4400, options_switch_every=1, options_N=4)),
        full=_searches("mnist_5 --variant paper" + _sets(width=100, options_switch_every=1, options_N=8)),
        published={"random": 0.9652, "tournament, 10 generations": 0.9632, "tournament, 1 generation": 0.7124},
        differs="Fewer candidates and epochs. With 1,000 exemplars, as in other items, the paper's rule makes gamma "
        "12, nothing new is learned, and every arm ended below 25 %: so a second run has its 4,400.", minutes=9,
    ),
    Item(
        name="adaptive", place="table 3", title="RPS-Net (2019) against Adaptive RPS-Net",
        claim="Adaptive switching and attention add 4.35 points on CIFAR-100 in ten tasks (56.48 to 60.83), 2.71 in "
        "twenty, 1.92 on SVHN, 4.2 on MS-Celeb.",
        rule=Rule(
            "Adaptive RPS-Net ends above RPS-Net; it cannot be told if its path was never switched",
            lambda found: [
                higher(found, "Adaptive RPS-Net", "RPS-Net"),
                of_each(found, "Adaptive RPS-Net", lambda r: 1.0 if any(r["switched"][:-1]) else None),
            ],
        ),
        small={"RPS-Net": CIFAR20 + _sets(attention="none", options_switch_every=2), "Adaptive RPS-Net": CIFAR20},
        full={"RPS-Net": CIFAR + _sets(attention="none", options_switch_every=2), "Adaptive RPS-Net": CIFAR},
        published={"RPS-Net": 0.5648, "Adaptive RPS-Net": 0.6083},
        differs="mu_sat of the smaller network may stay below the threshold of 0: then no path is switched, and "
        "adaptive switching is not tried.", minutes=16,
    ),
)  # fmt: skip
