"""Threads: fits side by side are those of one after the other; a fitted estimator answers while it is trained."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tests.test_model_classifier import of, quick, state


def test_eight_fits_side_by_side_are_bit_identical_to_one_alone():
    alone = state(quick(candidates=2).fit(*of(0, 1, 2)))
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: state(quick(candidates=2).fit(*of(0, 1, 2))), range(8)))
    assert together == [alone] * 8
    assert torch.get_num_threads() == threads


def test_an_estimator_answers_while_another_thread_trains_it():
    model = quick(epochs=1).fit(*of(0, 1))
    asked = of(0, 1)[0]
    expected = {2: model.predict_proba(asked)}
    done, answers, wrong = threading.Event(), [], []

    def ask() -> None:
        while not done.is_set():
            p = model.predict_proba(asked)
            answers.append(p)
            if not set(model.predict(asked).tolist()) <= {0, 1, 2, 3} or len(model.is_unknown(asked)) != len(asked):
                wrong.append(p)

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        for c in (2, 3):
            model.partial_fit(*of(c))
            expected[c + 1] = model.predict_proba(asked)
        done.set()
        for one in asking:
            one.result()
    assert not wrong
    assert len(answers) > 2
    for p in answers:  # the old answers until the new ones are there
        np.testing.assert_array_equal(p, expected[p.shape[1]])
