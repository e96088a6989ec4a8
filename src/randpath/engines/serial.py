"""One call after the other, in this process; and what an engine is."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")

Tick = Callable[[float], object]  # told the share that is done after each step; raises Stopped to end the work there


def quiet(done: float) -> None:
    """A tick that tells nobody."""


class Engine(Protocol):
    """How independent calls are run. Every call gets a tick of its own, which the engine adds up to one share."""

    tick: Tick  # told the share of all calls that is done

    @property
    def cpu_seconds(self) -> float:
        """User and system time spent so far in processes other than this one."""

    def map(self, function: Callable[[A, Tick], R], arguments: Iterable[A]) -> Iterator[R]:
        """function(argument, tick) for each argument; the results come in any order."""


class Part:
    """An engine that does one of several equal parts of the work: its share is a part of the whole engine's."""

    def __init__(self, whole: Engine, index: int, parts: int):
        self.whole = whole
        tell = whole.tick
        self.tick: Tick = lambda done: tell((index + done) / parts)

    @property
    def cpu_seconds(self) -> float:
        return self.whole.cpu_seconds

    def map(self, function: Callable[[A, Tick], R], arguments: Iterable[A]) -> Iterator[R]:
        tell, self.whole.tick = self.whole.tick, self.tick
        try:
            yield from self.whole.map(function, arguments)
        finally:
            self.whole.tick = tell


class Serial:
    """
    >>> list(Serial().map(lambda argument, tick: argument + 1, [1, 2]))
    [2, 3]
    """

    cpu_seconds = 0.0

    def __init__(self, tick: Tick = quiet):
        self.tick = tick

    def map(self, function: Callable[[A, Tick], R], arguments: Iterable[A]) -> Iterator[R]:
        calls = list(arguments)
        for i, argument in enumerate(calls):

            def tick(done: float, i: int = i) -> None:
                self.tick((i + done) / len(calls))

            yield function(argument, tick)
