"""CIFAR-100 in two tasks of fifty classes, 2,000 exemplars, as published (figure 4).

    randpath bench cifar100_2 [--variant paper] [--seed S] --device cuda

All but the number of tasks is that of cifar100_10.
"""

from randpath import replace
from randpath.recipes import cifar100_10

paper = replace(cifar100_10.paper, recipe="cifar100_2", tasks=2)
tuned = replace(cifar100_10.tuned, recipe="cifar100_2", tasks=2)
