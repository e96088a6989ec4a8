"""What a person may set: declared once, with its limit and its meaning, and checked by one function.

    @dataclass(frozen=True)
    class Options:
        N: Annotated[int, at_least(1), "candidates after a switch"] = 8

        def __post_init__(self) -> None:
            check(self)

`check` reads the annotations; `declared` lists them, for `randpath methods NAME`.
"""

import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from randpath.errors import UsageError


@dataclass(frozen=True)
class Limit:
    """A condition on a value beyond its type, and its words after "a number" or "a list"."""

    words: str
    holds: Callable[[Any], bool]
    whole: bool = False  # the words say all: they stand instead of those of the type


def at_least(least: float) -> Limit:
    return Limit(f"of at least {least:g}", lambda value: value >= least)


def at_most(most: float) -> Limit:
    return Limit(f"of at most {most:,}", lambda value: value <= most)


def above(least: float) -> Limit:
    return Limit(f"above {least:g}", lambda value: value > least)


def between(least: float, most: float) -> Limit:
    return Limit(f"from {least:g} to {most:,g}", lambda value: least <= value <= most)


def that_is(words: str, holds: Callable[[Any], bool]) -> Limit:
    """A limit of its own, with words that stand for the type too."""
    return Limit(words, holds, whole=True)


def each(limit: Limit) -> Limit:
    """The limit for every item of a list."""
    return Limit(limit.words, lambda values: all(map(limit.holds, values)))


@dataclass(frozen=True)
class Declared:
    """One thing that may be set."""

    name: str
    kind: Any  # its type
    limits: tuple[Limit, ...]
    meaning: str
    default: Any  # MISSING where one must be given

    def accepts(self, value: Any) -> bool:
        """Whether a value has the type and, unless it is None, keeps the limits."""
        return _fits(value, self.kind) and (value is None or all(limit.holds(value) for limit in self.limits))

    def wanted(self) -> str:
        """What is accepted, in words."""
        if whole := [limit.words for limit in self.limits if limit.whole]:
            return whole[0]
        main, *others = _words(self.kind)
        return " or ".join([" ".join([main, " and ".join(limit.words for limit in self.limits)]).strip(), *others])


@cache
def declared(kind: Any) -> dict[str, Declared]:
    """The annotated fields of a dataclass; those without an annotation of ours are not settings.

    >>> @dataclass
    ... class Options:
    ...     N: Annotated[int, at_least(1), "candidates after a switch"] = 8
    >>> declared(Options)["N"].wanted(), declared(Options)["N"].meaning
    ('a whole number of at least 1', 'candidates after a switch')
    """
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for f in fields(kind):
        if get_origin(hints[f.name]) is Annotated:
            inner, *extras = get_args(hints[f.name])
            limits = tuple(extra for extra in extras if isinstance(extra, Limit))
            meaning = next((extra for extra in extras if isinstance(extra, str)), "")
            default = f.default if f.default_factory is MISSING else f.default_factory()
            found[f.name] = Declared(f.name, inner, limits, meaning, default)
    return found


def check(instance: Any, prefix: str = "") -> None:
    """Refuse a value of the wrong type or against its limit, with the setting's name, what it takes and what it got."""
    for name, setting in declared(type(instance)).items():  # type: ignore[arg-type]
        if not setting.accepts(getattr(instance, name)):
            raise UsageError(f"{prefix}{name} must be {setting.wanted()}; got {getattr(instance, name)!r}")


UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int | None:
    """Bytes; none if it is no size.

    >>> parse_size("6.1MB"), parse_size("900 kB"), parse_size("6"), parse_size("MB")
    (6100000, 900000, None, None)
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(B|[kK]B|MB|GB)", text)
    return None if found is None else round(float(found[1]) * UNITS[found[2]])


def refuse_unknown(names: Mapping[str, Any], kind: Any, what: str) -> None:
    """Refuse a name that is no setting of a dataclass."""
    for name in names:
        if name not in declared(kind):
            raise UsageError(f"{what} has no {name!r}; it has {', '.join(declared(kind)) or 'no settings'}")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type: true is no number, 1.0 no whole number, and infinity and nan are neither.

    >>> _fits(True, int), _fits(1, float), _fits(math.inf, float), _fits((1, 2), tuple[int, ...])
    (False, True, False, True)
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(kind))
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is None or kind is types.NoneType:
        return value is None
    return isinstance(value, origin or kind)


def _words(kind: Any) -> list[str]:
    """What a type takes, one phrase for each alternative."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return [words for one in get_args(kind) for words in _words(one)]
    if origin is Literal:
        return [", ".join(map(str, get_args(kind)))]
    if origin is tuple:
        inner = {int: "whole numbers", float: "numbers", str: "names"}.get(get_args(kind)[0], "lists")
        return [f"a list of {inner}"]
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}
    return [plain.get(kind, getattr(kind, "__name__", str(kind)))]
