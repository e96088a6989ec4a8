"""The only file that draws: functions from numbers to figures, which stand in a page or in a file of their own.

Series differ in marker and dash as well as in colour, so that no reading depends on colour alone. A figure is 440 units
wide: one column of a page, or a phone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from randpath.report.svg import WIDTH, Figure, cut, ink, n, number, path, rect, scale, text

DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4")
MARKERS = (
    "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z",
    "m-3 -3h6v6h-6z",
    "m0 -4l3.8 6.6h-7.6z",
    "m0 -4.3l4.3 4.3l-4.3 4.3l-4.3 -4.3z",
)


@dataclass(frozen=True)
class Series:
    """One curve; `low` and `high` are the edges of a band around it. A value of None leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False  # points without a line
    hollow: bool = False
    colour: str = ""  # of its own, as #rrggbb; else by its position


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    percent: bool = False,
    y_range: tuple[float | None, float | None] = (None, None),
    rules: Sequence[tuple[float, str]] = (),  # horizontal lines with a name
    marks: Sequence[tuple[float, str]] = (),  # vertical lines with a name
    legend: bool = True,
    x_log: bool = False,
    height: float = 270,
) -> Figure:
    """Curves over a common x axis, with bands, thresholds and marks."""
    xs = [x for s in series for x in s.x] or [0.0]
    ys = [y for s in series for y in (*s.y, *s.low, *s.high) if y is not None] + [y for y, _ in rules]
    low, high = y_range
    ticks = _ticks(min(ys, default=0.0) if low is None else low, max(ys, default=1.0) if high is None else high)
    rows = _legend(series) if legend else []
    a = _Axes(min(xs), max(xs), ticks[0], ticks[-1], 28 + 16 * len(rows) + 12 * bool(marks), height, inset=9, log=x_log)
    out = [text(title, 0, 13, "title"), *a.frame(ticks, x_label, y_label, percent)]
    out += [_legend_row(i, row) for i, row in enumerate(rows)]
    free = -math.inf  # where the last name ended
    for x, name in marks:
        out.append(path(f"M{n(a.x(x))} {n(a.top)}V{n(a.bottom)}", "rule"))
        if a.x(x) - 3 * len(name) > free:
            out.append(text(name, a.x(x), a.top - 5, "small soft middle"))
            free = a.x(x) + 3 * len(name) + 2
    out += [path(f"M{n(a.left)} {n(a.y(y))}H{n(a.right)}", "rule") for y, _ in rules]
    out += [_curve(a, s, i, f"{x_label} {{:g}}", percent) for i, s in enumerate(series)]
    out += _last_values(a, series if len(series) <= 5 else [], rules, percent)
    ends = "; ".join(f"{s.name}: {number(_last(s.y), percent)}" for s in series[:8] if _last(s.y) is not None)
    return Figure(f"{title}. {y_label} over {x_label}. {ends}", height, "".join(out))


def sawtooth(
    saturation: Sequence[float | None],
    switched: Sequence[bool | None],
    threshold: float | None,
    height: float = 270,
) -> Figure:
    """mu_sat after each task, the threshold, and after which tasks the path was switched (the paper, section 4.3)."""
    k = list(range(1, len(saturation) + 1))
    rules = [] if threshold is None else [(threshold, f"th {threshold:g}")]
    marks = [(j, "switch") for j, after in zip(k, switched) if after]
    only, x_label = [Series("mu_sat", k, saturation)], "task; dashed: threshold th, switches"
    title, y_label = "Saturation of the path", "mu_sat, a log ratio"
    return line_chart(title, only, x_label, y_label, rules=rules, marks=marks, legend=False, height=height)


