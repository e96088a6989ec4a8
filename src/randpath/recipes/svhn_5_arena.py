"""SVHN in five tasks of two digits, 4,400 exemplars: some methods on one narrow network, minutes of one core for each.

    randpath bench svhn_5_arena --variant paper --method M [--seed S]

Nothing is selected, so nothing is held out: one candidate path. `tuned` changes the objective and the attention of
Adaptive RPS-Net alone. On all 73,257 training digits it takes about four times as long as on 20,000.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="svhn_5_arena",
    variant="paper",
    dataset="svhn",
    tasks=5,
    backbone="compact",
    width=24,
    attention="peak",
    stem="whiten",
    activation="gelu",
    memory=4400,
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
    options={"N": 1},  # gamma by the paper's rule: images of the task / exemplars
)

tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 4.0},
)
