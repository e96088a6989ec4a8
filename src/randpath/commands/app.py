"""The command line: the list of commands, and what a mistake ends in. torch is imported inside the commands."""

import io
import os
import re
import sys

import cyclopts
from rich.console import Console
from rich.markup import escape

from randpath.commands.ask import check, data, evaluate, export, info
from randpath.commands.bench import bench, methods, resume
from randpath.commands.edit import forget, merge, rename
from randpath.commands.learn import learn, redo, rollback
from randpath.commands.paper import paper
from randpath.commands.predict import predict
from randpath.commands.reading import print_json
from randpath.commands.report import report
from randpath.commands.serve import serve
from randpath.commands.start import start
from randpath.commands.table import curves, table
from randpath.engines import waiting
from randpath.errors import DiskTrouble, OutOfMemory, RandpathError, UsageError

COMMANDS = (
    learn,
    predict,
    evaluate,
    info,
    rollback,
    redo,
    rename,
    forget,
    merge,
    export,
    serve,
    start,
    check,
    data,
    bench,
    resume,
    report,
    paper,
    methods,
    table,
    curves,
)

LESS = "close other programs, raise the limit (ulimit -v), or ask for less: a smaller batch, width or --budget"

app = cyclopts.App(
    name="randpath",
    help="Teach an image classifier new classes without its old data (Adaptive RPS-Net).",
    help_format="plaintext",
    result_action="return_value",
)
for command in COMMANDS:
    app.command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code. A user's mistake ends in a sentence; a bug in its traceback and 1."""
    typed = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in typed[: typed.index("--") if "--" in typed else None]  # after it, that may be a class
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal or the pipe has no letters for is escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        waiting.choose()
        code = app(arguments, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        _print_error(UsageError(str(error), next="randpath --help"), as_json)
        code = UsageError.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read our output has left; python would complain when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DiskTrouble.exit_code
    except RandpathError as error:
        _print_error(error, as_json)
        code = error.exit_code
    except (MemoryError, RuntimeError) as error:  # torch says it with a RuntimeError
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        _print_error(OutOfMemory("there is not enough memory", kept="what was committed before", next=LESS), as_json)
        code = OutOfMemory.exit_code
    except OSError as error:  # a folder that may not be read, a disk that fails: the machine's trouble, not a bug
        _print_error(DiskTrouble(str(error), where=str(error.filename or "")), as_json)
        code = DiskTrouble.exit_code
    sys.exit(code)


def _print_error(error: RandpathError, as_json: bool) -> None:
    """What went wrong, where, what was kept and what to type next: one JSON object, or sentences on stderr."""
    what, where, kept, next_ = error.what, error.where, error.kept, error.next
    if as_json:
        print_json({"error": what, "where": where, "kept": kept, "next": next_})
        return
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"[bold red]randpath:[/] {escape(what)}", highlight=False)
    for name, text in (("where", where if where not in what else ""), ("kept", kept), ("next", next_)):
        if text:
            console.print(f"  {name}: {text}", highlight=False, markup=False)
