"""Every method against every check, and what Adaptive RPS-Net alone promises."""

import inspect
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from randpath.data.dataset import Arrays
from randpath.data.stream import Task
from randpath.errors import Diverged, UsageError
from randpath.learning.method import Work
from randpath.learning.selection import Job, Trial, best, random_search
from randpath.learning.train import fit
from randpath.methods import METHODS
from randpath.methods.icarl import ICaRL, NearestMean
from randpath.methods.rps import RPS
from randpath.network.fold import fold
from randpath.network.path import Path
from tests.checks import (
    CHECKS,
    check_goes_on_bit_exactly_after_a_round_trip,
    check_goes_on_exactly_from_an_unfinished_fit,
    check_keeps_no_images_under_another_name_than_memory,
    digest,
    pictures,
    setting,
    task,
    tasks,
)

SMALL = {"rps": {"N": 2}, "ranpac": {"width": 64}}


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", METHODS)
def test_conformance(name, check, tmp_path):
    def make():
        return METHODS[name](setting(), **SMALL.get(name, {}))

    check(make, tmp_path) if "tmp_path" in inspect.signature(check).parameters else check(make)


class WithoutMeans(ICaRL):
    """Loses its class means on save; all that it saves comes back, and a method that is not saved answers well."""

    def commit(self, task, net, epochs, *, memory, carried):
        self.means = carried["means"]["means"]
        return super().commit(task, net, epochs, memory=memory)

    def inference(self):
        means = getattr(self, "means", torch.ones(self.net.num_classes, self.net.num_features))
        return NearestMean(fold(self.net, self.path), means)


class Hoarder(ICaRL):
    """Keeps all images of every task, under another name than memory."""

    def commit(self, task, net, epochs, *, memory, carried):
        hoard = list(self.carried.get("statistics", {}).values())
        hoard += [x.flatten(1).float() for x, _ in task.train.batches([np.arange(len(task.train))])]
        return super().commit(
            task, net, epochs, memory=memory, carried={**carried, "statistics": {"moments": torch.cat(hoard)}}
        )


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (WithoutMeans, check_goes_on_bit_exactly_after_a_round_trip),
        (Hoarder, check_keeps_no_images_under_another_name_than_memory),
    ],
)
def test_a_broken_method_fails_the_conformance_suite(broken, check, tmp_path):
    """Each passes every other check of the suite."""
    for one in CHECKS:
        arguments = (tmp_path / one.__name__,) if "tmp_path" in inspect.signature(one).parameters else ()
        with pytest.raises(AssertionError) if one is check else nullcontext():
            one(lambda: broken(setting()), *arguments)


FORGET = ("finetune", "fixedrep", "ewc", "online_ewc", "si", "mas", "rwalk", "dmc", "dgr", "rtf", "progressive", "lwf")


@pytest.mark.parametrize("name", METHODS)
def test_learns_easy_classes(name):
    """A joint or replaying method knows the old class after the second task; fine-tuning need not."""
    from dataclasses import replace

    from randpath.learning.train import Training

    epochs = 60 if name == "rtf" else 20  # its pixels in 0..1 are small numbers, and it draws the pictures besides
    s = replace(setting(), training=Training(epochs=epochs, batch=16, lr=5e-3))
    method = METHODS[name](s, **({"N": 1} if name == "rps" else SMALL.get(name, {})))
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    test = pictures(range(4), seed=1)
    q = method.inference()(s.augment.plain(torch.from_numpy(test.items)))
    right = (q.argmax(1).numpy() == test.labels).reshape(4, -1).mean(axis=1)
    if name not in ("dmc", "fixedrep"):  # whose features are not made for the new classes
        assert right[2:].min() > 0.8
    if name not in FORGET:
        assert right[:2].min() > 0.6


@pytest.mark.parametrize("name", ["lwf", "icarl", "der"])
def test_conformance_of_a_convolutional_network(name, tmp_path):
    """Batch-norm statistics and channels_last tensors come back bit for bit too."""

    def make():
        return METHODS[name](setting(backbone="compact"))

    check_goes_on_bit_exactly_after_a_round_trip(make, tmp_path / "tasks")
    check_goes_on_exactly_from_an_unfinished_fit(make, tmp_path / "steps")


def module_bytes(method: RPS, path: Path) -> dict[str, bytes]:
    wanted = tuple(f"layers.{l}.parallel.{m}." for l, m in path)  # noqa: E741
    return {name: t.numpy().tobytes() for name, t in method.net.state_dict().items() if name.startswith(wanted)}


