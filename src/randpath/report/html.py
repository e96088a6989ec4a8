"""One self-contained HTML page: no outside resource, and a policy under which nothing but our own script may run."""

import base64
import hashlib
import io
import pathlib
from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from randpath.report.svg import STYLE, VARIABLES, Figure

HERE = pathlib.Path(__file__).parent
Section = dict[str, Any]


def page(
    title: str, subtitle: str, tiles: Sequence[dict[str, str]], sections: Sequence[Section], *,
    banner: dict[str, str] | None = None, footer: str = "", live: str = "",
) -> str:  # fmt: skip
    """The page. Every text is escaped by jinja2; figures come escaped. `live` is the state that a live page shows."""
    style = VARIABLES + STYLE + (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((HERE / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title, subtitle=subtitle, tiles=tiles, sections=[_filled(section) for section in sections],
        banner=banner, footer=footer, live=live, policy=policy(style, script, bool(live)),
        style=Markup(style), script=Markup(script),
    )  # fmt: skip


def policy(style: str, script: str, live: bool) -> str:
    """The Content-Security-Policy: our style and our script by their hash, pictures from the page itself, no more."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    own = f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; img-src data:"
    return own + "; base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if live else "")


def section(id: str, title: str, note: str = "", **parts: Any) -> Section:
    return {"id": id, "title": title, "note": note, **parts}


def drawn(figures: Sequence[Figure | None]) -> list[Markup]:
    """Those that there are, as SVG; their texts were escaped when they were drawn."""
    return [Markup(figure.inline()) for figure in figures if figure is not None]


def tile(name: str, value: str, meaning: str) -> dict[str, str]:
    return {"name": name, "value": value, "meaning": meaning}


def strip(pictures: Sequence[np.ndarray], side: int = 40) -> dict[str, Any]:
    """Pictures side by side as one PNG in a data: address."""
    from PIL import Image

    row = Image.new("RGB", ((side + 2) * len(pictures), side), "white")
    for i, pixels in enumerate(pictures):
        own = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
        smaller = max(own.size) > side
        how = Image.Resampling.BOX if smaller else Image.Resampling.NEAREST
        share = side / max(own.size)
        size = (max(1, round(own.width * share)), max(1, round(own.height * share)))
        row.paste(own.resize(size, how), ((side + 2) * i, 0))
    file = io.BytesIO()
    row.quantize(128).save(file, "png", optimize=True)
    src = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"src": src, "width": row.width, "height": row.height}


def _filled(given: Section) -> Section:
    """With every part that the template asks for."""
    empty: Section = {"frames": [], "frames_name": "", "views": [], "data": None, "figures": [], "pictures": []}
    return {**empty, "head": [], "rows": [], "commands": [], **given}
