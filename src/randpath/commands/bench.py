"""The commands that run recipes. torch is imported inside them, after the lock is taken."""

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from randpath.bench.cells import NAMED
from randpath.commands import recipe as recipes
from randpath.commands.cells import many
from randpath.commands.terminal import Bar, Stop, path_map, results_table, task_line
from randpath.commands.watch import Watch
from randpath.errors import Damaged, Diverged, Stopped, UsageError, as_typed
from randpath.storage.lock import lock

Variant = Literal["tuned", "paper"]

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment

    Begun = tuple[Experiment, Mapping[str, Any] | None]  # and the recipe file it comes from


def bench(
    recipe: str,
    *,
    variant: Variant = "tuned",
    method: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    record: bool = False,
    skip_bad: bool = False,
    device: str | None = None,
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
        Another method in the same arena, or a named variant of one; `randpath methods` lists them.
    seed
        Of weights, batches, paths and exemplars; the class order belongs to the recipe.
    out
        The run directory; default runs/RECIPE-METHOD-VARIANT-SEED.
    record
        Append the result to docs/results/RECIPE.json of the present directory.
    skip_bad
        Leave out the faulty files of a folder of pictures; the run lists them in skipped.json.
    device
        Where to train: cpu, cuda, cuda:1 or mps; the same as --set device=...
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
    recipes.check_there(recipe)
    name = Path(recipe).stem
    if skip_bad:
        set_ = (*set_, "skip_bad=true")
    if device is not None:
        set_ = (*set_, f"device={device}")
    if methods or seeds or grid:
        results = _results_file(name) if record else None
        root = out or Path("runs") / f"{name}-{variant}"
        return many(recipe, variant, methods or method, seeds or str(seed), set_, grid, root, jobs, results)
    return _one(recipe, variant, method, seed, set_, out, record)


def _one(
    recipe: str,
    variant: Variant,
    method: str | None,
    seed: int,
    settings: tuple[str, ...],
    out: Path | None,
    record: bool,
) -> int:
    """One run in a directory of its own, whose name says what it is."""
    name = Path(recipe).stem
    if method is None and not recipes.is_file(recipe):  # a file's own method may be another one
        method = "rps"
    named = method
    if method in NAMED:
        method, settings = NAMED[method][0], (*NAMED[method][1], *settings)
    begin = cache(lambda: _experiment(recipe, variant, method, seed, settings))
    directory = out or Path("runs") / f"{name}-{named or begin()[0].method}-{variant}-{seed}"
    if (directory / "experiment.json").exists():
        raise UsageError(
            f"{directory} holds a run already; type: {as_typed('resume', directory)}   (or choose another --out)"
        )
    if record:
        _results_file(name)
    typed = f" --method {method}" if method else ""
    changed = "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    command = f"randpath bench {recipe} --variant {variant}{typed} --seed {seed}{changed}"
    return _run(begin, directory, command, record)


def resume(run: Path, *, inexact: bool = False, record: bool = False, recipe: Path | None = None) -> int:
    """Go on with an interrupted run, exactly as if it had never stopped.

    Parameters
    ----------
    run
        The run directory.
    inexact
        Go on although library versions, the machine or the recipe file differ; the result is not bit-identical then.
    record
        Append the result to docs/results/RECIPE.json of the present directory.
    recipe
        Where the recipe file is now, if it defines the run's method or dataset and was moved.
    """
    from randpath.storage import checkpoint

    if not (run / "experiment.json").exists():
        raise UsageError(f"{run} is not a run directory: it has no experiment.json")
    with _reading(run):
        document = checkpoint.read_document(run / "experiment.json")
        command, file = document["command"], document.get("recipe_file")

    def begin() -> "Begun":
        from randpath.bench.experiment import Experiment

        with _reading(run):
            again = None if file is None else recipes.read_again(file, run, recipe, inexact)
            return Experiment.from_json(document["experiment"]), again

    return _run(begin, run, command, record, inexact)


def methods(name: str | None = None) -> int:
    """List the methods that `bench --method` takes, or the options of one.

    Parameters
    ----------
    name
        A method; its options are changed by `bench --set options.NAME=VALUE`.
    """
    from dataclasses import MISSING

    from randpath.methods import METHODS
    from randpath.settings import declared

    if name is not None and name not in (*METHODS, *NAMED):
        raise UsageError(f"there is no method {name!r}; there are {', '.join([*METHODS, *NAMED])}")
    console = Console(highlight=False, soft_wrap=True)
    for one in [*METHODS, *NAMED] if name is None else [name]:
        if one in NAMED:
            text = f"{NAMED[one][0]} with {', '.join(NAMED[one][1])}"
        else:
            text = (sys.modules[METHODS[one].__module__].__doc__ or "").splitlines()[0]
        console.print(f"[bold]{one:12}[/] {escape(text)}")
    name = NAMED[name][0] if name in NAMED else name
    if name is not None:
        table = Table(box=None, header_style="bold")
        for column in ("option", "default", "takes", "meaning"):
            table.add_column(column, overflow="fold")
        for setting in declared(METHODS[name]).values():
            default = "-" if setting.default is MISSING else json.dumps(setting.default)
            table.add_row(setting.name, default, escape(setting.wanted()), escape(setting.meaning))
        console.print(table if table.row_count else "it has no options of its own")
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


def _run(begin: "Callable[[], Begun]", directory: Path, command: str, record: bool, inexact: bool = False) -> int:
    """Run or go on with what `begin` returns, which is called after the lock is taken: it imports torch."""
    from randpath.storage import checkpoint

    with lock(directory), Stop() as stop:
        from randpath.report.record import append_result, result_of

        begun = begin()
        experiment = begun[0]
        if not (directory / "experiment.json").exists():
            checkpoint.need_space(directory.parent if directory.parent.exists() else Path(), 50_000_000)
        with Bar("reading the data") as bar:
            lines = _tasks(begun, directory, command, inexact, bar, stop)
        if stop.signal and len(lines) < _num_tasks(experiment):
            return 128 + stop.signal
        Console().print(results_table(lines))
        if lines and lines[-1]["path"] is not None:
            print("path map: layers down, modules across; the first task that used a module, * the present path")
            print(path_map(lines))
        if record:
            file = _results_file(experiment.recipe)
            append_result(file, result_of(directory, command))
            print(f"recorded in {file}; to renew the tables, type: make tables")
        print(f"the run is in {directory}; other methods: randpath methods")
        if experiment.method != "rehearsal":
            same = command.replace(f" --method {experiment.method}", "")
            print(f"the same with another one, e.g.:\n  {same} --method rehearsal")
    return 0


def _tasks(begun: "Begun", directory: Path, command: str, inexact: bool, bar: Bar, stop: Stop) -> list[dict[str, Any]]:
    """Learn task by task and say so; the metrics lines of all tasks, or of those committed before a stop."""
    from randpath.bench.run import steps
    from randpath.engines.processes import SILENCE, Processes
    from randpath.engines.serial import Serial

    experiment, recipe_file = begun
    num_tasks = _num_tasks(experiment)
    watch = Watch(experiment, directory, num_tasks)
    lines = watch.lines

    def tick(done: float) -> None:
        watch.step(done)
        bar.show(done, lambda: watch.text(done))
        if stop.signal:
            raise Stopped()

    # A member chooses exemplars and measures mu_sat or importances without a sign of life.
    silence = SILENCE if experiment.members == 1 else 12 * SILENCE
    pool = Processes(experiment.processes, silence, tick) if experiment.processes > 1 else None
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: bar.say(f"warning: {message}")
        try:
            engine = pool or Serial(tick)
            for line in steps(
                experiment, directory, engine=engine, inexact=inexact, command=command, recipe_file=recipe_file
            ):
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


def _experiment(recipe: str, variant: Variant, method: str | None, seed: int, settings: tuple[str, ...]) -> "Begun":
    """The experiment that a recipe defines, with what was typed changed."""
    chosen, file = recipes.read(recipe, variant)
    return recipes.changed(chosen, recipe, variant, method, seed, settings), file


def _num_tasks(experiment: "Experiment") -> int:
    return experiment.tasks if isinstance(experiment.tasks, int) else len(experiment.tasks)


def _results_file(recipe: str) -> Path:
    folder = Path("docs") / "results"
    if not folder.is_dir():
        raise UsageError("--record writes to docs/results of a checkout of randpath; there is none in this directory")
    return folder / f"{recipe}.json"