def path_map(
    title: str,
    first: Sequence[Sequence[int]],  # the task that first trained a module, 0 for none
    texts: Sequence[Sequence[str]],  # the tasks that trained it, such as 1-3
    present: Sequence[Sequence[bool | int]],  # the path of the task at hand
    num_tasks: int,
) -> Figure:
    """L layers of M modules, each in the colour of the task that first trained it; the present path is outlined."""
    L, M = len(first), len(first[0])
    left, top = 56, 46
    w, h = min(46.0, (WIDTH - left - 8) / M), min(30.0, max(16.0, 250 / L))
    out = [text(title, 0, 13, "title"), text("modules of a layer, side by side", left, 38, "small soft")]
    for l, row in enumerate(first):  # noqa: E741
        y = top + l * h
        out.append(text(f"layer {l + 1}", left - 8, y + h / 2 + 3.5, "small soft end"))
        for m, k in enumerate(row):
            place = (left + m * w + 1.5, y + 1.5, w - 3, h - 3)
            if not k:
                out.append(rect(*place, "empty"))
                continue
            colour = scale(k - 1, num_tasks - 1)
            out.append(rect(*place, fill=colour, tip=f"layer {l + 1}, module {m + 1}: trained in task {texts[l][m]}"))
            if present[l][m]:
                out.append(rect(*place, "edge clear"))
            out.append(text(texts[l][m], left + (m + 0.5) * w, y + h / 2 + 3.5, f"small middle {ink(colour)}"))
    x, y = float(left), top + L * h + 12
    for kind, fill, name in (
        ("", scale(1, 4), "trained, with its tasks"), ("edge clear", "", "the path at hand"), ("empty", "", "unused"),
    ):  # fmt: skip
        out += [rect(x + 1.5, y, 11, 11, kind, fill), text(name, x + 19, y + 9.5, "small soft")]
        x += 36 + 5.6 * len(name)
    used = sum(bool(k) for row in first for k in row)
    return Figure(f"{title}. {used} of {L * M} modules, in {L} layers of {M}, are trained", y + 18, "".join(out))


def heat_map(
    title: str,
    values: Sequence[Sequence[float | None]],
    names: tuple[Sequence[str], Sequence[str]],  # of rows and of columns
    labels: tuple[str, str],
    *,
    log: bool = False,  # colours by log(x + 1)
    percent: bool = False,
) -> Figure:
    """A matrix in colours; with room for them, the values stand in the cells. Gaps, and zero counts, are empty."""
    m = _Matrix(names)
    most = 1.0 if percent else max((v for row in values for v in row if v), default=1.0)
    most = math.log1p(most) if log else most
    cells: dict[str, list[str]] = {}
    texts = []
    for r, row in enumerate(values):
        for c, v in enumerate(row):
            if v is None or (v == 0 and not percent):
                continue
            colour = scale(math.log1p(v) if log else v, most)
            x, y = m.left + c * m.wide, m.top + r * m.tall
            # One path for each colour: ten thousand cells cost twenty elements.
            cells.setdefault(colour, []).append(f"M{n(x)} {n(y)}h{n(m.wide)}v{n(m.tall)}h{n(-m.wide)}z")
            if m.wide >= 22:
                share = f"{100 * v:.0f}" if percent else f"{v:g}"
                texts.append(text(share, x + m.wide / 2, y + m.tall / 2 + 3.5, f"small middle {ink(colour)}"))
    out = [text(title, 0, 13, "title"), rect(m.left, m.top, m.right - m.left, m.bottom - m.top, "empty", round=0)]
    out += [path("".join(paths), fill=colour) for colour, paths in cells.items()] + texts + [*m.written(names)]
    out.append(text(labels[1], (m.left + m.right) / 2, 32, "soft middle"))
    out.append(text(labels[0], 11, (m.top + m.bottom) / 2, "soft middle", turn=-90))
    what = f"{title}: {labels[0]} down, {labels[1]} across, {len(values)} by {len(values[0])}"
    return Figure(what, m.bottom + m.under, "".join(out), (m.left, m.top, m.wide, m.tall))


