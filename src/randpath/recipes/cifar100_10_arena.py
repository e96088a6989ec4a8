"""CIFAR-100 in ten tasks of ten, 2,000 exemplars: many methods on one narrow network, minutes of one core for each.

    randpath bench cifar100_10_arena --variant paper --method M [--seed S]

Nothing is selected, so nothing is held out: one candidate path. `paper` has the paper's objective and attention,
`tuned` changes those of Adaptive RPS-Net alone. With exemplars a run shows 292,000 images (DER a third
more: its balanced epochs come on top). A method without them shows as many (290,000) by --set training.epochs=5
--set training.first_factor=2.6, joint training on all classes at once 300,000 by --set tasks=1
--set training.epochs=6 --set training.first_factor=1.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="cifar100_10_arena",
    variant="paper",
    dataset="cifar100",
    tasks=10,
    class_order=1993,  # iCaRL's
    backbone="compact",
    width=24,
    attention="peak",
    stem="whiten",
    activation="gelu",
    memory=2000,
    degrees=0.0,
    validation=False,
    training=Training(
        epochs=4,
        first_factor=2,
        batch=32,
        optimizer="sgd",
        lr=0.05,
        weight_decay=5e-4,
        schedule="one_cycle",
        small_side=24,
    ),
    options={"N": 1, "gamma": 2.5},
)

tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 4.0},
)