def test_a_reused_path_changes_in_each_task():
    method = RPS(setting(), N=1, threshold=1e9)
    seen = []
    for one in tasks(method):
        learned = method.learn(one, Work())
        assert learned.switched is False
        seen.append(module_bytes(method, method.P))
        assert Path.of(learned.path.to_lists()) == method.P
    for before, after in zip(seen, seen[1:]):
        assert all(before[name] != after[name] for name in before)


@pytest.mark.parametrize("backbone", ["mlp", "compact"])
def test_frozen_modules_are_byte_identical_ever_after(backbone):
    method = RPS(setting(backbone=backbone), N=2, switch_every=1)
    frozen: dict[str, bytes] = {}
    for one in tasks(method, (2, 2, 2, 1)):
        method.learn(one, Work())
        now = module_bytes(method, method.P_ts)
        assert {name: now[name] for name in frozen} == frozen
        frozen = now
    assert method.S == [1, 2, 3, 4]
    if backbone == "compact":
        assert any("running_mean" in name for name in frozen)


def test_goes_on_when_all_modules_are_exhausted():
    method = RPS(setting(), N=4, switch_every=1)
    notes = []
    for k in range(1, 16):
        notes += method.learn(task(k, range(k - 1, k), each=6), Work()).remarks
    assert method.P_fixed == Path.full(2, 3)
    assert any("wholly in frozen modules" in note for note in notes)


def test_switches_when_saturated_and_counts_from_the_first_switch():
    always = RPS(setting(), N=1, threshold=-1e9)
    lines = [always.learn(one, Work()) for one in tasks(always)]
    assert [line.switched for line in lines] == [True, True, True]
    assert [line.epochs[0]["phi"] for line in lines] == [None, 40 / 30, 2 * 40 / 30]  # gamma = images / budget
    never = RPS(setting(), N=1, threshold=1e9)
    assert [never.learn(one, Work()).epochs[0]["phi"] for one in tasks(never)] == [None, 1.0, 1.0]


def test_the_controller_by_ratio_weighs_old_classes_against_new_ones():
    method = RPS(setting(), N=1, controller="ratio", gamma=1.5, threshold=99)
    phis, teacher = [], None
    for k, classes in ((1, range(2)), (2, range(2, 4)), (3, range(4, 5))):
        teacher = fold(method.net, method.P_ts) if method.k else None
        phis.append({line["phi"] for line in method.learn(task(k, classes), Work()).epochs})
    again = replace(task(3, range(4, 5)), new=range(5, 5))
    phis.append({line["phi"] for line in method.go_on(again, Work(), teacher).epochs})
    assert phis == [{None}, {1.5}, {3.0}, {3.0}]  # the last call goes on with task 3, against the teacher it had


def test_the_first_task_gets_its_factor_of_epochs_except_in_joint_training():
    longer = replace(setting(), training=replace(setting().training, epochs=2, first_factor=1.5))
    for name, epochs in (("rps", [3, 2]), ("rehearsal", [3, 2]), ("finetune", [3, 2]), ("joint", [2, 2])):
        method = METHODS[name](longer)
        learned = [method.learn(one, Work()) for one in tasks(method, (2, 2))]
        assert [max(line["epoch"] for line in one.epochs) for one in learned] == epochs, name


def test_a_network_that_has_nothing_to_keep_has_a_learning_rate_of_its_own():
    training = replace(setting().training, optimizer="sgd", lr=0.02, first_lr=0.05, halve_after=(), epochs=1)
    for name, rates in (("rps", [0.05, 0.02]), ("rehearsal", [0.05, 0.02]), ("joint", [0.05, 0.05])):
        method = METHODS[name](replace(setting(), training=training))
        learned = [method.learn(one, Work()) for one in tasks(method, (2, 2))]
        assert [one.epochs[0]["lr"] for one in learned] == rates, name


def test_the_teacher_is_the_previous_state_on_the_previous_inference_path(monkeypatch):
    method = RPS(setting(), N=2, switch_every=1)
    jobs: list[Job] = []

    def remember(job, paths, work):
        jobs.append(job)
        return random_search(job, paths, work)

    monkeypatch.setattr("randpath.methods.rps.random_search", remember)
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for one in tasks(method):
        before = method.inference()(x) if method.k else None
        several = method.P_ts != method.P
        method.learn(one, Work())
        if before is not None:
            assert torch.allclose(jobs[-1].teacher(x), before, atol=1e-5)
    assert several, "frozen modules were part of it"


