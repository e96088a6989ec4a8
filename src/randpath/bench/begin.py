"""What a run began with, and whether it may go on: the same settings, data and environment, or a refusal."""

import pathlib
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from randpath.bench.experiment import Experiment
from randpath.bench.provenance import commit, environment
from randpath.data.dataset import file_changes
from randpath.data.stream import TaskStream
from randpath.errors import Changed, as_typed
from randpath.learning.train import Training
from randpath.storage import checkpoint

FREE = ("processes", "logits", "training.save_seconds")  # settings that cannot change a result


def begin(
    experiment: Experiment,
    directory: pathlib.Path,
    stream: TaskStream,
    command: str,
    inexact: bool,
    recipe_file: Mapping[str, Any] | None = None,
) -> checkpoint.Saved:
    """The last checkpoint, number 0000 for a new run; refuses to go on with another experiment, environment or data.

    Each checkpoint holds what the run began with: experiment.json is the copy to read, and may have been edited since.
    """
    file: dict[str, Any] = {} if recipe_file is None else {"recipe_file": dict(recipe_file)}
    # The code of a method or dataset of one's own is a part of the environment, as a library's version is.
    code: dict[str, Any] = {"recipe_file": recipe_file["sha256"]} if recipe_file and recipe_file["defines"] else {}
    now = _plain(
        {
            "experiment": experiment.to_json(),
            "environment": {**environment(), **code},
            "data_fingerprint": stream.source.fingerprint,
            "class_order": list(stream.class_order),
            "class_names": list(stream.class_names),
            "command": command,
            "commits": [commit()],
            **file,
        }
    )
    found = checkpoint.latest(directory / "checkpoints")
    if found is None:
        return _new(directory, stream, now)
    saved = found[1]
    before = saved.documents["run"]
    unfinished = len(saved.documents["metrics"]) < stream.num_tasks
    elsewhere = _refuse_changes(directory, stream, before, now, inexact or not unfinished)
    if unfinished:
        # A finished run is read-only: the reader's commit and environment are not added to it.
        before["experiment"] = now["experiment"]  # what is free to change
        if "recipe_file" in now:
            before["recipe_file"] = now["recipe_file"]  # it may have been moved
        before["commits"] = sorted({*before.get("commits", []), *now["commits"]}, key=str)
        if elsewhere:
            before["inexact"] = sorted({*before.get("inexact", []), *elsewhere})
    checkpoint.write_document(directory / "experiment.json", before)
    return saved


def _new(directory: pathlib.Path, stream: TaskStream, now: Mapping[str, Any]) -> checkpoint.Saved:
    file = directory / "experiment.json"
    if file.exists():
        warnings.warn(f"{directory} has lost its checkpoints: it begins again", stacklevel=3)
    checkpoint.write_document(directory / "files.json", dict(stream.source.files))
    checkpoint.write_document(directory / "skipped.json", list(stream.source.skipped))
    empty: dict[str, object] = {"run": now, "state": None, "metrics": [], "epochs": [], "times": []}
    first = checkpoint.save(directory / "checkpoints", "0000", {}, empty)
    checkpoint.write_document(file, now)  # last: where it is, there was a checkpoint
    return checkpoint.load(first)


def _refuse_changes(
    directory: pathlib.Path, stream: TaskStream, before: Mapping[str, Any], now: Mapping[str, Any], inexact: bool
) -> list[str]:
    """What differs in the environment, if `inexact` allows it; every other difference is an error."""
    differ = _differences(with_defaults(before["experiment"]), now["experiment"])
    if before["data_fingerprint"] != now["data_fingerprint"]:
        differ.append(f"the data of {stream.source.name}: fingerprint {before['data_fingerprint'][:12]} then")
        differ += file_changes(checkpoint.read_document(directory / "files.json"), stream.source.files)
    elsewhere = _differences(before["environment"], now["environment"])
    if differ or (elsewhere and not inexact):
        text = "\n  ".join([f"{directory} was begun with something else:", *differ, *elsewhere])
        next_ = "" if differ else f"to go on all the same, type: {as_typed('resume', directory, '--inexact')}"
        raise Changed(text, next=next_)
    return elsewhere


def with_defaults(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a file holds them; those that came later, which it lacks, were implicitly at their defaults."""
    return _plain(
        {
            **{f.name: f.default for f in fields(Experiment) if f.default is not MISSING},
            **experiment,
            "training": {**asdict(Training()), **experiment["training"]},
        }
    )


def other_settings(held: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """In what an experiment differs from that of a run as its file holds it, setting by setting."""
    return _differences(with_defaults(held), _plain(experiment.to_json()))


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """As it is when it comes back from a file: lists for tuples."""
    plain: dict[str, Any] = checkpoint.parse_document(checkpoint.encode_document(dict(document)))
    return plain


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What was and what is, key by key."""
    found = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new and prefix + key not in FREE:
            found.append(f"{prefix}{key}: {old!r} then, {new!r} now")
    return found
