"""GPUs, without one: on torch's `meta` device no CPU tensor joins another and no value can be read."""

from dataclasses import replace

import pytest
import torch

from randpath.engines import device, processes
from randpath.engines.device import deterministic_kernels, moved, own
from randpath.engines.processes import Processes
from randpath.errors import DeviceMissing, Diverged
from randpath.learning import method as learning_method
from randpath.learning import plain, train
from randpath.learning.method import Work
from randpath.learning.train import Training, fit
from randpath.methods import METHODS
from tests.checks import digest, setting, task, tasks

SOLVED = ("ncm", "slda", "ranpac", "logistic", "joint_logistic", "anchored")  # solved on the CPU, at least in part
READS = ("gem",)  # whose quadratic programme is solved on the CPU at each step


class Enough(Exception):
    """The steps were made; no value can be read from this device."""


@pytest.mark.parametrize("balanced", [False, True])
def test_the_loss_of_rehearsal_is_made_on_the_device(monkeypatch, balanced):
    method = METHODS["rehearsal"](setting(device="meta"), balanced=balanced)
    monkeypatch.setattr(method, "begin", lambda task: on_meta(method, task))

    def one_loss(net, params, data, loss, *rest, **more):
        x, y = torch.zeros(4, 1, 8, 8, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
        assert all(value.is_meta for _, value in loss(x, y, 0).values())
        raise Enough

    monkeypatch.setattr(plain, "fit", one_loss)
    with pytest.raises(Enough):
        method.learn(task(1, range(2)), Work())


def on_meta(method, task):
    with torch.device("meta"):
        net = method.setting.backbone.build(0)
        net.grow_head(task.num_classes)
    return net.to("meta")


def test_a_tensor_left_on_the_cpu_would_be_noticed():
    with pytest.raises(RuntimeError, match="meta"):
        torch.zeros(2, 3, device="meta") + torch.zeros(3)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in SOLVED])
def test_a_second_task_is_trained_on_the_device_and_no_step_reads_a_value(monkeypatch, name):
    """Reading one waits for all that the GPU has to do; so does a tensor that is brought there by itself."""
    options = {"N": 1} if name == "rps" else {}
    method = METHODS[name](setting(backbone="mlp" if name in ("dgr", "rtf") else "compact"), **options)
    first, second = tasks(method, (2, 2))
    method.learn(first, Work())
    method.setting = replace(method.setting, device="meta")  # a state on a GPU can be copied to the CPU, this one not
    if name != "rps":  # whose job takes the state to the device
        begin = method.begin

        def begin_there(*args, **more):
            net = begin(*args, **more)
            method.net.to("meta")
            return net

        monkeypatch.setattr(method, "begin", begin_there)
    steps = []

    def count(net, params, data, loss, *rest, **more):
        assert all(p.is_meta for p in net.parameters())

        def stepped(x, y, step):
            steps.append(step)
            assert x.is_meta
            assert y.is_meta
            return loss(x, y, step)

        fit(net, params, data, stepped, *rest, **more)
        raise Enough

    monkeypatch.setattr(train._Run, "close_epoch", lambda run, *_: setattr(run, "epoch", 99))
    monkeypatch.setattr("randpath.methods.rwalk._importance", lambda old: old["fisher"])  # reads, once before the steps
    monkeypatch.setattr("randpath.learning.plain.fit", count)
    monkeypatch.setattr("randpath.learning.selection.fit", count)
    with pytest.raises(RuntimeError if name in READS else Enough, match="meta" if name in READS else None):
        method.learn(second, Work())
    assert len(steps) == 1 if name in READS else len(steps) > 1


def stretched(monkeypatch, patience):
    """A fit on the CPU that looks at its numbers only every so many steps, as one on a GPU does."""
    made = train._Run.__init__

    def init(run, *args):
        made(run, *args)
        run.patience = patience

    monkeypatch.setattr(train._Run, "__init__", init)


@pytest.mark.parametrize("patience", [3, 64])
def test_numbers_that_are_read_later_are_the_same(monkeypatch, tmp_path, patience):
    straight = METHODS["rehearsal"](setting(backbone="compact"))
    learned = [straight.learn(one, Work(place=tmp_path / f"a{one.k}")).epochs for one in tasks(straight)]
    stretched(monkeypatch, patience)
    later = METHODS["rehearsal"](setting(backbone="compact"))
    assert [later.learn(one, Work(place=tmp_path / f"b{one.k}")).epochs for one in tasks(later)] == learned
    assert digest(later) == digest(straight)


def test_a_divergence_that_is_read_later_names_its_step_and_is_not_saved(monkeypatch, tmp_path):
    s = replace(setting(), training=Training(epochs=2, batch=8, optimizer="sgd", lr=1e30, save_seconds=0))
    told = []
    for number, patience in enumerate((1, 64)):
        stretched(monkeypatch, patience)
        with pytest.raises(Diverged) as refused:
            METHODS["finetune"](s).learn(task(1, range(2)), Work(place=tmp_path / str(number)))
        told.append((refused.value.step, refused.value.lr, str(refused.value).split(";")[0]))
        assert not list((tmp_path / str(number)).glob("**/*.safetensors"))
    assert told[0] == told[1]


