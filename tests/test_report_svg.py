"""A figure as a file: what else reads it than a browser knows no variables, and sees no dark screen."""

import re
from pathlib import Path

from randpath.report.svg import DARK, LIGHT, STYLE, VARIABLES, Figure, standalone

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
COLOUR = re.compile(r"(\.figure [^{]+?) \{ (?:fill|stroke): (#[0-9a-f]{3,6}); \}")


def rules_and_dark_rules() -> tuple[str, str]:
    style = re.search(r"<style>(.*)</style>", standalone([[Figure("a", 20, "")]], "A"), re.DOTALL)
    assert style is not None
    light, _, dark = style[1].partition("@media screen and (prefers-color-scheme: dark)")
    return light, dark


def test_every_colour_of_a_file_is_a_plain_value():
    light, dark = rules_and_dark_rules()
    assert "var(" not in light + dark
    found = dict(COLOUR.findall(light))
    assert found[".figure text"] == LIGHT["ink"] == "#1b1f24"
    assert found[".figure .back"] == found[".figure .hollow"] == "#fff"
    assert (found[".figure .f1"], found[".figure .s6"]) == ("#d55e00", "#57606a")


def test_a_dark_screen_changes_every_colour_and_no_shape():
    light, dark = rules_and_dark_rules()
    of_light, of_dark = dict(COLOUR.findall(light)), dict(COLOUR.findall(dark))
    on_a_cell = {".figure text.on-dark", ".figure text.on-light"}  # whose colour is the same on both
    assert of_light.keys() - of_dark.keys() == on_a_cell
    assert not [name for name in of_dark if of_light[name] == of_dark[name]]
    assert all(VARIABLES.count(f"--{name}: {c};") == 1 for colours in (LIGHT, DARK) for name, c in colours.items())
    assert "fill: none" in light
    assert "fill: none" not in dark
    # A class with a colour of its own is coloured whatever its shape says: on both screens alike.
    assert light.index("fill: none") < light.index(".figure .f0 {")


def test_every_class_that_a_figure_uses_has_a_rule():
    """A form without one would be black."""
    files = [file.read_text() for file in FIGURES.rglob("*.svg")]
    used = {name for file in files for kinds in re.findall(r'class="([^"]*)"', file) for name in kinds.split()}
    assert len(files) > 10 and len(used) > 10
    assert used - set(re.findall(r"\.([a-z][\w-]*)", STYLE)) == set()