def test_saturation_is_measured_on_the_whole_memory_after_its_update(monkeypatch):
    method = RPS(setting(), N=1)
    seen = []

    def remember(net, P, P_ts, exemplars, augment):
        seen.append((P, P_ts, sorted(exemplars.labels.tolist())))
        return 0.0

    monkeypatch.setattr("randpath.methods.rps.saturation", remember)
    for one in tasks(method):
        method.learn(one, Work())
        memory = [c for part in (method.memory.train, method.memory.val) for d in part.values() for c in d.labels]
        assert seen[-1] == (method.P, method.P_ts, sorted(memory))
        assert len(memory) == 30


@pytest.mark.parametrize("budget", [0, 30])
@pytest.mark.parametrize("name", METHODS)
def test_one_image_of_one_class_is_a_task_also_with_batch_norm(name, budget):
    if not budget and getattr(METHODS[name], "needs_exemplars", False):
        with pytest.raises(UsageError, match="needs exemplars"):
            METHODS[name](setting(budget))
        return
    method = METHODS[name](setting(budget, backbone="compact"), **({"N": 1} if name == "rps" else {}))
    method.learn(task(1, range(1), each=1), Work())
    method.learn(task(2, range(1, 3), each=1, cumulative=method.cumulative), Work())
    assert torch.isfinite(method.inference()(torch.zeros(2, 1, 8, 8))).all()


def test_no_gradient_is_made_for_a_frozen_parameter_while_a_path_trains(monkeypatch):
    method = RPS(setting(backbone="compact"), N=1, switch_every=1)
    checked = []

    def watch(net, params, *rest, **more):
        def nothing_elsewhere(step: int) -> None:
            own = {id(p) for p in params.values()}
            assert all(p.grad is None for p in net.parameters() if id(p) not in own)
            checked.append(len(own))

        return fit(net, params, *rest, **more, after_backward=nothing_elsewhere)

    monkeypatch.setattr("randpath.learning.selection.fit", watch)
    for one in tasks(method):
        method.learn(one, Work())
    assert len(checked) > 6


def test_one_class_has_no_saturation():
    method = RPS(setting(), N=1)
    learned = method.learn(task(1, range(1)), Work())
    assert learned.saturation is None
    assert learned.switched is False


def test_without_a_memory_it_warns_once_and_has_no_saturation():
    method = RPS(setting(budget=0), N=1)
    lines = [method.learn(one, Work()) for one in tasks(method)]
    assert [len(line.notes) for line in lines] == [1, 0, 0]
    assert "budget is 0" in lines[0].notes[0]
    assert all(line.saturation is None for line in lines)
    assert len(method.memory) == 0


def test_a_budget_below_the_number_of_classes_is_refused_with_the_number_needed():
    method = RPS(setting(budget=5), N=1)
    method.learn(task(1, range(4)), Work())
    before = digest(method)
    with pytest.raises(ValueError, match="at least 6"):
        method.learn(task(2, range(4, 6)), Work())
    assert digest(method) == before


def test_learn_cannot_reach_test_data():
    assert set(Task.__dataclass_fields__) == {"k", "num_classes", "new", "train", "val"}


def test_float_images_and_nan_vectors_are_refused():
    with pytest.raises(ValueError, match="float32 of shape"):
        Arrays(np.zeros((2, 8, 8, 1), np.float32), np.array([0, 1]))
    bad = np.zeros((3, 4), np.float32)
    bad[1, 2] = np.nan
    with pytest.raises(ValueError, match="item 1"):
        Arrays(bad, np.array([0, 1, 1]))


def test_the_best_candidate_is_chosen_on_validation_and_never_a_diverged_one():
    P = Path.full(1, 1)
    failure = Diverged("the loss", 3, 0.1, 1.0, [2.0])

    def trial(index, score, failure=None):
        return Trial(index, P, score, {}, [], 0, failure)

    assert best([trial(2, 0.5), trial(0, 0.4), trial(1, 0.5)]).index == 1
    assert best([trial(0, None, failure), trial(1, 0.0)]).index == 1
    assert best([trial(1, None), trial(0, None)]).index == 0
    with pytest.raises(Diverged, match="not finite at step 3"):
        best([trial(0, None, failure)])


def test_divergence_is_caught_before_it_reaches_the_weights():
    from dataclasses import replace

    from randpath.learning.train import Training

    s = replace(setting(), training=Training(epochs=2, batch=16, optimizer="sgd", lr=1e30))
    method = RPS(s, N=2)
    before = digest(method)
    with pytest.raises(Diverged):
        method.learn(task(1, range(2)), Work())
    assert digest(method) == before
