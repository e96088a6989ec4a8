"""Download from a publisher: progress, resume, checksum, safe unpacking."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from randpath.data._unpack import unpack
from randpath.errors import DataError, DownloadError

BytesDone = Callable[[str, int, int], None]  # file, bytes there, bytes in all
ATTEMPTS = 5  # in a row without a byte of progress


@dataclass(frozen=True)
class Remote:
    """A published file; `unpacks` names the folder inside an archive whose contents are wanted."""

    url: str
    checksum: str  # "md5:..." or "sha256:...": what the publisher (or everybody) gives
    size: int  # bytes
    unpacks: str = ""

    @property
    def file(self) -> str:
        """
        >>> Remote("https://example.org/a/b.zip", "", 0).file
        'b.zip'
        """
        return self.url.rpartition("/")[2]


def fetch(remotes: Sequence[Remote], folder: Path, tick: BytesDone | None = None, pause: float = 1.0) -> None:
    """Bring every file into `folder`; one that lies there already, and is right, is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    for remote in remotes:
        target = folder / remote.file
        ours = not target.exists()
        if ours:
            _download(remote, target, tick, pause)
        elif not _is_right(target, remote):
            raise DataError(
                f"{target} is not the published file ({remote.checksum})",
                where=str(target),
                next="move it away and try again",
            )
        if remote.unpacks:
            unpack(target, folder, remote.unpacks)
            if ours:  # an archive that the user put here stays
                target.unlink()


def _download(remote: Remote, target: Path, tick: BytesDone | None, pause: float) -> None:
    part = target.with_name(target.name + ".part")
    failures = most = 0
    while (have := part.stat().st_size if part.exists() else 0) < remote.size:
        try:
            _go_on(remote, part, have, tick)
            error: Exception = ConnectionError("the connection was cut")
        except urllib.error.HTTPError as answer:
            answer.close()
            if answer.code == 416:  # the server has no such range: what we hold is from another file
                part.unlink(missing_ok=True)
            elif answer.code not in (408, 429, 500, 502, 503, 504):
                raise _unreachable(remote, target, f"HTTP {answer.code}") from answer
            error = answer
        except (OSError, http.client.HTTPException) as cut:
            error = cut
        now = part.stat().st_size if part.exists() else 0
        failures = 0 if now > max(have, most) else failures + 1  # starting again is no progress
        most = max(have, most, now)
        if failures == ATTEMPTS:
            raise _unreachable(remote, target, str(error)) from error
        if now < remote.size:
            time.sleep(pause * failures)
    if not _is_right(part, remote):
        part.unlink()  # going on from it could never end well
        raise DataError(
            f"{remote.url} sent another file than the published {remote.size:,} bytes of {remote.checksum}: refused",
            where=str(target),
            next=f"try again later, or put the right file at {target}",
        )
    part.replace(target)


def _go_on(remote: Remote, part: Path, have: int, tick: BytesDone | None) -> None:
    """One request for the rest of the file; returns at its end or when the connection ends early."""
    headers = {"User-Agent": "randpath", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=30) as answer:
        going_on = answer.status == 206 and str(answer.headers.get("Content-Range")).startswith(f"bytes {have}-")
        with part.open("ab" if going_on else "wb") as file:
            done = have if going_on else 0
            while done <= remote.size and (chunk := answer.read1(2**18)):
                file.write(chunk[: remote.size + 1 - done])  # one byte too many is enough to know a wrong file
                done += len(chunk)
                if tick is not None:
                    tick(remote.file, min(done, remote.size), remote.size)


def _is_right(path: Path, remote: Remote) -> bool:
    if path.stat().st_size != remote.size:
        return False
    name, _, wanted = remote.checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(name, usedforsecurity=False)).hexdigest() == wanted


def _unreachable(remote: Remote, target: Path, why: str) -> DownloadError:
    return DownloadError(
        f"{remote.url} cannot be downloaded ({why})",
        where=str(target),
        next=f"type it again to go on, or get {remote.file} by other means, put it at {target} and type it again",
    )