def bars(
    title: str,
    names: Sequence[str],
    values: Sequence[float],
    x_label: str,
    *,
    percent: bool = False,
    before: Sequence[float] = (),  # where each once stood
) -> Figure:
    """One horizontal bar for each name."""
    top, step = 28.0, 18.0
    everything = [*values, *before]
    ticks = _ticks(min([0.0, *everything]), 1.0 if percent else max([*everything, 1e-9]), 4)
    a = _Axes(ticks[0], ticks[-1], 0, 1, top, top + step * len(values) + 46, left=122, right=WIDTH - 56)
    out = [text(title, 0, 13, "title")]
    for tick in ticks:
        out.append(path(f"M{n(a.x(tick))} {n(top)}V{n(a.bottom)}", "grid"))
        out.append(text(number(tick, percent, True), a.x(tick), a.bottom + 14, "small soft middle"))
    for i, (name, value) in enumerate(zip(names, values)):
        y, label = top + i * step, number(value, percent)
        out.append(text(cut(name, 19), a.left - 6, y + 12.5, "small end"))
        out.append(
            rect(a.x(min(0.0, value)), y + 3, abs(a.x(value) - a.x(0)), 12, "f0", tip=f"{name}: {label}", round=1)
        )
        furthest = max(0.0, value)
        if before:
            furthest = max(furthest, before[i])
            out.append(
                path(f"M{n(a.x(before[i]))} {n(y + 1)}v16", "curve s1", tip=f"{name}: {number(before[i], percent)}")
            )
        out.append(text(label, a.x(furthest) + 5, y + 12.5, "small soft"))
    out.append(text(x_label, (a.left + a.right) / 2, a.bottom + 32, "soft middle"))
    return Figure(f"{title}. {x_label}", a.height, "".join(out))


# ---- axes


