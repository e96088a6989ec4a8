"""A figure as a file: what else reads it than a browser knows no variables, and sees no dark screen."""

import re

from randpath.report.svg import DARK, LIGHT, Figure, rect, standalone, text

COLOUR = re.compile(r"(\.figure [^{]+?) \{ (?:fill|stroke): (#[0-9a-f]{3,6}); \}")


def rules_and_dark_rules() -> tuple[str, str]:
    body = text("mu_sat", 0, 10, "soft") + rect(0, 0, 9, 9, "f1")
    style = re.search(r"<style>(.*)</style>", standalone([[Figure("a", 20, body)]], "A"), re.DOTALL)
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
    assert [name for name, _ in COLOUR.findall(light)] == [name for name, _ in COLOUR.findall(dark)]
    fixed = {".figure .on-dark", ".figure .on-light"}  # letters on a cell, whose colour is the same on both
    of_light, of_dark = dict(COLOUR.findall(light)), dict(COLOUR.findall(dark))
    assert {name for name in of_light if of_light[name] == of_dark[name]} == fixed
    assert set(LIGHT) == set(DARK)
    assert "fill: none" in light
    assert "fill: none" not in dark
    # A class with a colour of its own is coloured whatever its shape says: on both screens alike.
    assert light.index("fill: none") < light.index(".figure .f0 {")
