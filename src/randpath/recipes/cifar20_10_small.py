"""Twenty classes of CIFAR-100 in ten tasks of two, 400 exemplars: what `randpath paper` runs at small scale.

    randpath bench cifar20_10_small [--variant paper] [--seed S]

Two or three minutes of one core. As many exemplars of a class as the paper has (2,000 of 100); the network is narrow,
the epochs and the candidates are few.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="cifar20_10_small",
    variant="paper",
    dataset="cifar20",
    tasks=10,
    backbone="compact",
    width=16,
    attention="peak",
    memory=400,
    training=Training(epochs=4, batch=32),
    options={"N": 2, "gamma": 2.5},
)
tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    degrees=0.0,
    training=Training(epochs=4, batch=32, optimizer="sgd", lr=0.05, weight_decay=5e-4, schedule="one_cycle"),
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 1.0},
)
