"""Path selection by binary tournament: who meets whom, who wins, what it costs."""

from types import SimpleNamespace

import numpy as np

from randpath.keyed import rng
from randpath.learning.method import Work
from randpath.learning.selection import Trial
from randpath.learning.tournament import mutated, tournament
from randpath.methods.rps import RPS
from randpath.network.path import Path
from tests.checks import digest, setting, task


def test_a_mutation_moves_a_layer_by_at_most_two_places_with_probability_one_in_l():
    P = Path.of([[0, 0, 0, 1, 0, 0, 0, 0]] * 4)
    draw = np.random.default_rng(0)
    places = np.array([[row.index(True) for row in mutated(P, draw).rows] for _ in range(2000)])
    assert set(np.unique(places)) == {1, 2, 3, 4, 5}
    moved = (places != 3).mean()  # a quarter of the layers is drawn, and four of five moves are no standstill
    assert abs(moved - 0.25 * 0.8) < 0.02


def test_a_tournament_trains_at_most_two_paths_per_generation_and_keeps_the_best():
    method = RPS(setting(), N=4, search="tournament", generations=5)
    learned = method.learn(task(1, range(3)), Work())
    candidates = {line["candidate"] for line in learned.epochs}
    assert 2 < len(candidates) <= 10
    assert candidates == set(range(len(candidates)))
    ends = {line["candidate"]: line["validation"] for line in learned.epochs if line["epoch"] == 2}
    again = RPS(setting(), N=4, search="tournament", generations=5)
    again.learn(task(1, range(3)), Work())
    assert digest(again) == digest(method), "the same seed, the same bits"
    assert max(ends.values()) == best_of(method, task(1, range(3)))


def best_of(method: RPS, one) -> float:
    import torch

    from randpath.metrics import mean_class_accuracy

    q = method.inference()(method.setting.augment.plain(torch.from_numpy(one.val.items)))
    return mean_class_accuracy(one.val.labels, q.argmax(dim=1).numpy())


def test_a_path_that_goes_on_is_not_searched_again():
    method = RPS(setting(), N=4, search="tournament", generations=3, threshold=1e9)
    method.learn(task(1, range(2)), Work())
    P = method.P
    learned = method.learn(task(2, range(2, 4)), Work())
    assert P == method.P
    assert {line["candidate"] for line in learned.epochs} == {0}


def test_a_mutation_of_the_winner_takes_the_losers_place(monkeypatch):
    """Two paths of known worth: after one generation the worse one is gone, and its successor is trained next."""
    worse, better, mutant = (Path.of([[on == m for m in range(3)]] * 2) for on in range(3))
    worth = {worse: 0.1, better: 0.9, mutant: 0.5}
    winners = []

    def bred(path, draw):
        winners.append(path)
        return mutant

    monkeypatch.setattr("randpath.learning.tournament.mutated", bred)
    monkeypatch.setattr(
        "randpath.learning.tournament.train_candidate",
        lambda job, threads, candidate, tick: Trial(*candidate, worth[candidate[1]], {}, [], 0),
    )
    job = SimpleNamespace(P_fixed=Path.of([[0, 0, 0]] * 2), setting=setting())
    trials = tournament(job, [worse, better], Work(), 2, rng(0))
    assert winners == [better, better]
    assert [trial.path for trial in trials][2] == mutant
    assert {trial.path for trial in trials[:2]} == {worse, better}
    assert len(tournament(job, [worse, better, mutant], Work(), 1, rng(0))) == 2, "two meet, the third waits"


def test_a_path_of_one_layer_can_mutate():
    P = Path.of([[0, 1, 0, 0, 0, 0]])
    places = {mutated(P, np.random.default_rng(seed)).rows[0].index(True) for seed in range(60)}
    assert places == {5, 0, 1, 2, 3}  # up to two places away, round the corner
