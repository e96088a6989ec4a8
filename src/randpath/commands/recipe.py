"""A recipe by its name or from a file of one's own, and that file again when its run is resumed."""

import contextlib
import hashlib
import importlib
import importlib.util
import pathlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from randpath.errors import Changed, UsageError

if TYPE_CHECKING:
    from randpath.bench.experiment import Experiment

RECIPES = pathlib.Path(__file__).parents[1] / "recipes"


def is_file(recipe: str) -> bool:
    return recipe.endswith(".py")


def check_there(recipe: str) -> None:
    """Refuse a recipe that is not there, without importing anything."""
    here = sorted(p.stem for p in RECIPES.glob("[a-z]*.py"))
    if is_file(recipe) and not pathlib.Path(recipe).is_file():
        raise UsageError(f"there is no recipe file {recipe}")
    if not is_file(recipe) and recipe not in here:
        raise UsageError(f"there is no recipe {recipe!r}; there are {', '.join(here)}, or give a .py file")


def read(recipe: str, variant: str) -> "tuple[Experiment, dict[str, Any] | None]":
    """The experiment that a recipe calls `variant` and, for a file, what `resume` has to know of that file."""
    from randpath.bench.experiment import Experiment

    if is_file(recipe):
        module, file = _run_file(pathlib.Path(recipe))
        _remember(file["sha256"])
    else:
        module, file = importlib.import_module(f"randpath.recipes.{recipe}"), None
    chosen = getattr(module, variant, None)
    if not isinstance(chosen, Experiment):
        raise UsageError(f"{recipe} does not define {variant!r} as an Experiment")
    return chosen, file


def changed(
    chosen: "Experiment", recipe: str, variant: str, method: str | None, seed: int, settings: Sequence[str]
) -> "Experiment":
    """A recipe's experiment with what was typed changed."""
    from dataclasses import replace

    if method is not None and method != chosen.method:
        chosen = replace(chosen, method=method, options={})
    chosen = replace(chosen, recipe=pathlib.Path(recipe).stem, variant=variant, seed=seed)  # type: ignore[arg-type]
    made = chosen.with_settings(settings)
    for name in ("seed", "method"):  # they name the run directory
        if getattr(made, name) != getattr(chosen, name):
            raise UsageError(f"the {name} is set by --{name}")
    return made


def read_again(
    file: Mapping[str, Any], run: pathlib.Path, moved_to: pathlib.Path | None, inexact: bool
) -> Mapping[str, Any]:
    """Run the recipe file of a run again if the run needs it. Refused if it is gone, has changed, or is a stranger's.

    A run whose file defines no method and no dataset needs it no more: experiment.json holds all that it said.
    """
    defines = ", ".join(map(str, file["defines"]))
    if not defines:
        return file
    path = moved_to or pathlib.Path(file["path"])
    if not path.is_file():
        raise UsageError(
            f"{run} needs {defines} from the recipe file {path}, which is not there",
            next=f"put it back, or say where it is now: randpath resume {run} --recipe FILE",
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != file["sha256"] and not inexact:
        raise Changed(
            f"the recipe file {path}, from which {run} has {defines}, has changed since the run began",
            next=f"undo the change, or go on with what it defines now: randpath resume {run} --inexact",
        )
    if moved_to is None and not _remembered(digest):
        # What a run directory from a stranger names must not be run for that alone.
        raise UsageError(
            f"{run} needs {defines} from the recipe file {path}, which you have not run on this machine before",
            next=f"if you trust it: randpath resume {run} --recipe {path}{' --inexact' * inexact}",
        )
    return _run_file(path)[1]


def _run_file(path: pathlib.Path) -> tuple[ModuleType, dict[str, Any]]:
    """The module that a file makes; its path, its hash, and what it adds: methods, datasets, backbones."""
    from randpath.data.named import DATASETS
    from randpath.methods import METHODS
    from randpath.network.backbones import BACKBONES

    before = {**DATASETS, **METHODS, **BACKBONES}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look up the names in annotations
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        text = f"the recipe {path} ends the program (sys.exit) instead of defining an Experiment"
        raise UsageError(text, where=_line(error, path)) from error
    except Exception as error:
        text = f"the recipe {path} cannot be read: {type(error).__name__}: {error}"
        raise UsageError(text, where=_line(error, path)) from error
    defines = sorted(
        name for name, value in {**DATASETS, **METHODS, **BACKBONES}.items() if before.get(name) is not value
    )
    return module, {"path": str(path.resolve()), "sha256": digest, "defines": defines}


def _line(error: BaseException, path: pathlib.Path) -> str:
    """The line of a file at which an error passed through it."""
    name = str(path.absolute())
    if isinstance(error, SyntaxError) and error.filename == name:
        return f"{path}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _mark(digest: str) -> pathlib.Path:
    return pathlib.Path.home() / ".cache" / "randpath" / "recipes" / digest


def _remember(digest: str) -> None:
    """Note that the user has run a file of this content: `resume` may run it again without being told to."""
    with contextlib.suppress(OSError):  # then `resume` asks
        _mark(digest).parent.mkdir(parents=True, exist_ok=True)
        _mark(digest).touch()


def _remembered(digest: str) -> bool:
    return _mark(digest).is_file()
