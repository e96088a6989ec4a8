"""What `PathClassifier()` alone costs: 1,200 pictures of 28 x 28 in four classes, at most 3 minutes of two cores.

RANDPATH_DATA=DIR python benchmarks/learn.py
"""

import time

import numpy as np

from randpath import PathClassifier
from randpath.data import named

mnist = named.load("mnist")
train = np.concatenate([np.flatnonzero(mnist.train.labels == c)[:300] for c in range(4)])
test = np.flatnonzero(mnist.test.labels < 4)
began, cpu = time.monotonic(), time.process_time()
model = PathClassifier().fit(mnist.train.items[train, 2:-2, 2:-2], mnist.train.labels[train])
print(f"{time.monotonic() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU")
score = model.score(mnist.test.items[test, 2:-2, 2:-2], mnist.test.labels[test])
print(f"right on {score:.2%} of {len(test):,} test pictures")
