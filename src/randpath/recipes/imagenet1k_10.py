"""ImageNet-1K in ten tasks of a hundred classes (section 4.2, table 1): imagenet100_10 says more.

    randpath bench imagenet1k_10 [--variant paper] [--seed S] --device cuda

The paper does not tell its exemplars: 20,000 is iCaRL's number for a thousand classes, and ours.
"""

from randpath import replace
from randpath.recipes import imagenet100_10

paper = replace(imagenet100_10.paper, recipe="imagenet1k_10", dataset="imagenet", class_order=1993, memory=20_000)
tuned = replace(imagenet100_10.tuned, recipe="imagenet1k_10", dataset="imagenet", class_order=1993, memory=20_000)
