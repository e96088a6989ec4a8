"""MNIST in five tasks with fewer exemplars, epochs and candidates: what `randpath paper` runs at small scale.

    randpath bench mnist_5_small [--variant paper] [--seed S]

A minute or two of one core. All else is that of mnist_5.
"""

from randpath import replace
from randpath.recipes import mnist_5

paper = replace(
    mnist_5.paper,
    recipe="mnist_5_small",
    memory=1000,
    training=replace(mnist_5.paper.training, epochs=4),
    options={"N": 2},
    processes=1,
)
tuned = replace(
    mnist_5.tuned,
    recipe="mnist_5_small",
    memory=1000,
    training=replace(mnist_5.tuned.training, epochs=4),
    processes=1,
)
