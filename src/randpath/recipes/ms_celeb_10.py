"""MS-Celeb-10K, ten thousand faces in ten tasks of a thousand (section 4.2, table 1): imagenet100_10 says more.

    randpath bench ms_celeb_10 [--variant paper] [--seed S] --device cuda

The paper tells neither its exemplars (50,000 is ours: five per face) nor gamma (so its rule: images of the task /
exemplars).
"""

from randpath import replace
from randpath.recipes import imagenet100_10

paper = replace(
    imagenet100_10.paper,
    recipe="ms_celeb_10",
    dataset="ms_celeb",
    memory=50_000,
    options={"N": 8, "threshold": 0.0},
)
tuned = replace(imagenet100_10.tuned, recipe="ms_celeb_10", dataset="ms_celeb", memory=50_000)
