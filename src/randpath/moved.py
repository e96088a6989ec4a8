"""Where the modules of randpath 0.1 are now, so that an import of an old name says the new one."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

MOVED = {
    "ask_commands": "commands.ask",
    "augment": "data.augment",
    "backbones": "network.backbones",
    "calibration": "model.calibration",
    "checkpoint": "storage.checkpoint",
    "cli": "commands.app",
    "command": "commands.terminal",
    "data.cifar10": "data.published.cifar10",
    "data.cifar100": "data.published.cifar100",
    "data.digits": "data.published.digits",
    "data.fashion_mnist": "data.published.fashion_mnist",
    "data.imagenet": "data.published.imagenet",
    "data.mnist": "data.published.mnist",
    "data.ms_celeb": "data.published.ms_celeb",
    "data.svhn": "data.published.svhn",
    "data.tiny_imagenet": "data.published.tiny_imagenet",
    "decode": "data.decode",
    "encoding": "storage.encoding",
    "estimator": "model.classifier",
    "experiment": "bench.experiment",
    "export": "model.onnx",
    "fisher": "learning.fisher",
    "images": "data.dataset",
    "memory": "learning.memory",
    "method": "learning.method",
    "model_commands": "commands.learn",
    "objective": "learning.objective",
    "path": "network.path",
    "plan": "model.sizing",
    "provenance": "bench.provenance",
    "reading": "commands.reading",
    "saturation": "learning.saturation",
    "screen": "commands.terminal",
    "selection": "learning.selection",
    "stream": "data.stream",
    "train": "learning.train",
    "versions": "model.versions",
    "workers": "engines.processes",
}


def hint(name: str) -> str:
    """What to import instead of an old module.

    >>> hint("experiment"), hint("nothing")
    ('; randpath.experiment is now randpath.bench.experiment', '')
    """
    return f"; randpath.{name} is now randpath.{MOVED[name]}" if name in MOVED else ""


class _Signpost(MetaPathFinder):
    """The last finder: asked only for what no other one has found."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        old = fullname.removeprefix("randpath.")
        if old != fullname and old in MOVED:
            raise ModuleNotFoundError(f"No module named {fullname!r}{hint(old)}", name=fullname)


def tell_of_old_names() -> None:
    sys.meta_path.append(_Signpost())
