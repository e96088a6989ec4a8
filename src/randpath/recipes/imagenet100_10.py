"""ImageNet-100 in ten tasks of ten classes, 2,000 exemplars, as published (section 4.2, table 1): for GPUs.

    randpath bench imagenet100_10 [--variant paper] [--seed S] --device cuda

The dataset lists its hundred classes in iCaRL's order already. The paper's table has top-5 accuracies. We have run
neither variant to its end: a test starts both on a few images.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="imagenet100_10",
    variant="paper",
    dataset="imagenet100",
    tasks=10,
    backbone="resnet18_imagenet",
    modules=8,
    attention="peak",
    memory=2000,
    padding=28,  # an eighth of 224, as 4 is of 32
    degrees=10.0,
    training=Training(epochs=50),
    options={"N": 8, "threshold": 0.0, "gamma": 10.0},  # "gamma = 10 for ImageNet"; its own rule gives 6.5
)

tuned = replace(
    paper,
    variant="tuned",
    attention="none",
    degrees=0.0,
    training=Training(epochs=50, optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="one_cycle"),
    options={"N": 1, "balanced": True, "controller": "ratio", "gamma": 1.5, "threshold": 1.0},
)
