"""CIFAR-100 in ten tasks of ten, 2,000 exemplars: the paper's protocol on a network that two cores can train.

    randpath bench cifar100_10_cpu [--variant paper] [--seed S] [--set training.mixed=true]

Two networks learn side by side, a core each, and answer together. Mixed precision halves their time on a CPU that
computes in bfloat16; others refuse it.

Time, accuracy and number of seeds to expect: docs/methods.md, made from docs/results/cifar100_10_cpu.json.
"""

from randpath import Experiment, Training, replace

tuned = Experiment(
    recipe="cifar100_10_cpu",
    variant="tuned",
    dataset="cifar100",
    tasks=10,
    class_order=1993,  # iCaRL's
    backbone="compact",
    width=60,
    modules=10,
    join="lanes",  # a frozen path gives the same features ever after
    attention="none",  # peak response slows the last layer down in few epochs (docs/log.md)
    stem="whiten",
    activation="gelu",
    memory=2000,
    herding=True,
    validation=False,  # one path to choose from needs no images to choose by
    members=2,  # together two points ahead of each (docs/methods.md); against more width not measured
    processes=2,
    degrees=0.0,  # rotation blurs 32 x 32 pictures and costs more than it gives in few epochs
    training=Training(
        epochs=20,
        first_factor=2,
        batch=32,
        optimizer="sgd",
        lr=0.02,
        first_lr=0.05,
        weight_decay=3e-3,
        schedule="one_cycle",
        small_side=24,
    ),
    # The first path learns four tasks; then mu_sat asks for a lane of each task's own, which begins as a copy.
    options={
        "N": 1,
        "balanced": True,
        "controller": "ratio",
        "gamma": 1.5,
        "first_switch": 4,
        "start": "copy",
        "paste": 0.5,
        "discriminant": 0.1,
    },
)

# The paper's network, objective and candidates at the width of `tuned`: N = 2 candidates, which share its epochs.
paper = replace(
    tuned,
    variant="paper",
    modules=8,
    join="sum",
    attention="peak",
    stem="learned",
    activation="relu",
    herding=False,
    validation=True,
    members=1,
    degrees=10.0,
    training=Training(epochs=20, first_factor=1),
    options={"N": 2, "gamma": 2.5},
)
