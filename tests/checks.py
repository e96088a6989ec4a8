"""What every method must do, as functions named as sentences; test_methods.py crosses them with METHODS."""

from collections.abc import Callable
from pathlib import Path as Directory

import numpy as np
import torch

from randpath.data.augment import Augment
from randpath.data.dataset import Arrays
from randpath.data.stream import Task, hold_out
from randpath.engines.serial import Serial
from randpath.errors import DataError, Stopped
from randpath.learning.method import Measured, Method, Setting, State, Work
from randpath.learning.train import Training
from randpath.network.backbones import Backbone
from randpath.storage import checkpoint

Make = Callable[[], Method]
SHAPE = (8, 8, 1)
BUDGET = 30


def setting(budget: int = BUDGET, backbone: str = "mlp", **changes: object) -> Setting:
    return Setting(
        backbone=Backbone(backbone, SHAPE, M=3, attention="peak", width=16),
        training=Training(epochs=2, batch=16, save_seconds=0),
        augment=Augment((0.3,), (0.3,), padding=1, degrees=5.0),
        budget=budget,
        auxiliary=pictures(range(10, 14), each=10, seed=7),
        **changes,  # type: ignore[arg-type]
    )


def pictures(classes: range, each: int = 20, seed: int = 0) -> Arrays:
    """Blurred blobs, one place a class: easy to learn."""
    rng = np.random.default_rng([seed, classes.start])
    labels = np.repeat(np.array(classes), each)
    items = rng.integers(0, 60, (len(labels), *SHAPE))
    for i, c in enumerate(labels):
        items[i, c % 4 * 2 : c % 4 * 2 + 2, c // 4 * 2 : c // 4 * 2 + 2] += 190
    return Arrays(items.astype(np.uint8), labels)


def task(k: int, classes: range, each: int = 20, cumulative: bool = False) -> Task:
    data = pictures(range(classes.stop) if cumulative else classes, each)
    train, val = hold_out(data.labels, 0)
    return Task(k, classes.stop, classes, data.take(train), data.take(val))


def tasks(method: Method, sizes: tuple[int, ...] = (2, 2, 2)) -> list[Task]:
    stops = np.cumsum([0, *sizes]).tolist()
    return [task(k + 1, range(a, b), cumulative=method.cumulative) for k, (a, b) in enumerate(zip(stops, stops[1:]))]


def digest(method: Method) -> bytes:
    """All bytes of a method's state."""
    state = method.state_dict()
    return b"".join(checkpoint.encode_tensors(group) for group in state.tensors.values()) + checkpoint.encode_document(
        state.document
    )


def check_has_one_logit_a_seen_class(make: Make) -> None:
    method = make()
    for one in tasks(method):
        method.learn(one, Work())
        assert method.inference()(torch.zeros(3, 1, 8, 8)).shape == (3, one.num_classes)


def check_the_classifier_sees_features(make: Make) -> None:
    """What `load_run(...).features` returns: one row for each image."""
    method = make()
    for one in tasks(method)[:2]:
        method.learn(one, Work())
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        f = method.inference().features(x)  # type: ignore[operator]
    assert f.ndim == 2
    assert len(f) == 5
    assert torch.isfinite(f).all()


def check_inference_is_pure(make: Make) -> None:
    method = make()
    method.learn(tasks(method)[0], Work())
    before = digest(method)
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(method.inference()(x), method.inference()(x))
    for p in method.inference().parameters():
        p.data.zero_()  # it shares no memory with the method
    assert digest(method) == before


def check_its_own_metrics_are_shares_and_change_nothing(make: Make) -> None:
    method = make()
    method.learn(tasks(method)[0], Work())
    before = digest(method)
    if isinstance(method, Measured):
        found = method.metrics(lambda module: module(torch.zeros(1, 1, 8, 8)).shape[1] / 4)
        assert all(0 <= value <= 1 for value in found.values())
    assert digest(method) == before


def check_same_seed_gives_the_same_bits(make: Make) -> None:
    first, second = make(), make()
    for one in tasks(first):
        assert first.learn(one, Work()).epochs == second.learn(one, Work()).epochs
    assert digest(first) == digest(second)


def check_goes_on_bit_exactly_after_a_round_trip(make: Make, tmp_path: Directory) -> None:
    straight, before = make(), make()
    first, second, third = tasks(straight)
    for one in (first, second):
        straight.learn(one, Work())
        before.learn(one, Work())
    state = before.state_dict()
    checkpoint.save(tmp_path, "0001", state.tensors, {"state": state.document})
    saved = checkpoint.load(tmp_path / "0001")
    after = make()
    after.load_state_dict(State(saved.tensors, saved.documents["state"]))
    assert digest(after) == digest(before)
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(after.inference()(x), before.inference()(x))
    assert straight.learn(third, Work()) == after.learn(third, Work())
    assert digest(straight) == digest(after)


def check_goes_on_exactly_from_an_unfinished_fit(make: Make, tmp_path: Directory) -> None:

    straight, stopped = make(), make()
    for one in tasks(straight)[:2]:
        learned = straight.learn(one, Work())
        for patience in (1, 2, 2):  # stop after so many steps, again and again

            def tick(done: float, left: list[int] = [patience]) -> None:  # noqa: B006
                left[0] -= 1
                if left[0] == 0:
                    raise Stopped()

            try:
                make_again = make()
                make_again.load_state_dict(stopped.state_dict())
                make_again.learn(one, Work(Serial(tick), tmp_path / str(one.k)))
            except Stopped:
                continue
            raise AssertionError("the fit was not stopped")
        assert stopped.learn(one, Work(place=tmp_path / str(one.k))) == learned
    assert digest(straight) == digest(stopped)


def check_memory_never_exceeds_its_budget(make: Make) -> None:
    method = make()
    for one in tasks(method):
        method.learn(one, Work())
        tensors = method.state_dict().tensors
        stored = [t["labels"] for name, t in tensors.items() if name.startswith("memory")]
        assert sum(map(len, stored)) <= BUDGET


def check_keeps_no_images_under_another_name_than_memory(make: Make) -> None:
    """All else that is stored, weights and what is known of them, is as large after few images as after many."""
    sizes = []
    for each in (10, 40):
        method = make()
        for k, classes in enumerate((range(2), range(2, 4)), start=1):
            method.learn(task(k, classes, each, cumulative=method.cumulative), Work())
        stored = method.state_dict().tensors.items()
        sizes.append(sum(t.nbytes for name, group in stored if not name.startswith("memory") for t in group.values()))
    assert sizes[0] == sizes[1]


def check_learns_tasks_of_one_five_and_three_classes(make: Make) -> None:
    method = make()
    for one in tasks(method, (1, 5, 3)):
        learned = method.learn(one, Work())
        losses = [value for line in learned.epochs for name, value in line.items() if name.startswith("loss_")]
        assert losses or not learned.epochs  # what is solved has none
        assert np.isfinite(losses).all()
    assert method.inference()(torch.zeros(2, 1, 8, 8)).shape == (2, 9)


def check_learns_a_class_with_one_image(make: Make) -> None:
    method = make()
    method.learn(task(1, range(2), cumulative=method.cumulative), Work())
    method.learn(task(2, range(2, 3), each=1, cumulative=method.cumulative), Work())
    assert torch.isfinite(method.inference()(torch.zeros(2, 1, 8, 8))).all()


def check_bad_tasks_are_refused_before_the_first_step(make: Make) -> None:
    method = make()
    before = digest(method)
    data = pictures(range(2))
    wrong_label = Arrays(data.items, np.where(data.labels == 1, 7, data.labels))
    wrong_shape = Arrays(np.zeros((4, 9, 9, 1), np.uint8), np.array([0, 0, 1, 1]))
    empty = data.take(np.array([], np.int64))
    for train, says in (
        (wrong_label, "label 7 of training item"),
        (wrong_shape, "shape"),
        (empty, "no training items"),
    ):
        try:
            method.learn(Task(1, 2, range(2), train, empty), Work())
        except DataError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"not refused: {says}")
    assert digest(method) == before


def check_a_task_that_does_not_follow_is_refused(make: Make) -> None:
    method = make()
    first, second, third = tasks(method)
    method.learn(first, Work())
    before = digest(method)
    for odd in (first, third):
        try:
            method.learn(odd, Work())
        except DataError as error:
            assert f"task {odd.k} does not follow task 1" in str(error), error
        else:
            raise AssertionError(f"task {odd.k} after task 1 was not refused")
    assert digest(method) == before
    method.learn(second, Work())


CHECKS = [function for name, function in list(globals().items()) if name.startswith("check_")]
