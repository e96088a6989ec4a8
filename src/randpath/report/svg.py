"""SVG elements, colours and numbers as text: what figures are made of. Every text is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, which the colour-blind can tell apart: darker where white paper asks for it, lighter on dark.
LIGHT = {
    "paper": "#fff", "ink": "#1b1f24", "soft": "#57606a", "line": "#d0d7de", "cell": "#e9edf1", "c0": "#0072b2",
    "c1": "#d55e00", "c2": "#009e73", "c3": "#aa4f87", "c4": "#9a6a00", "c5": "#2a8fc7", "c6": "#57606a",
}  # fmt: skip
DARK = {
    "paper": "#0f1419", "ink": "#e6edf3", "soft": "#9aa5b1", "line": "#3a434d", "cell": "#1f2730", "c0": "#56b4e9",
    "c1": "#ff8a4c", "c2": "#2fc79b", "c3": "#e79bc6", "c4": "#e69f00", "c5": "#8fd0f5", "c6": "#9aa5b1",
}  # fmt: skip
SHAPES = """\
svg.figure { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.figure .title { font-weight: 600; } .figure .small { font-size: 10.5px; }
.figure .end { text-anchor: end; } .figure .middle { text-anchor: middle; }
.figure .grid { stroke-width: .6; } .figure .rule { stroke-dasharray: 5 4; } .figure .edge { stroke-width: 2.4; }
.figure .axis, .figure .clear, .figure .curve { fill: none; }
.figure .curve { stroke-width: 2; stroke-linejoin: round; } .figure .band { stroke: none; opacity: .2; }
.figure text.on-dark { fill: #fff; } .figure text.on-light { fill: #111; }
"""


def _coloured(colours: dict[str, str]) -> str:
    """The rules with colours, as plain values: what turns an SVG file into PDF or PNG knows no variables."""
    fills = {"text": "ink", "soft": "soft", "empty": "cell", "back": "paper", "hollow": "paper"}
    strokes = {"grid": "line", "axis": "soft", "rule": "ink", "edge": "ink"}
    for i in range(7):
        fills[f"f{i}"] = strokes[f"s{i}"] = f"c{i}"
    rules = [f".figure {'' if name == 'text' else '.'}{name} {{ fill: {colours[c]}; }}" for name, c in fills.items()]
    rules += [f".figure .{name} {{ stroke: {colours[c]}; }}" for name, c in strokes.items()]
    return "\n".join(rules)


def _style(light: str, dark: str) -> str:
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark} }}\n"


def _variables(colours: dict[str, str]) -> str:
    return ":root { color-scheme: light dark; " + " ".join(f"--{name}: {c};" for name, c in colours.items()) + " }"


STYLE = _style(SHAPES + _coloured(LIGHT), _coloured(DARK) + "\n.figure .own { filter: brightness(1.6); }")
VARIABLES = _style(_variables(LIGHT), _variables(DARK))  # for the page around a figure

WIDTH = 440
VIRIDIS = ((0x44, 0x01, 0x54), (0x3B, 0x52, 0x8B), (0x21, 0x91, 0x8C), (0x5E, 0xC9, 0x62), (0xFD, 0xE7, 0x25))


@dataclass(frozen=True)
class Figure:
    """A drawing without its <svg>, so that it can stand in a page or beside others in a file."""

    label: str  # what it shows, for those who cannot see it
    height: float
    body: str
    grid: tuple[float, ...] = ()  # of a matrix: left, top, width and height of a cell, for whoever points at one

    def inline(self) -> str:
        box = f'viewBox="0 0 {WIDTH} {n(self.height)}" role="img" aria-label="{escape(self.label)}"'
        grid = f' data-grid="{" ".join(f"{x:.4f}" for x in self.grid)}"' if self.grid else ""
        return f'<svg class="figure" {box}{grid}>{self.body}</svg>'


def standalone(columns: Sequence[Sequence[Figure]], title: str) -> str:
    """An SVG file: columns of figures on paper of their own, light or dark as the reader has it."""
    width, height, parts = len(columns) * (WIDTH + 24), 0.0, []
    for i, column in enumerate(columns):
        y = 12.0
        for figure in column:
            parts.append(f'<g transform="translate({12 + i * (WIDTH + 24)} {n(y)})">{figure.body}</g>')
            y += figure.height + 12
        height = max(height, y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {width} {n(height)}" width="{width}" '
        f'height="{n(height)}" role="img"><title>{escape(title)}</title><style>{STYLE}</style>'
        f'<rect class="back" width="100%" height="100%" rx="8"/>{"".join(parts)}</svg>\n'
    )


def scale(value: float, most: float) -> str:
    """A colour of viridis, in 24 steps, whose lightness rises with the value.

    >>> scale(0, 4), scale(4, 4)
    ('#440154', '#fde725')
    """
    at = round(24 * min(1.0, max(0.0, value / most if most else 0.0))) / 24 * (len(VIRIDIS) - 1)
    i = min(int(at), len(VIRIDIS) - 2)
    return "#" + "".join(f"{round(a + (at - i) * (b - a)):02x}" for a, b in zip(VIRIDIS[i], VIRIDIS[i + 1]))


def text(content: str, x: float, y: float, kind: str, turn: float = 0) -> str:
    place = f'transform="translate({n(x)} {n(y)}) rotate({n(turn)})"' if turn else f'x="{n(x)}" y="{n(y)}"'
    return f'<text class="{kind}" {place}>{escape(content)}</text>'


def path(d: str, kind: str = "", fill: str = "", stroke: str = "", dash: str = "", tip: str = "") -> str:
    given = {"class": kind.strip(), "fill": fill, "stroke": stroke, "stroke-dasharray": dash}
    attributes = "".join(f' {name}="{value}"' for name, value in given.items() if value)
    return f'<path{attributes} d="{d}"' + (f"><title>{escape(tip)}</title></path>" if tip else "/>")


def rect(
    x: float, y: float, w: float, h: float, kind: str = "", fill: str = "", tip: str = "", round: float = 3
) -> str:
    attributes = "".join(f' {name}="{value}"' for name, value in (("class", kind), ("fill", fill)) if value)
    place = f'x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(h)}"' + (f' rx="{n(round)}"' if round else "")
    return f"<rect{attributes} {place}" + (f"><title>{escape(tip)}</title></rect>" if tip else "/>")


def number(value: float | None, percent: bool, tick: bool = False) -> str:
    """A number as a person writes it.

    >>> number(0.9782, True), number(0.2, True, True), number(72_260_000, False), number(-0.21733, False)
    ('97.8 %', '20 %', '72.3 M', '-0.217')
    """
    if value is None:
        return "-"
    if percent:
        return f"{100 * value:.0f} %" if tick else f"{100 * value:.1f} %"
    for unit, size, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e3)):
        if abs(value) >= least:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def ink(colour: str) -> str:
    """Black or white letters, whichever can be read on a colour."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "on-light" if 0.299 * r + 0.587 * g + 0.114 * b > 140 else "on-dark"


def n(value: float) -> str:
    """A coordinate in few characters."""
    return f"{value:.1f}".removesuffix(".0")
