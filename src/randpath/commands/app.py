"""The command line. torch is imported inside the commands, so that --help is quick and a lock is taken first."""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from randpath.commands.ask import check, data, evaluate, export, info, predict
from randpath.commands.learn import learn, rename, rollback
from randpath.commands.terminal import Bar, Stop
from randpath.errors import Damaged, DiskTrouble, RandpathError, UsageError
from randpath.storage.lock import lock

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment

app = cyclopts.App(
    name="randpath",
    help="Teach an image classifier new classes without its old data (Adaptive RPS-Net).",
    help_format="plaintext",
    result_action="return_value",
)


for command in (learn, predict, evaluate, info, rollback, rename, export, check, data):
    app.command(command)


@app.command
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
) -> int:
    """Run a recipe: learn its tasks one after another, testing after each.

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
    """
    _check_recipe(recipe)
    name = Path(recipe).stem
    directory = out or Path("runs") / f"{name}-{method or 'rps'}-{variant}-{seed}"
    if (directory / "experiment.json").exists():
        raise UsageError(
            f"{directory} holds a run already; type: randpath resume {directory}   (or choose another --out)"
        )
    if record:
        _results_file(name)
    if skip_bad:
        set_ = (*set_, "skip_bad=true")
    changes = "".join(f" --set {shlex.quote(setting)}" for setting in set_)
    if method is None and not recipe.endswith(".py"):  # whose own method may be another one
        method = "rps"
    typed = f" --method {method}" if method else ""
    command = f"randpath bench {recipe} --variant {variant}{typed} --seed {seed}{changes}"

    def experiment() -> "Experiment":
        from dataclasses import replace

        from randpath.bench.experiment import Experiment

        chosen = getattr(_recipe(recipe), variant, None)
        if not isinstance(chosen, Experiment):
            raise UsageError(f"{recipe} does not define {variant!r} as an Experiment")
        if method is not None and method != chosen.method:
            chosen = replace(chosen, method=method, options={})
        changed: Experiment = replace(chosen, recipe=name, variant=variant, seed=seed).with_settings(set_)
        if changed.seed != seed:
            raise UsageError("the seed is set by --seed")
        return changed

    return _run(experiment, directory, command, record)


@app.command
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
    with _damage_told(run):
        document = checkpoint.read_document(run / "experiment.json")
        command = document["command"]

    def experiment() -> "Experiment":
        from randpath.bench.experiment import Experiment

        with _damage_told(run):
            return Experiment.from_json(document["experiment"])

    return _run(experiment, run, command, record, inexact)


@contextmanager
def _damage_told(run: Path) -> Iterator[None]:
    """What is wrong with experiment.json, and where its contents are to be found again."""

    try:
        yield
    except (Damaged, LookupError, TypeError, AttributeError) as error:
        raise Damaged(
            f"{run / 'experiment.json'} is damaged, or of another release ({error}); the newest directory in "
            f"{run / 'checkpoints'} holds its contents as the entry of run.json"
        ) from error


@app.command
def methods() -> int:
    """List the methods that `bench --method` takes."""
    from randpath.methods import METHODS

    console = Console()
    for name, method in METHODS.items():
        module = sys.modules[method.__module__]
        console.print(f"[bold]{name:12}[/] {(module.__doc__ or '').splitlines()[0]}", highlight=False)
    return 0


def _run(get: "Callable[[], Experiment]", directory: Path, command: str, record: bool, inexact: bool = False) -> int:
    """Run or go on with what `get` returns, which is called after the lock is taken: it imports torch."""
    from randpath.storage import checkpoint

    with lock(directory), Stop() as stop:
        from randpath.bench import run as experiments
        from randpath.commands.screen import results_table, task_told
        from randpath.engines.processes import Processes
        from randpath.engines.serial import Serial
        from randpath.errors import Diverged, Stopped
        from randpath.report.tables import append_result, result_of

        experiment = get()

        if not (directory / "experiment.json").exists():
            checkpoint.need_space(directory.parent if directory.parent.exists() else Path(), 50_000_000)
        lines: list[dict[str, Any]] = []
        num_tasks = _num_tasks(experiment)
        with Bar("reading the data") as bar, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: bar.say(f"warning: {message}")

            def tick(done: float) -> None:
                bar.show(done, f"task {len(lines) + 1} of {num_tasks}")
                if stop.signal:
                    raise Stopped()

            pool = Processes(experiment.processes, tick=tick) if experiment.processes > 1 else None
            try:
                for line in experiments.steps(
                    experiment, directory, engine=pool or Serial(tick), inexact=inexact, command=command
                ):
                    lines.append(line)
                    bar.say(task_told(line, num_tasks))
            except Diverged as error:
                error.kept = f"the {len(lines)} tasks before this one, in {directory}"
                error.next = f"a lower learning rate, in another --out: --set training.lr={error.lr / 10:g}"
                raise
            except Stopped:
                bar.say(f"stopped; {len(lines)} tasks are committed, the unfinished one is saved. To go on, type:")
                bar.say(f"  randpath resume {directory}")
                return 128 + stop.signal
            finally:
                if pool is not None:
                    pool.close()
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
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"the recipe {name} cannot be read: {type(error).__name__}: {error}") from error
    return module


def _num_tasks(experiment: "Experiment") -> int:
    return experiment.tasks if isinstance(experiment.tasks, int) else len(experiment.tasks)


def _results_file(recipe: str) -> Path:
    folder = Path("docs") / "results"
    if not folder.is_dir():
        raise UsageError("--record writes to docs/results of a checkout of randpath; there is none in this directory")
    return folder / f"{recipe}.json"


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every foreseeable mistake ends in a sentence and an exit code, not in a traceback."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        _tell(UsageError(str(error), next="randpath --help"), as_json)
        code = 64
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read our output has left; python would complain when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 74
    except RandpathError as error:
        _tell(error, as_json)
        code = error.exit_code
    except OSError as error:  # a folder that may not be read, a disk that fails: the machine's trouble, not a bug
        _tell(DiskTrouble(str(error), where=str(error.filename or "")), as_json)
        code = DiskTrouble.exit_code
    sys.exit(code)


def _tell(error: RandpathError, as_json: bool) -> None:
    """What went wrong, where, what was kept and what to type next: one JSON object, or sentences on stderr."""
    what, where, kept, next_ = error.what, error.where, error.kept, error.next
    if as_json:
        print(json.dumps({"error": what, "where": where, "kept": kept, "next": next_}, ensure_ascii=False))
        return
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"[bold red]randpath:[/] {escape(what)}", highlight=False)
    for name, text in (("where", where if where not in what else ""), ("kept", kept), ("next", next_)):
        if text:
            console.print(f"  {name}: {text}", highlight=False, markup=False)
