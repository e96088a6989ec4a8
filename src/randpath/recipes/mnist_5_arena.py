"""MNIST in five tasks of two digits: all methods, with the settings of the protocol (Hsu et al. 2018; table 2).

    randpath bench mnist_5_arena --variant paper --method M [--seed S]

An MLP of 2 x 400, Adam at 1e-3, batches of 128, 4 epochs, no augmentation, 4,400 exemplars where a method keeps any.
Nothing is selected, so nothing is held out: one candidate path. `tuned` changes the loss of Adaptive RPS-Net alone.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="mnist_5_arena",
    variant="paper",
    dataset="mnist",
    tasks=5,
    backbone="mlp",
    memory=4400,
    padding=0,
    degrees=0.0,
    validation=False,
    training=Training(epochs=4, halve_after=()),
    options={"N": 1},
)

tuned = replace(paper, variant="tuned", options={"N": 1, "balanced": True, "gamma": 0.5})
