"""The page of a run that is going on, served to this machine alone by the standard library."""

import hashlib
import http.server
import pathlib
from collections.abc import Callable, Sequence

from randpath.errors import RandpathError, UsageError

FILES = ("experiment.json", "metrics.jsonl", "times.jsonl", "progress.json", "current.json")


def state(directories: Sequence[pathlib.Path]) -> str:
    """Changes when there is something new to see."""
    told = hashlib.sha256()
    for file in (directory / name for directory in directories for name in FILES):
        try:
            told.update(f"{file} {file.stat().st_mtime_ns}\n".encode())
        except OSError:
            continue
    return told.hexdigest()[:16]


def server(
    directories: Sequence[pathlib.Path], page: Callable[[str], str], port: int
) -> http.server.ThreadingHTTPServer:
    """Answers `/` with the page, `/state` with what tells that it is old; to this machine alone, under its own name."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = serving.server_port
            if self.headers.get("Host") not in (f"127.0.0.1:{own}", f"localhost:{own}"):  # a name that was rebound
                self._answer(403, "text/plain", "this page is for 127.0.0.1 alone")
            elif self.path == "/state":
                self._answer(200, "text/plain", state(directories))
            elif self.path == "/":
                try:
                    self._answer(200, "text/html", page(state(directories)))
                except RandpathError as error:
                    self._answer(500, "text/plain", str(error))
            else:
                self._answer(404, "text/plain", "there is only /")

        def _answer(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(data))),
                ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    try:
        serving = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} cannot be had: {error}", next="--port 0 takes a free one") from error
    return serving


def serve(directories: Sequence[pathlib.Path], page: Callable[[str], str], port: int) -> int:
    """Serve until Ctrl-C."""
    page("")  # what cannot be read is said before a server starts
    with server(directories, page, port) as serving:
        print(
            f"the report is at http://127.0.0.1:{serving.server_port}/ on this machine; Ctrl-C ends it",
            flush=True,
        )
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
