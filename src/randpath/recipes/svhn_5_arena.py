"""SVHN in five tasks of two digits, 4,400 exemplars: some methods on one narrow network, minutes of one core for each.

    randpath bench svhn_5_arena --variant paper --method M [--seed S]

All else is that of cifar100_10_arena. On all 73,257 training digits it takes about four times as long as on 20,000.
"""

from randpath import replace
from randpath.recipes import cifar100_10_arena

paper = replace(
    cifar100_10_arena.paper,
    recipe="svhn_5_arena",
    dataset="svhn",
    tasks=5,
    class_order="natural",
    memory=4400,
    options={"N": 1},  # gamma by the paper's rule: images of the task / exemplars
)
tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 4.0},
)
