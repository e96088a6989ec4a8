"""CIFAR-100 in ten tasks of ten classes, 2,000 exemplars, as published: for machines with GPUs (section 4.2, figure 4).

    randpath bench cifar100_10 [--variant paper] [--seed S] --device cuda

`paper` has the paper's network, candidates and epochs. `tuned` carries the loss and schedule of `cifar100_10_cpu` over
to that network. We have run neither to its end: a test starts both on a few images. For CPUs there is cifar100_10_cpu.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="cifar100_10",
    variant="paper",
    dataset="cifar100",
    tasks=10,
    class_order=1993,  # iCaRL's
    backbone="resnet18_cifar",
    modules=8,
    attention="peak",
    memory=2000,
    padding=4,
    degrees=10.0,
    training=Training(epochs=50),
    options={"N": 8, "threshold": 0.0, "gamma": 2.5},
)

tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    degrees=0.0,
    training=Training(epochs=50, optimizer="sgd", lr=0.1, weight_decay=5e-4, schedule="one_cycle"),
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 1.0},
)
