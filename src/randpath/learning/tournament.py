"""Path selection by binary tournament, the genetic rival of random selection (PathNet; the paper, section 4.3)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from randpath.learning.method import Work
from randpath.learning.selection import Job, Trial, best, train_candidate
from randpath.network.path import Path


def mutated(P: Path, draw: np.random.Generator) -> Path:
    """Each layer with probability 1 / L gets the module that lies up to two places away (Fernando et al. 2017).

    >>> P = mutated(Path.of([[1, 0, 0, 0]] * 4), np.random.default_rng(0))
    >>> [sum(row) for row in P.rows]
    [1, 1, 1, 1]
    """
    L, M = len(P.rows), len(P.rows[0])
    places = np.array([row.index(True) for row in P.rows])
    moves = np.where(draw.random(L) < 1 / L, draw.integers(-2, 3, L), 0)
    return Path(tuple(tuple(m == i for m in range(M)) for i in ((places + moves) % M).tolist()))


def tournament(job: Job, paths: Sequence[Path], work: Work, generations: int, draw: np.random.Generator) -> list[Trial]:
    """Each generation trains two paths of the population; a mutation of the better takes the place of the other.

    Each is trained from the state before the task, as in random selection; one that was trained before is not trained
    again. Returns all that were trained; the best of them is the task's path.
    """
    population, trials = list(paths), dict[Path, Trial]()
    for generation in range(generations):
        pair = draw.choice(len(population), min(2, len(population)), replace=False).tolist()
        new = [P for P in dict.fromkeys(population[i] for i in pair) if job.P_fixed | P not in trials]
        calls = [(len(trials) + n, P) for n, P in enumerate(new)]
        engine = work.part(generation, generations).engine
        for trial in engine.map(partial(train_candidate, job, job.setting.search_threads), calls):
            trials[job.P_fixed | trial.path] = trial
        met = [(i, trials[job.P_fixed | population[i]]) for i in pair]
        if len(met) == 2 and any(trial.failure is None for _, trial in met):
            winner = best(trial for _, trial in met)
            loser = next(i for i, trial in reversed(met) if trial is not winner or met[0][1] is met[1][1])
            population[loser] = mutated(winner.path, draw)
    torch.set_num_threads(job.setting.threads)
    return sorted(trials.values(), key=lambda trial: trial.index)
