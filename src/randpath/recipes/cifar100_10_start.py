"""CIFAR-100 in ten tasks of ten on the features of a pretrained start, 2,000 exemplars as vectors.

    randpath start efficientnet_lite0 $RANDPATH_DATA/start/efficientnet_lite0.onnx
    randpath bench cifar100_10_start [--seed S] [--set images=5]

The features of the 60,000 pictures, enlarged to 224 x 224, are computed once and kept beside the data.
"""

from randpath import Experiment, Training, replace

# As `randpath learn` sizes itself behind a start (model/sizing.py): 150 steps of a small path.
tuned = Experiment(
    recipe="cifar100_10_start",
    variant="tuned",
    dataset="cifar100@efficientnet_lite0",
    tasks=10,
    class_order=1993,  # iCaRL's
    method="anchored",
    backbone="mlp",
    width=96,
    memory=2000,
    training=Training(epochs=3, batch=128, optimizer="adamw", lr=2e-3, weight_decay=0.01, schedule="one_cycle"),
    options={"N": 2, "balanced": True, "gamma": 0.5},
)

# The paper's method on the same vectors, as its MNIST network has it.
paper = replace(
    tuned, variant="paper", method="rps", width=400, training=Training(epochs=10), options={"N": 8, "gamma": 2.5}
)
