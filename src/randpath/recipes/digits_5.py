"""Scikit-learn's handwritten digits in five steps of two classes, 200 exemplars: what `make demo` runs.

    randpath bench digits_5 [--variant paper] [--seed S]

Time, accuracy and number of seeds to expect: docs/methods.md, made from docs/results/digits_5.json.
"""

from randpath import Experiment, Training, replace

paper = Experiment(
    recipe="digits_5",
    variant="paper",
    dataset="digits",
    tasks=5,
    backbone="mlp",
    width=200,
    memory=200,
    padding=1,
    training=Training(epochs=50),
    options={"N": 2},
)

tuned = replace(
    paper,
    variant="tuned",
    training=Training(epochs=40, batch=32, optimizer="adamw", lr=2e-3, weight_decay=0.01, schedule="one_cycle"),
    # Chosen on held-out training images of the seeds 10 to 14, among settings that switch the path (docs/log.md).
    options={"N": 2, "balanced": True, "gamma": 1.0, "threshold": -0.9},
)
