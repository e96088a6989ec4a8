"""CIFAR-100 in ten tasks of ten, 2,000 exemplars, on a small network: half an hour of one core. The first recipe.

    randpath bench cifar100_10_small [--variant paper] [--seed S]

Time, accuracy and number of seeds to expect: docs/methods.md, made from docs/results/cifar100_10_small.json.
"""

from randpath import Experiment, Training, replace

tuned = Experiment(
    recipe="cifar100_10_small",
    variant="tuned",
    dataset="cifar100",
    tasks=10,
    class_order=1993,  # iCaRL's
    backbone="compact",
    attention="none",  # peak response slows the last layer down in few epochs (docs/log.md)
    memory=2000,
    degrees=0.0,  # rotation blurs 32 x 32 pictures and costs more than it gives in few epochs
    training=Training(
        epochs=8,
        first_factor=2.25,
        batch=32,
        optimizer="sgd",
        lr=0.05,
        weight_decay=5e-4,
        schedule="one_cycle",
        small_side=24,
    ),
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 1.0},
)

# The paper's settings, scaled to these machines: N = 2 candidates, which share the epochs of `tuned` for the first
# task; later ones have those of `tuned`. As long as no path is switched, both variants see as many images; after a
# switch this one sees twice as many a task.
paper = replace(
    tuned,
    variant="paper",
    attention="peak",
    degrees=10.0,
    training=Training(epochs=8, first_factor=1.125),
    options={"N": 2, "gamma": 2.5},
)
