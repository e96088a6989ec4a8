"""MNIST, the paper's protocol: five tasks of two classes, an MLP of 2 x 400, 4,400 exemplars (section 4.2, table 2).

    randpath bench mnist_5 [--variant paper] [--seed S]

Time, accuracy and number of seeds to expect: docs/methods.md, made from docs/results/mnist_5.json.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="mnist_5",
    variant="paper",
    dataset="mnist",
    tasks=5,
    backbone="mlp",
    memory=4400,
    options={"N": 8},
    training=Training(epochs=50),
    processes=2,
)

tuned = replace(
    paper,
    variant="tuned",
    padding=2,
    training=Training(epochs=8, optimizer="adamw", weight_decay=0.01, schedule="one_cycle", lr=2e-3),
    options={"N": 1, "balanced": True, "gamma": 0.5},
)