@dataclass(frozen=True)
class _Axes:
    """Where a value lies on the paper."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    top: float
    height: float
    left: float = 54
    right: float = WIDTH - 50
    inset: float = 0  # room for markers on the edges
    log: bool = False  # of x

    @property
    def bottom(self) -> float:
        return self.height - 46

    def x(self, value: float) -> float:
        low, high = self.x_low, self.x_high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5 * self.log
        return self.left + self.inset + share * (self.right - self.left - 2 * self.inset)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.y_low) / ((self.y_high - self.y_low) or 1) * (self.bottom - self.top)

    def frame(self, ticks: Sequence[float], x_label: str, y_label: str, percent: bool) -> Iterator[str]:
        for tick in ticks:
            yield path(f"M{n(self.left)} {n(self.y(tick))}H{n(self.right)}", "grid")
            yield text(number(tick, percent, True), self.left - 5, self.y(tick) + 3.5, "small soft end")
        for tick in (_log_ticks if self.log else _whole_ticks)(self.x_low, self.x_high):
            yield path(f"M{n(self.x(tick))} {n(self.bottom)}v4", "axis")
            yield text(f"{tick:g}", self.x(tick), self.bottom + 16, "small soft middle")
        yield path(f"M{n(self.left)} {n(self.bottom)}H{n(self.right)}", "axis")
        yield text(x_label, (self.left + self.right) / 2, self.bottom + 34, "soft middle")
        yield text(y_label, 11, (self.top + self.bottom) / 2, "soft middle", turn=-90)


class _Matrix:
    """Where the cells of a matrix lie, and the names of its rows and columns."""

    top = 40.0

    def __init__(self, names: tuple[Sequence[str], Sequence[str]]):
        rows, columns = map(len, names)
        self.named = max(rows, columns) <= 40  # else every tenth is numbered
        self.left = 34.0 + (min(90, 6.2 * max(map(len, names[0]))) if self.named else 20)
        self.wide = (WIDTH - self.left - 6) / columns
        self.tall = self.wide if self.wide < 24 else min(self.wide, 28.0)
        self.right, self.bottom = self.left + columns * self.wide, self.top + rows * self.tall
        self.turned = self.named and 6.2 * max(map(len, names[1])) > self.wide
        self.under = 66 if self.turned else 20

    def written(self, names: tuple[Sequence[str], Sequence[str]]) -> Iterator[str]:
        for r, name in enumerate(names[0]):
            if self.named or r % 10 == 0:
                label = cut(name, 14) if self.named else str(r + 1)
                yield text(label, self.left - 4, self.top + (r + 0.5) * self.tall + 3.5, "small soft end")
        for c, name in enumerate(names[1]):
            x = self.left + (c + 0.5) * self.wide
            if self.turned:
                yield text(cut(name, 10), x + 3, self.bottom + 9, "small soft end", turn=-55)
            elif self.named or c % 10 == 0:
                yield text(name if self.named else str(c + 1), x, self.bottom + 13, "small soft middle")


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that enclose a range.

    >>> _ticks(0.13, 0.97), _ticks(-3, 12), _ticks(2, 2)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-5, 0, 5, 10, 15], [1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6])
    """
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def _whole_ticks(low: float, high: float) -> list[int]:
    """Whole numbers of a range, at most about ten."""
    step = next(s * 10**n for n in range(12) for s in (1, 2, 5) if (high - low) / (s * 10**n) <= 10)
    return list(range(math.ceil(low / step) * step, math.floor(high) + 1, step))


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers of a range above zero, a factor of about two apart; its ends if there are none.

    >>> _log_ticks(14, 310), _log_ticks(3.01, 4)
    ([20, 50, 100, 200], [3.0, 4.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = [tick for n in powers for s in (1, 2, 5) if low <= (tick := s * 10**n) <= high]
    return found or sorted({float(f"{end:.2g}") for end in (low, high)})


# ---- curves


def _curve(a: _Axes, s: Series, i: int, where: str, percent: bool) -> str:
    line, fill = ("own", "") if s.colour else (f"s{i % 7}", f"f{i % 7}")
    out = []
    if s.low:
        edge = [*zip(s.x, s.high), *reversed([*zip(s.x, s.low)])]
        out.append(path("M" + "L".join(f"{n(a.x(x))} {n(a.y(y))}" for x, y in edge) + "z", f"band {fill}"))
    if not s.dots:
        d = "".join(f"{'M' if start else 'L'}{n(a.x(x))} {n(a.y(y))}" for start, x, y in _points(s))
        out.append(path(d, f"curve {line}", stroke=s.colour, dash="" if s.colour else DASHES[i % 7], tip=s.name))
    if s.dots or len(s.x) <= 25:
        for _, x, y in _points(s):
            tip = f"{s.name}, {where.format(x)}: {number(y, percent)}"
            out.append(_marker(i, s, a.x(x), a.y(y), tip))
    return "".join(out)


def _marker(i: int, s: Series, x: float, y: float, tip: str = "") -> str:
    line, fill = ("own", "") if s.colour else (f"s{i % 7}", f"f{i % 7}")
    d = f"M{n(x)} {n(y)}{MARKERS[i % 4]}"
    return path(d, f"{line} {'hollow' if s.hollow else fill}", "" if s.hollow else s.colour, s.colour, tip=tip)


def _points(s: Series) -> Iterator[tuple[bool, float, float]]:
    """The points that there are, and whether a new piece of the curve starts there."""
    start = True
    for x, y in zip(s.x, s.y):
        if y is not None:
            yield start, x, y
        start = y is None


def _legend(series: Sequence[Series]) -> list[list[tuple[float, int, Series]]]:
    """Rows of names that fit in the width, each with its place."""
    rows: list[list[tuple[float, int, Series]]] = [[]]
    x = 54.0
    for i, s in enumerate(series):
        width = 40 + 5.9 * len(cut(s.name, 56))
        if rows[-1] and x + width > WIDTH:
            rows.append([])
            x = 54.0
        rows[-1].append((x, i, s))
        x += width
    return rows


def _legend_row(index: int, row: Sequence[tuple[float, int, Series]]) -> str:
    out, y = [], 30.0 + 16 * index
    for x, i, s in row:
        if not s.dots:
            dash = "" if s.colour else DASHES[i % 7]
            out.append(
                path(f"M{n(x)} {n(y)}h22", "curve own" if s.colour else f"curve s{i % 7}", stroke=s.colour, dash=dash)
            )
        out += [_marker(i, s, x + 11, y), text(cut(s.name, 56), x + 28, y + 3.5, "small")]
    return "".join(out)


def _last_values(
    a: _Axes, series: Sequence[Series], rules: Sequence[tuple[float, str]], percent: bool
) -> Iterator[str]:
    """The last value of each curve at its end, and the names of the rules, pushed apart where they meet."""
    ends = [(a.y(y), name, "small soft") for y, name in rules]
    for i, s in enumerate(series):
        if not s.dots and (y := _last(s.y)) is not None:
            ends.append((a.y(y), number(y, percent), "small" if s.colour else f"small f{i % 7}"))
    free = -math.inf
    for at, label, kind in sorted(ends):
        free = max(at + 3.5, free + 11)
        yield text(label, a.right + 7, free, kind)


def _last(values: Sequence[float | None]) -> float | None:
    return next((y for y in reversed(values) if y is not None), None)
