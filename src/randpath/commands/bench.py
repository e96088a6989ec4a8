"""The commands that run recipes. torch is imported inside them, after the lock is taken."""

import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from randpath.commands.cells import many
from randpath.commands.terminal import Bar, Stop, results_table, task_line
from randpath.commands.watch import Watch
from randpath.errors import Damaged, Diverged, Stopped, UsageError, as_typed
from randpath.storage.lock import lock

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment


def bench(
    recipe: str,
    *,
    variant: Literal["tuned", "paper"] = "tuned",
    method: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    record: bool = False,
    skip_bad: bool = False,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    methods: str | None = None,
    seeds: str | None = None,
    grid: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    jobs: int = 1,
) -> int:
    """Run a recipe: learn its tasks one after another, testing after each. Or run it many times, for a table.

    Parameters
    ----------
    recipe
        A name (digits_5, mnist_5, cifar100_10_cpu, ...) or a .py file that defines `paper` and `tuned`.
    variant
        `tuned` is the best we know, `paper` is as the paper is written.
    method
        Another method in the same arena; `randpath methods` lists them.
    seed
        Of weights, batches, paths and exemplars; the class order belongs to the recipe.
    out
        The run directory; default runs/RECIPE-METHOD-VARIANT-SEED.
    record
        Append the result to docs/results/RECIPE.json of the present directory.
    skip_bad
        Leave out the faulty files of a folder of pictures; the run lists them in skipped.json.
    set_
        Change one setting, e.g. --set training.epochs=10 --set options.threshold=2
    methods
        Several methods, e.g. rps,gem,joint or all; each run has a directory of its own below --out.
    seeds
        Several seeds, e.g. 0,1,2
    grid
        Several values of a setting, e.g. --grid options.gamma=1,2.5 --grid memory=500,2000
    jobs
        How many of these runs go on at once.
    """
    _check_recipe(recipe)
    name = Path(recipe).stem
    if methods or seeds or grid:
        results = _results_file(name) if record else None
        root = out or Path("runs") / f"{name}-{variant}"
        settings = (*set_, "skip_bad=true") if skip_bad else set_
        return many(
            recipe, variant, methods or method or "rps", seeds or str(seed), settings, grid, root, jobs, results
        )
    directory = out or Path("runs") / f"{name}-{method or 'rps'}-{variant}-{seed}"
    if (directory / "experiment.json").exists():
        raise UsageError(
            f"{directory} holds a run already; type: {as_typed('resume', directory)}   (or choose another --out)"
        )
    if record:
        _results_file(name)
    if skip_bad:
        set_ = (*set_, "skip_bad=true")
    typed_settings = "".join(f" --set {shlex.quote(setting)}" for setting in set_)
    if method is None and not recipe.endswith(".py"):  # whose own method may be another one
        method = "rps"
    typed = f" --method {method}" if method else ""
    command = f"randpath bench {recipe} --variant {variant}{typed} --seed {seed}{typed_settings}"
    return _run(lambda: _experiment(recipe, variant, method, seed, set_), directory, command, record)


def resume(run: Path, *, inexact: bool = False, record: bool = False) -> int:
    """Go on with an interrupted run, exactly as if it had never stopped.

    Parameters
    ----------
    run
        The run directory.
    inexact
        Go on although library versions or the machine differ; the result is then not bit-identical.
    record
        Append the result to docs/results/RECIPE.json of the present directory.
    """
    from randpath.storage import checkpoint

    if not (run / "experiment.json").exists():
        raise UsageError(f"{run} is not a run directory: it has no experiment.json")
    with _reading(run):
        document = checkpoint.read_document(run / "experiment.json")
        command = document["command"]

    def experiment() -> "Experiment":
        from randpath.bench.experiment import Experiment

        with _reading(run):
            return Experiment.from_json(document["experiment"])

    return _run(experiment, run, command, record, inexact)


def methods() -> int:
    """List the methods that `bench --method` takes."""
    from randpath.methods import METHODS

    console = Console()
    for name, method in METHODS.items():
        module = sys.modules[method.__module__]
        console.print(f"[bold]{name:12}[/] {(module.__doc__ or '').splitlines()[0]}", highlight=False)
    return 0


@contextmanager
def _reading(run: Path) -> Iterator[None]:
    """What is wrong with experiment.json, and where its contents are to be found again."""
    try:
        yield
    except (Damaged, LookupError, TypeError, AttributeError) as error:
        raise Damaged(
            f"{run / 'experiment.json'} is damaged, or of another release ({error}); the newest directory in "
            f"{run / 'checkpoints'} holds its contents as the entry of run.json"
        ) from error


