"""Methods x seeds x settings of one recipe: what `bench --methods` runs, each in a directory of its own."""

import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from randpath.errors import UsageError

# Variants of a method that have a name of their own in the paper's tables.
NAMED = {
    "rps2019": ("rps", ("options.switch_every=2", "attention=none")),
    # a choice needs several paths, and images to choose by
    "genetic": ("rps", ("options.search=tournament", "options.N=8", "validation=true")),
}


@dataclass(frozen=True)
class Cell:
    """One run."""

    name: str  # a method, or one of NAMED
    seed: int
    settings: tuple[str, ...] = ()  # key=value, as they are typed

    @property
    def method(self) -> str:
        return NAMED[self.name][0] if self.name in NAMED else self.name

    @property
    def all_settings(self) -> tuple[str, ...]:
        return (*NAMED[self.name][1], *self.settings) if self.name in NAMED else self.settings

    @property
    def directory(self) -> str:
        """By method, seed and changed settings.

        >>> Cell("gem", 1, ("options.margin=0.5", "memory=100")).directory
        'gem-1-options.margin=0.5-memory=100'
        """
        return "-".join([self.name, str(self.seed), *(re.sub(r"[^\w.=]", "_", s) for s in self.settings)])

    def arguments(self, recipe: str, variant: str) -> list[str]:
        """What to type after `randpath` to run it alone."""
        changed = [word for setting in self.all_settings for word in ("--set", setting)]
        return ["bench", recipe, "--variant", variant, "--method", self.method, "--seed", str(self.seed), *changed]


def cells(
    methods: str, known: Sequence[str], seeds: str, settings: Sequence[str] = (), grid: Sequence[str] = ()
) -> list[Cell]:
    """Every method with every seed and every combination of the grid's values; `all` is every method there is.

    >>> [cell.directory for cell in cells("joint,gem", ["joint", "gem"], "0,1", grid=["memory=50,100"])][:3]
    ['joint-0-memory=50', 'joint-0-memory=100', 'joint-1-memory=50']
    >>> [cell.settings for cell in cells("gem", ["gem"], "0", grid=["tasks=[2,8],[5,5]"])]
    [('tasks=[2,8]',), ('tasks=[5,5]',)]
    """
    names = [*known, *NAMED] if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        if name not in known and name not in NAMED:
            raise UsageError(f"there is no method {name!r}; there are {', '.join([*known, *NAMED])}")
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise UsageError(f"--seeds takes whole numbers with commas between them, got {seeds!r}") from error
    choices = []
    for axis in grid:
        key, equals, values = axis.partition("=")
        if not equals or not values:
            raise UsageError(f"--grid takes key=value,value,..., got {axis!r}")
        choices.append([f"{key}={value}" for value in re.split(r",(?![^\[]*\])", values)])  # not within a list
    return [
        Cell(name, seed, (*settings, *combination))
        for name in names
        for seed in numbers
        for combination in itertools.product(*choices)
    ]


def typed(arguments: Sequence[str]) -> str:
    return shlex.join(["randpath", *arguments])
