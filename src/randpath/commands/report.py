"""`randpath report`: a run, several runs or a model as one HTML page."""

import pathlib
from typing import Annotated

from cyclopts import Parameter

from randpath.errors import UsageError, as_typed


def report(
    *directories: pathlib.Path,
    out: pathlib.Path | None = None,
    live: Annotated[bool, Parameter(negative=())] = False,
    port: int = 0,
    tensorboard: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Write one HTML page that shows a run, compares several, or shows a model; it opens offline.

    Parameters
    ----------
    directories
        A run (made by bench), several runs, or a model (made by learn).
    out
        The file to write; default report.html inside the run, or the model's name with .html beside the model.
    live
        Serve the page on this machine alone, and renew it while the run goes on; Ctrl-C ends it.
    port
        Of --live; 0 takes a free one.
    tensorboard
        Also write TensorBoard's event files, into the directory tensorboard of each run; with --live as tasks are done.
    """
    if not directories:
        raise UsageError("report which run or model?", next="randpath report RUN   (or several, or a MODEL)")
    if out is not None and out.is_dir():
        raise UsageError(f"{out} is a directory", next=as_typed("report", directories[0], "--out", out / "report.html"))
    if out is not None and out.is_file() and not _is_page(out):
        raise UsageError(f"{out} is there and is not a page; nothing was written", next="--out FILE.html, a new name")
    if live:
        from randpath.report.live import serve

        return serve(directories, lambda state: page_of(directories, state, tensorboard), port)
    from randpath.storage import checkpoint

    text = page_of(directories, tensorboard=tensorboard)
    file = out or _file(directories)
    checkpoint.replace_file(file, text.encode())
    print(f"the report is in {file}; open it in a browser")
    if tensorboard:
        folders = ",".join(str(directory / "tensorboard") for directory in directories)
        print(f"to watch the event files, type: tensorboard --logdir {folders}")
    return 0


def _is_page(file: pathlib.Path) -> bool:
    with file.open("rb") as stream:  # not all of it: it may be somebody's archive
        return stream.read(15).lower().startswith(b"<!doctype html")


def page_of(directories: tuple[pathlib.Path, ...], live: str = "", tensorboard: bool = False) -> str:
    """The page of one model, one run or several runs, and the event files of runs if they are asked for."""
    from randpath.model import versions
    from randpath.report import pages
    from randpath.report.events import write_events
    from randpath.report.reading import read_run

    if len(directories) == 1 and versions.is_model(directories[0]):
        from randpath.commands.reading import open_model

        if tensorboard:
            raise UsageError("event files are made of runs; a model has none", next=f"randpath report {directories[0]}")
        number, model = open_model(directories[0])
        return pages.model_page(model, number, directories[0])
    if models := [directory for directory in directories if versions.is_model(directory)]:
        raise UsageError(f"{models[0]} is a model, and only runs are compared", next=as_typed("report", models[0]))
    runs = [read_run(directory) for directory in directories]
    if tensorboard:
        for run in runs:
            write_events(run)
    if len(runs) == 1:
        recorded = pathlib.Path("docs") / "results"
        return pages.run_page(runs[0], recorded if recorded.is_dir() else None, live)
    return pages.compare_page(runs, live)


def _file(directories: tuple[pathlib.Path, ...]) -> pathlib.Path:
    first = directories[0]
    if len(directories) > 1:
        return pathlib.Path("report.html")
    # Nothing foreign is put into a model directory.
    return first / "report.html" if (first / "experiment.json").exists() else first.with_name(first.name + ".html")
