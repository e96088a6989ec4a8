"""An experiment, frozen and serialisable: all that decides a result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from randpath.errors import UsageError
from randpath.learning.memory import Budget, PerClass, Size, parse_per_class
from randpath.learning.train import Training
from randpath.network.backbones import Activation, Stem
from randpath.network.layers import Attention, Join
from randpath.settings import at_least, between, check, parse_size, refuse_unknown, that_is

NAME = that_is("a name", bool)


@dataclass(frozen=True)
class Experiment:
    """All that decides a result. The defaults are the paper's (section 4.1)."""

    dataset: Annotated[str, NAME, "a name, folder:PATH for one's own pictures, NAME@START for their features"]
    tasks: Annotated[
        int | tuple[int, ...] | tuple[tuple[str, ...], ...],
        that_is(
            "a number of tasks, or a list of sizes or of names", lambda t: t >= 1 if isinstance(t, int) else bool(t)
        ),
        "how many equal groups, or their sizes, or the names in each",
    ]
    recipe: str = ""
    variant: Literal["paper", "tuned"] = "paper"
    class_order: Annotated[
        Literal["natural"] | int | tuple[str, ...],
        that_is(
            '"natural", a seed of at least 0 or a list of names', lambda order: not isinstance(order, int) or order >= 0
        ),
        "in which classes arrive",
    ] = "natural"
    method: Annotated[str, NAME, "randpath methods lists them"] = "rps"
    options: Mapping[str, Any] = field(default_factory=dict)  # the method's own
    backbone: Annotated[str, NAME, "the network family"] = "resnet18_cifar"
    width: Annotated[int | None, at_least(1), "channels or neurons; null: the backbone's own"] = None
    modules: Annotated[int, at_least(1), "M, parallel modules per layer"] = 8
    attention: Annotated[Attention, "of the last layer; scale, ours: a learned number for each module"] = "peak"
    stem: Annotated[Stem, "whiten: a fixed first layer, made from the first task's images"] = "learned"
    activation: Annotated[Activation, "inside and after the modules"] = "relu"
    join: Annotated[
        Join, "of the last layer's modules; concat: side by side; lanes: in all layers, each for itself"
    ] = "sum"
    training: Training = Training()
    padding: Annotated[int, at_least(0), "pixels that a crop may shift"] = 4
    degrees: Annotated[float, between(0, 180), "of rotation, each way"] = 10.0
    jitter: Annotated[
        tuple[float, ...],
        that_is("a list of three numbers from 0 to 1", lambda j: len(j) == 3 and all(0 <= one <= 1 for one in j)),
        "of brightness, contrast and saturation: each times 1 - j to 1 + j",
    ] = (0.0, 0.0, 0.0)
    validation: Annotated[bool, "a tenth is held out, to choose paths on; false: all images train, and N is 1"] = True
    memory: Annotated[
        int | str,
        that_is(
            'a whole number of at least 0, "20 per class", or a size such as "6.1MB"',
            lambda m: m >= 0 if isinstance(m, int) else (parse_size(m), parse_per_class(m)) != (None, None),
        ),
        "exemplars in the replay memory, in all or of each class; a size holds as many as fit, as lossy files",
    ] = 2000
    memory_quality: Annotated[int, between(1, 100), "of those files (WebP)"] = 90
    herding: Annotated[bool, "exemplars by herding instead of at random"] = False
    size: Annotated[int | None, at_least(1), "the side to which files are brought; null: the dataset's own"] = None
    images: Annotated[int | None, at_least(1), "training images of each class, drawn by the seed; null: all"] = None
    members: Annotated[int, between(1, 64), "networks of different seeds that share the memory; their mean answers"] = 1
    mirror: Annotated[bool, "answer with the mean of the logits of a picture and of its mirror image"] = False
    auxiliary: Annotated[str | None, "a dataset whose pictures, without labels, dmc learns from"] = None
    skip_bad: Annotated[bool, "leave out the faulty files of a folder"] = False
    logits: Annotated[bool, "keep the logits of all test images, as float16; no result depends on it"] = False
    seed: Annotated[int, at_least(0), "of weights, batches, paths and exemplars"] = 0
    device: Annotated[str, NAME, "cpu, cuda, cuda:1, mps"] = "cpu"
    threads: Annotated[int, between(1, 1024), "of a lone candidate"] = 1
    search_threads: Annotated[int, between(1, 1024), "of one of N candidates"] = 1
    processes: Annotated[
        int,
        between(1, 1024),
        "that train candidates or members side by side, and threads that judge; no result depends on it",
    ] = 1

    def __post_init__(self) -> None:
        """Refuse what no run could use, with the name of the setting, before anything is written."""
        check(self)

    @property
    def budget(self) -> Budget:
        """The memory's budget, in pictures, in pictures of each class or in bytes."""
        if isinstance(self.memory, int):
            return self.memory
        if count := parse_per_class(self.memory):
            return PerClass(count)
        size = parse_size(self.memory)  # none: 0 per class
        return Size(size, self.memory_quality) if size else 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Experiment":
        training = {k: _tuples(v) for k, v in document["training"].items()}
        plain = {k: _tuples(v) for k, v in document.items() if k not in ("training", "options")}
        return cls(**plain, options=dict(document["options"]), training=Training(**training))

    def changed(self, key: str, value: Any) -> "Experiment":
        """A copy with one setting changed, for `--set`; nested ones as training.epochs or options.gamma.

        >>> Experiment("digits", 5).changed("training.epochs", 3).training.epochs
        3
        """
        outer, _, inner = key.partition(".")
        known = [f.name for f in fields(self)]
        if outer == "options" and inner:
            return replace(self, options={**self.options, inner: value})
        if outer == "training" and inner:
            refuse_unknown({inner: value}, Training, "training")
            return replace(self, training=replace(self.training, **{inner: _tuples(value)}))
        # Not what names a result: a tuned run must not be recorded as the paper's.
        plain = [name for name in known if name not in ("options", "training", "recipe", "variant")]
        if outer not in plain or inner:
            raise UsageError(f"there is no setting {key!r}; there are {', '.join(plain)}, training.*, options.*")
        return replace(self, **{outer: _tuples(value)})

    def with_settings(self, settings: Sequence[str]) -> "Experiment":
        """A copy with settings changed as they are typed.

        >>> Experiment("digits", 5).with_settings(["memory=100", "attention=none"]).attention
        'none'
        """
        experiment = self
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise UsageError(f"a setting is changed by key=value, got {setting!r}")
            try:
                value = json.loads(text)
            except json.JSONDecodeError:
                value = text
            experiment = experiment.changed(key, value)
        return experiment


def _tuples(value: Any) -> Any:
    """JSON has lists where the dataclasses have tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
