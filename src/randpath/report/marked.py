"""Where generated tables go in README.md and docs.

A page marks the place: `<!-- results: RECIPE -->` ... `<!-- end -->`; what lies between is generated. Likewise `short`,
`ablations` and `paired` with a recipe, `example` with the name of a file in docs/results/examples, `systems: all`,
`figure` with the name of a picture in docs/figures.
"""

import json
import re
from pathlib import Path

from randpath.report.compare import ARENAS, paired_table, systems_table
from randpath.report.pictures import FIGURES, pictures
from randpath.report.record import Result, results_of
from randpath.report.tables import ablation_table, example_table, short_table, table

MARKED = re.compile(
    r"(<!-- (results|short|ablations|example|paired|systems|figure): (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL
)


def with_tables(text: str, folder: Path) -> str:
    """The page with its tables made anew."""
    published: list[Result] = json.loads((folder / "published.json").read_text())

    def made(kind: str, name: str, old: str) -> str:
        if kind == "ablations":
            return ablation_table(name, results_of(folder, "ablations"))
        if kind == "example":
            return example_table(json.loads((folder / "examples" / f"{name}.json").read_text()))
        if kind == "systems":
            return systems_table(old, {recipe: results_of(folder, recipe) for recipe in ARENAS}, published)
        if kind == "figure":
            drawn = f"{name}.svg" in pictures(folder)
            return f"![{FIGURES[name]}](figures/{name}.svg)\n" if drawn else "No run of it is recorded yet.\n"
        if kind == "paired":
            return paired_table(results_of(folder, name))
        return (short_table if kind == "short" else table)(name, results_of(folder, name), published)

    return MARKED.sub(lambda m: m[1] + made(m[2], m[3], m[4]) + m[5], text)


def pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]
