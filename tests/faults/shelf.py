"""What must be in a model directory after any commands: a simple model, in plain Python."""

import itertools
from dataclasses import dataclass, field, replace

KEEP = 3

Lessons = tuple[tuple[str, tuple[int, ...]], ...]  # what was learned and edited so far, with the classes' numbers
_serial = itertools.count()


@dataclass(frozen=True)
class Class:
    name: str
    origins: frozenset[tuple[int, str]]  # which learn brought it, from which pictures; of a merged one several


@dataclass(frozen=True)
class Version:
    state: int
    classes: tuple[Class, ...]
    lessons: Lessons
    past: tuple[int, ...] = ()
    future: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(known.name for known in self.classes)

    @property
    def pictures(self) -> set[str]:
        """Of which it may hold some."""
        return {picture for known in self.classes for _, picture in known.origins}


@dataclass
class Shelf:
    """The versions by number; the newest that is not damaged answers."""

    versions: dict[int, Version] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)

    # ---- looking

    def now(self) -> int:
        return max(self.good(), default=0)

    def good(self) -> set[int]:
        return set(self.versions) - self.damaged

    def newest(self) -> Version:
        return self.versions[self.now()]

    def holder(self, state: int) -> int | None:
        here = self.now()
        return max((n for n, version in self.versions.items() if version.state == state and n <= here), default=None)

    def held(self, states: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(state for state in states if self.holder(state) is not None)

    def holders(self, states: tuple[int, ...]) -> list[int]:
        """The good versions that hold these states."""
        return [n for state in states if (n := self.holder(state)) is not None and n not in self.damaged]

    # ---- what a command would commit; none: it is refused

    def taught(self, folder: str) -> Version:
        old = self.versions.get(self.now())
        known = old.classes if old else ()
        names = [one.name for one in known]
        new = [Class(c, frozenset({(next(_serial), c)})) for c in sorted(folder) if c not in names]
        names += [one.name for one in new]
        # Pictures of a class that is known under its name are learned as its own.
        more = {one.name: one.origins | {(-1, one.name)} for one in known if one.name in folder}
        classes = tuple(replace(one, origins=more.get(one.name, one.origins)) for one in known)
        lesson = (folder, tuple(names.index(c) for c in sorted(folder)))
        return self._after((*classes, *new), (*(old.lessons if old else ()), lesson), KEEP)

    def _after(self, classes: tuple[Class, ...], lessons: Lessons, keep: int) -> Version:
        base = self.now()
        if not base:
            return Version(1, classes, lessons)
        old = self.newest()
        past = (*self.held(old.past), old.state)
        return Version(base + 1, classes, lessons, past[max(0, len(past) - keep + 1) :])

    def _edited(self, classes: tuple[Class, ...], *lesson: tuple[str, tuple[int, ...]]) -> Version:
        """An edit costs no version that could be rolled back to."""
        old = self.newest()
        return self._after(classes, (*old.lessons, *lesson), max(3, len(self.held(old.past)) + 2))

    def renamed(self, old: str, new: str) -> Version | None:
        now = self.newest()
        if old not in now.names or new in now.names:
            return None
        return self._edited(tuple(replace(one, name=new) if one.name == old else one for one in now.classes))

    def forgotten(self, name: str) -> Version | None:
        now = self.newest()
        if name not in now.names or len(now.names) == 1:
            return None
        c = now.names.index(name)
        return self._edited((*now.classes[:c], *now.classes[c + 1 :]), ("forget", (c,)))

    def merged(self, kept: str, other: str) -> Version | None:
        now = self.newest()
        if kept == other or not {kept, other} <= set(now.names):
            return None
        a, b = now.names.index(kept), now.names.index(other)
        classes = list(now.classes)
        classes[min(a, b)] = Class(kept, classes[a].origins | classes[b].origins)
        del classes[max(a, b)]
        return self._edited(tuple(classes), ("merge", (min(a, b), max(a, b))))

    def rolled_back(self) -> Version | None:
        now = self.newest()
        places = [i for i, state in enumerate(now.past) if self.holder(state) in self.good()]
        if not places:
            return None
        i = places[-1]
        back = self.versions[self.holder(now.past[i]) or 0]
        return replace(back, past=now.past[:i], future=(now.state, *now.future))

    def redone(self) -> Version | None:
        now = self.newest()
        holder = self.holder(now.future[0]) if now.future else None
        if holder is None or holder in self.damaged:
            return None
        return replace(self.versions[holder], past=(*now.past, now.state), future=now.future[1:])

    def without(self, name: str) -> dict[int, Version] | None:
        """Every state up to the present one anew, without whatever bore the name and is nothing else now."""
        base, now = self.now(), self.newest()
        line = [*self.holders(now.past), base]
        bore = [one for n in (*line, *self.holders(now.future)) for one in self.versions[n].classes if one.name == name]
        alive = {origin for one in now.classes if one.name != name for origin in one.origins if origin[0] >= 0}
        gone = {origin for one in bore for origin in one.origins if origin[0] >= 0} - alive
        left_over = self.good() - {*line, *self.holders(now.future)}
        was_interrupted = any(name in self.versions[n].names for n in left_over)
        states = []
        for n in line:
            version = self.versions[n]
            lost = [c for c, one in enumerate(version.classes) if one.origins & gone]
            left = tuple(one for c, one in enumerate(version.classes) if c not in lost)
            lessons = version.lessons + tuple(("forget", (c - i,)) for i, c in enumerate(lost))
            if not left and n == base:
                return None
            states += [(left, lessons)] if left else []
        if not gone and (bore or not was_interrupted):
            return None
        numbers = tuple(base + 1 + i for i in range(len(states)))
        return {n: Version(n, *states[i], numbers[:i]) for i, n in enumerate(numbers)}

    # ---- what became of the directory

    def commit(self, new: dict[int, Version]) -> None:
        """New versions, made from the one that answers; what nothing leads to is gone."""
        base = self.now()
        self.versions = {n: known for n, known in self.versions.items() if n <= base} | new
        self.damaged = {n for n in self.damaged if n < base}
        self.settle()

    def settle(self) -> None:
        version = self.newest()
        wanted = {self.holder(state) for state in (version.state, *version.past, *version.future)}
        self.only(wanted)

    def only(self, numbers: "set[int | None]") -> None:
        self.versions = {n: known for n, known in self.versions.items() if n in numbers}
        self.damaged &= set(self.versions)
