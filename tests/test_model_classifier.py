"""PathClassifier: what it takes, what it promises from call to call, and that a stored model goes on exactly."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path as Directory

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from randpath.data.dataset import Arrays
from randpath.data.stream import Task
from randpath.engines.serial import Serial
from randpath.errors import Damaged, DataError, DeviceMissing, Stopped
from randpath.learning.method import Work
from randpath.methods.rps import RPS
from randpath.model import versions
from randpath.model.classifier import PathClassifier
from randpath.model.sizing import plan_for
from randpath.model.stored import LATER, plan_from
from randpath.network.fold import fold
from tests.checks import digest, pictures, setting, task

X, Y = load_digits(return_X_y=True)
IMAGES = X.reshape(-1, 8, 8).astype(np.uint8) * 15


def of(*classes, images=False, count=40, start=0):
    """The first `count` digits of each class."""
    indices = np.concatenate([np.flatnonzero(c == Y)[start : start + count] for c in classes])
    return (IMAGES if images else X)[indices], Y[indices]


def quick(**more) -> PathClassifier:
    return PathClassifier(**{"epochs": 3, "threads": 1, "modules": 3, "width": 24, "candidates": 1, **more})


def state(model: PathClassifier) -> str:
    """Everything that would be stored, as one digest."""
    from randpath.storage import checkpoint

    found, document = model._model.state()
    parts = [checkpoint.encode_tensors(group) for group in found.tensors.values()]
    return hashlib.sha256(b"".join([*parts, checkpoint.encode_document(document)])).hexdigest()


def test_it_sizes_itself_and_learns_digits_two_by_two():
    model = PathClassifier(threads=1, epochs=25)
    for a in range(0, 6, 2):
        model.partial_fit(*of(a, a + 1, count=100))
    assert model.classes_.tolist() == list(range(6))
    assert model._model.plan.backbone == "mlp"
    unseen, labels = of(*range(6), start=100, count=70)
    assert model.score(unseen, labels) > 0.9
    assert model.predict_proba(unseen).shape == (len(unseen), 6)
    np.testing.assert_allclose(model.predict_proba(unseen).sum(axis=1), 1)
    assert model.is_unknown(unseen).mean() < 0.2


@pytest.mark.parametrize("images", [False, True])
def test_a_stored_model_goes_on_as_if_it_had_never_stopped(tmp_path, images):
    straight, stored = quick(), quick()
    calls = [of(0, 1, images=images), of(2, images=images), of(1, 2, images=images, start=40), of(3, 0, images=images)]
    for number, call in enumerate(calls, start=1):
        straight.partial_fit(*call)
        stored.partial_fit(*call)
        assert stored.save(tmp_path / "model") == number
        stored = PathClassifier.load(tmp_path / "model")
        assert state(stored) == state(straight)
    assert [entry["k"] for entry in straight.history_] == [1, 2, 2, 3]
    assert [entry["again"] for entry in straight.history_] == [0, 0, 1, 0]
    np.testing.assert_array_equal(stored.predict_proba(calls[0][0]), straight.predict_proba(calls[0][0]))
    assert versions.kept(tmp_path / "model") == [2, 3, 4]


def test_images_are_uint8_in_two_layouts_and_the_compact_network_takes_larger_ones():
    grey, labels = of(0, 1, images=True, count=12)
    assert quick().fit(grey, labels).predict(grey[..., None]).shape == labels.shape
    large = np.repeat(np.repeat(grey, 2, axis=1), 2, axis=2)
    model = quick(width=8, epochs=1).fit(np.stack([large] * 3, axis=3), labels)
    assert (model._model.plan.backbone, model._model.plan.mirror) == ("compact", True)
    with pytest.raises(ValueError, match=r"takes items of shape \(16, 16, 3\), got \(8, 8, 1\)"):
        model.predict(grey)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (IMAGES[:4] / 255, r"images must be uint8, got float64; convert them: np.round\(X \* 255\)"),
        (np.zeros((4, 3, 8, 8), np.uint8), "channels come last"),
        (np.full((4, 5), np.nan), "NaN"),
        (np.zeros((0, 5)), "0 sample"),
        (np.zeros((3, 5)), "3 items, y has 4"),
    ],
)
def test_wrong_items_are_refused_in_words(wrong, says):
    with pytest.raises(ValueError, match=says):
        quick().fit(wrong, [0, 0, 1, 1])


@pytest.mark.parametrize(
    "labels", [["cat", "dog"], [7, -3], [True, False], [("a", 1), ("b", 2)], ["x", 4], [None, "y"], [2.0, 5.0]]
)
def test_any_hashable_label_is_kept_and_comes_back(tmp_path, labels):
    items, y = of(0, 1, count=10)
    given = [labels[int(c)] for c in y]
    model = quick(epochs=20).fit(items, given)
    assert set(model.classes_.tolist()) == set(labels)
    model.save(tmp_path / "m")
    again = PathClassifier.load(tmp_path / "m")
    assert [type(c) for c in again.classes_.tolist()] == [type(c) for c in model.classes_.tolist()]
    assert np.mean([a == b for a, b in zip(again.predict(items).tolist(), given)]) > 0.9


def test_labels_that_cannot_be_stored_are_refused_before_training():
    with pytest.raises(ValueError, match="a label must be text, a number"):
        quick().fit(X[:4], [object(), object(), object(), object()])


def test_the_classes_argument_is_accepted_and_checked():
    items, y = of(0, 1, count=6)
    assert quick(epochs=1).partial_fit(items, y, classes=[0, 1, 2]).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="label 1, which is not in classes"):
        quick().partial_fit(items, y, classes=[0])


def test_a_failed_or_stopped_call_changes_nothing():
    model = quick().fit(*of(0, 1))
    before, memory = state(model), len(model._model.method.memory)

    def stop(done):
        raise Stopped()

    from randpath.data.dataset import Arrays

    items, y = of(1, 2)
    with pytest.raises(Stopped):
        model._model.learn(Arrays(items.astype(np.float32), y - 1), [1, 2], Work(Serial(stop)))
    assert (state(model), len(model._model.method.memory)) == (before, memory)


def test_features_are_applied_not_stored_and_asked_for_again(tmp_path):
    def brightness(images):
        return images.reshape(len(images), -1)[:, ::2] / 255

    items, y = of(0, 1, images=True)
    model = quick(features=brightness).fit(items, y)
    assert model._model.plan.shape == (32,)
    model.save(tmp_path / "m")
    assert not list((tmp_path / "m").rglob("*.p*kl*"))
    with pytest.raises(ValueError, match="give the function again"):
        PathClassifier.load(tmp_path / "m")
    again = PathClassifier.load(tmp_path / "m", features=brightness).partial_fit(*of(2, images=True))
    assert again.classes_.tolist() == [0, 1, 2]
    quick().fit(items, y).save(tmp_path / "n")
    with pytest.raises(ValueError, match="leave out features="):
        PathClassifier.load(tmp_path / "n", features=brightness)


def test_no_picture_is_twice_in_the_memory_or_both_trained_and_validated_on():
    from randpath.model.doubles import _digests

    model = quick().fit(*of(0, 1))
    for _ in range(2):  # the same pictures again, and some new ones
        model.partial_fit(*of(0, 1, count=50))
    memory = model._model.method.memory
    train = [d for part in memory.train.values() for d in _digests(part)]
    val = [d for part in memory.val.values() for d in _digests(part)]
    assert len(set(train)) == len(train) > 80
    assert len(set(val)) == len(val) > 5
    assert not set(train) & set(val)


def test_the_same_seed_gives_the_same_bits_and_clone_starts_anew():
    model = quick().fit(*of(0, 1))
    assert state(clone(model).fit(*of(0, 1))) == state(model)
    assert state(quick(seed=1).fit(*of(0, 1))) != state(model)


def test_going_on_with_a_task_uses_its_own_teacher_and_takes_a_switch_back():
    method = RPS(setting(), N=1, threshold=-1e9)
    first, second = task(1, range(2)), task(2, range(2, 4))
    method.learn(first, Work())
    teacher = fold(method.net, method.P_ts)
    method.learn(second, Work())
    assert method.S == [1, 2]
    P, P_fixed = method.P, method.P_fixed
    more = pictures(range(4), seed=5)
    again = Task(2, 4, range(4, 4), more, more.take(np.array([], np.int64)))
    method.go_on(again, Work(), teacher)
    assert (method.S, method.P, method.P_fixed, method.k, method.again) == ([1, 2], P, P_fixed, 2, 1)
    method.threshold = 1e9  # now the path is not full after all
    method.go_on(again, Work(), teacher)
    assert (method.S, method.again) == ([1], 2)
    assert len(digest(method)) > 0
    with pytest.raises(DataError, match="task 2 does not follow task 2"):
        method.learn(second, Work())


def test_calls_of_one_class_and_one_picture_work():
    model = quick().fit(*of(0))
    assert model.history_[0]["saturation"] is None
    model.partial_fit(*of(1, count=1)).partial_fit(*of(2, count=3))
    assert model.predict_proba(X[:5]).shape == (5, 3)
    assert np.isfinite(model.predict_proba(X[:5])).all()


def test_the_report_tells_of_drops_and_confusions():
    model = quick(epochs=15, budget=40).fit(*of(0, 1, 2, count=100))
    model.partial_fit(*of(3, 4, count=100))
    entry = model.history_[-1]
    assert entry["classes_added"] == [3, 4]
    assert 0 <= entry["accuracy_old"] <= 1
    assert 0.5 < entry["accuracy_new"] <= 1
    assert set(entry["dropped"]) <= {"0", "1", "2"}
    assert all(0 < drop <= 1 for drop in entry["dropped"].values())
    assert len(model._model.method.memory) <= 40


def test_a_larger_budget_may_be_given_later():
    model = quick(budget=20).fit(*of(0, 1))
    assert len(model._model.method.memory) == 20
    model.set_params(budget=60).partial_fit(*of(2))
    assert 20 < len(model._model.method.memory) <= 60


def test_a_new_model_of_pictures_has_the_network_of_tuned_and_one_of_an_older_release_keeps_its_own(tmp_path):
    labels = np.array([0, 0, 1, 1])
    grey, alike, tiny = (
        plan_for(Arrays(np.zeros((4, *shape), np.uint8), labels)) for shape in ((28, 28, 1), (28, 28, 3), (8, 8, 1))
    )
    red = np.zeros((4, 28, 28, 3), np.uint8)
    red[2, 5, 5, 0] = 9
    assert (grey.backbone, grey.attention, grey.stem, grey.activation) == ("compact", "none", "learned", "gelu")
    assert (alike.stem, plan_for(Arrays(red, labels)).stem) == ("learned", "whiten")  # three equal channels are grey
    assert (tiny.backbone, tiny.attention, tiny.stem, tiny.activation) == ("mlp", "peak", "learned", "relu")
    new = plan_for(Arrays(np.zeros((4, 28, 28, 1), np.uint8), labels), stem="whiten")
    assert new.stem == "whiten"
    start = plan_for(Arrays(np.ones((4, 5), np.float32), labels), start="0" * 64, start_name="lite0")
    assert (start.power, new.power) == (0.7, 1.0)
    document = json.loads(json.dumps(asdict(new)))
    assert plan_from(document) == new
    older = plan_from({key: value for key, value in document.items() if key not in LATER})
    assert (older.attention, older.stem, older.activation, older.power) == ("peak", "learned", "relu", 1.0)
    with pytest.raises(Damaged, match="stem"):
        plan_from(document | {"stem": "magic"})


def test_a_missing_device_is_named():

    with pytest.raises(DeviceMissing, match="cuda"):
        quick(device="cuda").fit(*of(0, 1))


def test_no_two_versions_share_a_file(tmp_path):
    model = quick().fit(*of(0, 1))
    model.save(tmp_path)
    model.save(tmp_path)
    first, second = (versions.place(tmp_path, n) / "weights.safetensors" for n in (1, 2))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_ino != second.stat().st_ino
    assert isinstance(first, Directory)


def test_a_directory_of_another_model_is_not_written_to(tmp_path):
    model = quick(epochs=1).fit(*of(0, 1))
    assert model.save(tmp_path) == 1
    with pytest.raises(ValueError, match="holds another model"):
        quick(epochs=2).fit(*of(2, 3)).save(tmp_path)
    grown = PathClassifier.load(tmp_path).partial_fit(*of(2))
    assert grown.save(tmp_path) == 2
    with pytest.raises(ValueError, match="has learned something else since"):
        model.partial_fit(*of(3)).save(tmp_path)
    assert versions.kept(tmp_path) == [1, 2]
