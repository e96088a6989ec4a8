"""SVHN in five tasks of two digits, 4,400 exemplars, the network of CIFAR-100, as published (section 4.2, table 2).

    randpath bench svhn_5 [--variant paper] [--seed S] --device cuda

We have run neither variant to its end: a test starts both on a few images.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="svhn_5",
    variant="paper",
    dataset="svhn",
    tasks=5,
    backbone="resnet18_cifar",
    modules=8,
    attention="peak",
    memory=4400,
    training=Training(epochs=50),
    options={"N": 8, "threshold": 0.0},  # gamma by the paper's rule: images of the task / exemplars
)

tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    training=Training(epochs=50, optimizer="sgd", lr=0.1, weight_decay=5e-4, schedule="one_cycle"),
    options={"N": 1, "balanced": True, "gamma": 0.5},
)
