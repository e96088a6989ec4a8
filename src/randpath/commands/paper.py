"""`randpath paper`: every table and figure of the paper's section 4 with one command each."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from randpath.errors import Changed, RandpathError, UsageError

if TYPE_CHECKING:
    from randpath.paper.items import Item
    from randpath.paper.run import PlannedRun

FULL = "the paper's settings, for GPUs; on one CPU core a run of MNIST takes up to an hour or so, all others far longer"


def paper(
    item: str | None = None,
    *,
    scale: Literal["small", "full"] = "small",
    check: Annotated[bool, Parameter(negative=())] = False,
    record: Annotated[bool, Parameter(negative=())] = False,
    runs: pathlib.Path | None = None,
    seeds: str | None = None,
) -> int:
    """List the tables and figures of the paper, or run and show one of them.

    Parameters
    ----------
    item
        One of the list; what is missing of it is run, what was interrupted goes on.
    scale
        `small`: a stand-in that one CPU core affords; `full`: the paper's settings, for GPUs.
    check
        Say for each item which file holds its results, or why there is none.
    record
        Write the results to docs/results/paper of the present directory.
    runs
        Where runs are kept; default runs/paper.
    seeds
        Only these seeds of the item, e.g. 0; default all.
    """
    folder = runs or pathlib.Path("runs") / "paper"
    if item is None and (record or seeds):
        raise UsageError("--record and --seeds are for one item", next="randpath paper ITEM")
    if item is None and check:
        _require_results("--check looks at")
        return _checked()
    if item is None:
        return _list(folder, scale)
    if check:
        raise UsageError("--check looks at all items", next="randpath paper --check")
    if record:
        _require_results("--record writes to")
    return _show(item, scale, folder, record, seeds)


def _require_results(what: str) -> None:
    if not (pathlib.Path("docs") / "results").is_dir():
        raise UsageError(f"{what} docs/results of a checkout of randpath; there is none in this directory")


def _list(folder: pathlib.Path, scale: Literal["small", "full"]) -> int:
    """Each item, its cost and how many of its runs are there."""
    from randpath.paper.items import ITEMS
    from randpath.paper.run import planned_runs, recorded

    table = Table(box=None, header_style="bold")
    for name in ("item", "place", "what", "CPU minutes", "runs"):
        table.add_column(name, justify="right" if name == "CPU minutes" else "left")
    for one in ITEMS:
        found = planned_runs(one, scale, folder)
        have = {(r["arm"], r["seed"]) for r in recorded(pathlib.Path(), one, scale)}
        done = sum((planned.arm, planned.seed) in have or planned.state == "done" for planned in found)
        cost = (f"{one.minutes:.0f}" if one.minutes else "-") if scale == "small" else "for GPUs"
        state = f"{done} of {len(found)} done" if found else f"none at scale {scale}"
        table.add_row(one.name, one.place, one.title, cost, state)
    Console().print(table)
    print(f"scale {scale}; to run one: randpath paper ITEM --scale {scale}")
    return 0


def _checked() -> int:
    """For each item the recorded file, or the reason why there is none."""
    from randpath.paper.items import ITEMS, Scale
    from randpath.paper.run import sources

    here, scales = pathlib.Path(), list[Scale](("small", "full"))
    for one in ITEMS:
        files = [str(file) for s in scales for file in sources(here, one, s)]
        why = f"needs {one.needs}" if one.needs else f"not run yet: randpath paper {one.name} --record"
        print(f"{one.name:14} {', '.join(files) or why}")
    return 0


def _show(name: str, scale: Literal["small", "full"], folder: pathlib.Path, record: bool, seeds: str | None) -> int:
    from randpath.paper import run, show
    from randpath.storage import checkpoint

    item = run.item_of(name)
    print(f"{item.title} ({item.place}), {scale} scale\n  the paper: {item.claim}\n  the rule: {item.rule.words}")
    wanted = run.planned_runs(item, scale, folder)
    if item.needs:
        print(f"  it needs {item.needs}")
    if absent := run.absent(item, scale):
        print(f"  left out, because these methods are not there: {', '.join(absent)}")
    known = run.recorded(pathlib.Path(), item, scale)
    have = {(r["arm"], r["seed"]) for r in known}
    asked = set(seeds.split(",")) if seeds else {str(planned.seed) for planned in wanted}
    if unknown := asked - {str(planned.seed) for planned in wanted}:
        raise UsageError(f"{name} has no seed {', '.join(sorted(unknown))}; it has {', '.join(map(str, item.seeds))}")
    missing = [planned for planned in wanted if str(planned.seed) in asked and (planned.arm, planned.seed) not in have]
    if to_run := sum(planned.state != "done" for planned in missing):
        cost = f"about {item.minutes * to_run / len(wanted):.0f} CPU minutes" if scale == "small" else FULL
        print(f"  {to_run} of {len(wanted)} runs are still to do: {cost}", flush=True)
    for planned in missing:
        code = _run(planned, item)
        if code:
            return code
    results = known + [run.measure(planned, item, scale) for planned in missing if planned.state == "done"]
    if not results:
        raise UsageError(f"no run of {name} could be finished", next="randpath paper")
    table = Table(box=None, header_style="bold")
    heading, *rows = show.table(item, results, scale)
    for column in heading:
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    print(f"the claim, at {scale} scale: {show.verdict(item, results)}\nwhat differs from the paper: {item.differs}")
    file = folder / f"{name}-{scale}.svg"
    checkpoint.replace_file(file, show.picture(item, results, scale).encode())
    print(f"the picture is in {file}")
    if record:
        written = run.record(pathlib.Path(), item, scale, results)
        print(f"recorded in {written}; to renew docs/paper.md, type: make tables")
    return 0


def _run(planned: "PlannedRun", item: "Item") -> int:
    """Run what is missing, go on with what was interrupted; an arm that cannot be run is named and left out."""
    from randpath.commands.bench import bench, resume

    state = planned.state
    if state == "done":
        return 0
    print(f"{planned.arm}, seed {planned.seed}: {planned.command}")
    try:
        if state == "unfinished":
            return resume(planned.directory)
        return bench(
            planned.recipe, variant=planned.variant, method=planned.method, seed=planned.seed, out=planned.directory,
            set_=planned.settings,
        )  # fmt: skip
    except Changed:  # the arm can be run, but not as it was begun
        raise
    except UsageError as error:
        print(f"  left out of {item.name}: {error}")
    except RandpathError as error:
        error.kept = error.kept or "the runs that are done; the same command goes on from there"
        raise
    return 0