def _run(get: "Callable[[], Experiment]", directory: Path, command: str, record: bool, inexact: bool = False) -> int:
    """Run or go on with what `get` returns, which is called after the lock is taken: it imports torch."""
    from randpath.storage import checkpoint

    with lock(directory), Stop() as stop:
        from randpath.report.record import append_result, result_of

        experiment = get()
        if not (directory / "experiment.json").exists():
            checkpoint.need_space(directory.parent if directory.parent.exists() else Path(), 50_000_000)
        with Bar("reading the data") as bar:
            lines = _tasks(experiment, directory, command, inexact, bar, stop)
        if stop.signal and len(lines) < _num_tasks(experiment):
            return 128 + stop.signal
        Console().print(results_table(lines))
        if record:
            file = _results_file(experiment.recipe)
            append_result(file, result_of(directory, command))
            print(f"recorded in {file}; to renew the tables, type: make tables")
        print(f"the run is in {directory}; other methods: randpath methods")
        if experiment.method != "rehearsal":
            same = command.replace(f" --method {experiment.method}", "")
            print(f"the same with another one, e.g.:\n  {same} --method rehearsal")
    return 0


def _tasks(
    experiment: "Experiment", directory: Path, command: str, inexact: bool, bar: Bar, stop: Stop
) -> list[dict[str, Any]]:
    """Learn task by task and say so; the metrics lines of all tasks, or of those committed before a stop."""
    from randpath.bench.run import steps
    from randpath.engines.processes import Processes
    from randpath.engines.serial import Serial

    num_tasks = _num_tasks(experiment)
    watch = Watch(experiment, directory, num_tasks)
    lines = watch.lines

    def tick(done: float) -> None:
        watch.step(done)
        bar.show(done, lambda: watch.text(done))
        if stop.signal:
            raise Stopped()

    pool = Processes(experiment.processes, tick=tick) if experiment.processes > 1 else None
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: bar.say(f"warning: {message}")
        try:
            for line in steps(experiment, directory, engine=pool or Serial(tick), inexact=inexact, command=command):
                watch.committed(line)
                bar.say(task_line(line, num_tasks))
        except Diverged as error:
            error.kept = f"the {len(lines)} tasks before this one, in {directory}"
            error.next = f"a lower learning rate, in another --out: --set training.lr={error.lr / 10:g}"
            raise
        except Stopped:
            bar.say(f"stopped; {len(lines)} tasks are committed, the unfinished one is saved. To go on, type:")
            bar.say(f"  {as_typed('resume', directory)}")
        finally:
            watch.end()
            if pool is not None:
                pool.close()
    return lines


def _check_recipe(name: str) -> None:
    """Refuse a recipe that is not there, without importing anything."""
    here = sorted(p.stem for p in (Path(__file__).parents[1] / "recipes").glob("[a-z]*.py"))
    if name.endswith(".py") and not Path(name).is_file():
        raise UsageError(f"there is no recipe file {name}")
    if not name.endswith(".py") and name not in here:
        raise UsageError(f"there is no recipe {name!r}; there are {', '.join(here)}, or give a .py file")


def _recipe(name: str) -> ModuleType:
    import importlib
    import importlib.util

    if not name.endswith(".py"):
        return importlib.import_module(f"randpath.recipes.{name}")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    here = sys.modules.setdefault(spec.name, module)  # a dataclass looks its module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"the recipe {name} cannot be read: {type(error).__name__}: {error}") from error
    finally:
        if here is module:
            del sys.modules[spec.name]
    return module


def _experiment(recipe: str, variant: str, method: str | None, seed: int, settings: tuple[str, ...]) -> "Experiment":
    """The experiment that a recipe defines, with what was typed changed."""
    from dataclasses import replace

    from randpath.bench.experiment import Experiment

    chosen = getattr(_recipe(recipe), variant, None)
    if not isinstance(chosen, Experiment):
        raise UsageError(f"{recipe} does not define {variant!r} as an Experiment")
    if method is not None and method != chosen.method:
        chosen = replace(chosen, method=method, options={})
    changed: Experiment = replace(chosen, recipe=Path(recipe).stem, variant=variant, seed=seed).with_settings(settings)  # type: ignore[arg-type]
    if changed.seed != seed:
        raise UsageError("the seed is set by --seed")
    return changed


def _num_tasks(experiment: "Experiment") -> int:
    return experiment.tasks if isinstance(experiment.tasks, int) else len(experiment.tasks)


def _results_file(recipe: str) -> Path:
    folder = Path("docs") / "results"
    if not folder.is_dir():
        raise UsageError("--record writes to docs/results of a checkout of randpath; there is none in this directory")
    return folder / f"{recipe}.json"