# ---- several GPUs, pinned memory, precision, kernels


def test_a_worker_has_a_gpu_of_its_own_as_far_as_there_are_several(monkeypatch):
    for gpus, workers, wanted in ((0, 2, "cuda"), (1, 2, "cuda"), (4, 1, "cuda:1"), (4, 6, "cuda:2")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        monkeypatch.setattr(processes, "worker", workers)
        assert own("cuda") == wanted
        assert [own(name) for name in ("cpu", "cuda:3", "mps")] == ["cpu", "cuda:3", "mps"]  # as it was asked for


def place_of_worker(argument, tick):
    import time

    time.sleep(0.3)  # so that no worker takes two
    return processes.worker


def test_the_workers_of_an_engine_are_numbered_from_0():
    with Processes(2) as engine:
        assert sorted(engine.map(place_of_worker, [0, 1])) == [0, 1]
        engine._workers[0].process.kill()
        engine._workers[0].process.join()
        assert sorted(engine.map(place_of_worker, [0, 1])) == [0, 1]  # the new one takes the lost one's place
    assert processes.worker == 0


class Pretended:
    """A tensor that only says how it was moved."""

    def __init__(self, *said):
        self.said = said

    def pin_memory(self):
        return Pretended(*self.said, "pinned")

    def to(self, where, non_blocking=False):
        return (*self.said, str(where), non_blocking)


def test_a_tensor_goes_to_a_gpu_from_pinned_memory_without_waiting():
    assert moved(Pretended(), "cuda:1") == ("pinned", "cuda:1", True)
    assert moved(Pretended(), "cpu") == ("cpu", False)
    x = torch.ones(2)
    assert moved(x, "cpu") is x


def test_mixed_precision_is_torchs_and_refused_on_a_cpu_that_lacks_it(monkeypatch):
    monkeypatch.setattr(learning_method, "lacks_bfloat16", lambda: "this CPU does not compute in bfloat16")
    with pytest.raises(DeviceMissing, match="does not compute in bfloat16") as refused:
        replace(setting(), training=Training(mixed=True))
    assert "training.mixed=false" in refused.value.next
    monkeypatch.setattr(learning_method, "lacks_bfloat16", lambda: "")
    assert replace(setting(), training=Training(mixed=True)).training.mixed
    asked = []
    monkeypatch.setattr(torch, "autocast", lambda *how: asked.append(how))
    train.precision(Training(mixed=True), torch.device("cuda"))
    assert asked == [("cuda", torch.bfloat16)]
    with train.precision(Training(), torch.device("cuda")):
        assert len(asked) == 1


def test_a_cpu_that_promises_bfloat16_is_tried_in_a_process_of_its_own(monkeypatch):
    def asked(promised: bool, step: str) -> str:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": promised})
        monkeypatch.setattr(device, "ONE_STEP", step)
        return device.lacks_bfloat16.__wrapped__()

    assert "slower" in asked(False, "raise SystemExit(1)")
    assert asked(True, "") == ""
    assert "signal 4" in asked(True, "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert "could not be tried" in asked(True, "raise SystemExit(1)")


@pytest.mark.parametrize("name", ["rps", "rehearsal", "lwf", "der"])
def test_mixed_precision_learns_on_a_cpu_and_keeps_weights_and_losses_in_float32(name):
    if reason := device.lacks_bfloat16():
        pytest.skip(reason)
    full = setting(backbone="compact")
    half = replace(full, training=replace(full.training, mixed=True))
    once, again, plainly = (METHODS[name](s).learn(task(1, range(4)), Work()).epochs for s in (half, half, full))
    assert once == again  # the same bits
    assert once != plainly
    assert once[0]["loss_ce"] == pytest.approx(plainly[0]["loss_ce"], rel=0.05)  # later ones drift apart
    method = METHODS[name](half)
    for one in tasks(method, (2, 2)):
        method.learn(one, Work())
    kept = [t for tensors in method.state_dict().tensors.values() for t in tensors.values()]
    assert not any(torch.as_tensor(t).dtype == torch.bfloat16 for t in kept)


def test_deterministic_kernels_are_asked_for_by_a_setting(monkeypatch):
    asked = []
    monkeypatch.setattr(train, "deterministic_kernels", lambda: asked.append(True))
    METHODS["finetune"](setting()).learn(task(1, range(2)), Work())
    assert not asked
    s = setting()
    s = replace(s, training=replace(s.training, deterministic=True))
    METHODS["finetune"](s).learn(task(1, range(2)), Work())
    assert asked


def test_deterministic_kernels_are_torchs(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # put back afterwards
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    try:
        deterministic_kernels()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
