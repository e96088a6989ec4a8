"""The smallest run with everything in it: 3 tasks, 2 candidates for each, 3 epochs, a state saved after each."""

from randpath.bench.experiment import Experiment
from randpath.learning.train import Training

paper = tuned = Experiment(
    recipe="tiny",
    dataset="digits",
    tasks=(4, 3, 3),
    backbone="mlp",
    width=16,
    modules=3,
    memory=60,
    padding=1,
    training=Training(epochs=3, batch=64, save_seconds=0.0),
    options={"N": 2, "switch_every": 1},
)
