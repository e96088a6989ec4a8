"""CIFAR-100 in twenty tasks of five classes, 2,000 exemplars, as published (figure 4).

    randpath bench cifar100_20 [--variant paper] [--seed S] --device cuda

All but the number of tasks is that of cifar100_10.
"""

from randpath import replace
from randpath.recipes import cifar100_10

paper = replace(cifar100_10.paper, recipe="cifar100_20", tasks=20)
tuned = replace(cifar100_10.tuned, recipe="cifar100_20", tasks=20)
