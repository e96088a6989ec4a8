"""What the commands on models and pictures share: reading both, and printing. torch is imported inside."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter, validators

from randpath.commands.terminal import Bar
from randpath.errors import RandpathError, UsageError
from randpath.model import versions

if TYPE_CHECKING:
    from PIL.Image import Image

    from randpath.data.dataset import Source
    from randpath.model.model import Model

Json = Annotated[bool, Parameter(name="--json", negative=())]
T = TypeVar("T")
Threads = Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=256))]


def print_json(document: dict[str, Any]) -> int:
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() in ("utf-8", "utf8")  # a StringIO has none
    print(json.dumps(document, ensure_ascii=not is_utf8, allow_nan=False))
    return 0


def open_model(model: Path, device: str = "cpu") -> "tuple[int, Model]":
    """The current version and its number; if it is damaged, the newest good one, and stderr says so."""
    versions.current(model)  # no model there: said before torch is imported

    from randpath.model.model import Model

    return versions.newest_good(model, lambda saved: Model.restore(saved, device, model), warn)


@contextmanager
def says_what_is_kept(model: Path) -> Iterator[None]:
    """Whatever goes wrong in a command that writes, the message says what is there now."""
    before = versions.kept(model)
    try:
        yield
    except RandpathError as error:
        now = versions.kept(model)
        at = f"{model} is {'unchanged, ' * (now == before)}at version {now[-1]}" if now else "nothing was there before"
        error.kept = error.kept or at
        raise


def warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def picture_shape(model: "Model") -> tuple[int, int, int]:
    if model.plan.start is not None:
        return model.start().shape
    if len(model.plan.shape) != 3:
        raise UsageError("this model takes feature vectors, not pictures", next="PathClassifier.load, in Python")
    h, w, c = model.plan.shape
    return h, w, c


def pictures_in(folder: Path, shape: tuple[int, int, int] | None, skip_bad: bool) -> "Source":
    """The pictures at the model's size; a new model takes 32 x 32, or 64 x 64 where most pictures are larger."""
    from randpath.data.folder import load

    with Bar(f"looking at {folder}") as bar:
        size = _size(folder) if shape is None else 0
        source = load(
            folder,
            size=size,
            shape=shape,
            test=0.0,
            skip_bad=skip_bad,
            tick=lambda done, total: bar.show(done / max(total, 1)),
        )
        for line in source.skipped:
            bar.say(f"left out: {line}")
    return source


def sampled(folder: Path, number: int, look: "Callable[[Image], T]") -> "Iterator[T]":
    """What `look` sees in about so many of a folder's pictures, evenly chosen; those that cannot be read left out."""
    import warnings

    import PIL.Image

    from randpath.data.decode import EXTENSIONS

    place = folder if folder.is_dir() else folder.parent  # a .csv list has its pictures beside it
    files = sorted(p for p in place.rglob("*") if p.suffix.lower() in EXTENSIONS)
    for file in files[:: max(1, len(files) // number)]:
        try:
            with warnings.catch_warnings(action="ignore"), PIL.Image.open(file) as image:
                seen = look(image)
        except Exception:  # Pillow raises a dozen kinds; whatever is wrong, the check that follows will name it
            continue
        yield seen


def _size(folder: Path) -> int:
    """32 where the shorter side of at least half of the pictures is at most 48, else 64."""
    sides = sorted(sampled(folder, 200, lambda image: min(image.size)))
    return 32 if not sides or sides[len(sides) // 2] <= 48 else 64


def use_threads(number: int | None) -> None:
    """For a command that only asks; none: torch's own choice."""
    import torch

    if number is not None:
        torch.set_num_threads(number)


def stored_inside(model: "Model") -> str:
    """What whoever gets a model could see."""
    what = "pictures" if len(model.plan.shape) == 3 else "vectors"
    if model.plan.start is not None:
        what = "vectors and no picture"
    return f"{len(model.method.memory):,} training {what} are stored inside"


def capacity(entry: dict[str, Any]) -> str:
    """How full the network is, in plain words; `info` has the number."""
    if entry["saturation"] is None:
        return "capacity: not measured yet (one class, or nothing kept inside)"
    full = "the present modules are full: the next classes get new ones"
    return f"capacity: {full if entry['switched'] else 'there is room for more classes in the present modules'}"


def confidence(model: "Model") -> list[str]:
    """How far confidence and "unknown" can be trusted."""
    last = model.history[-1]
    lines = []
    if last["calibration_error"] is not None:
        lines.append(f"confidence is off by {last['calibration_error']:.1%} on average (expected calibration error)")
    if model.doubt:
        most = 1 - model.doubt * (1 - 1 / len(model.names))
        lines.append(f"no confidence is above{percent(most)}: with more to learn from it may be")
    if model.novelty is not None:
        lines.append(f"about {model.novelty.false_alarms:.0%} of what is of a known class will be called unknown")
    return lines


def percent(confidence: float) -> str:
    """Rounded down, six characters wide; never 100 %.

    >>> percent(0.99999), percent(0.0712)
    (' 99.9%', '  7.1%')
    """
    return f"{int(min(confidence, 0.9999) * 1000) / 10:5.1f}%"
