"""Downloads against a local server that cuts connections and sends wrong files; archives that want to get out."""

import contextlib
import gzip
import hashlib
import io
import stat
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from randpath.data import _unpack, named
from randpath.data._unpack import unpack
from randpath.data.download import Remote, fetch
from randpath.errors import DataError, DownloadError, RandpathError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


BODY = np.random.RandomState(0).bytes(300_000)


class Server:
    """Serves `body`; `cut` closes the connection after so many bytes, `fail` answers with these codes first."""

    def __init__(self) -> None:
        self.body = BODY
        self.cut: int | None = None
        self.fail: list[int] = []
        self.ranges = True
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                if outer.fail:
                    self.send_error(outer.fail.pop(0))
                    return
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and outer.ranges else 0
                if start >= len(outer.body):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(outer.body) - 1}/{len(outer.body)}")
                self.send_header("Content-Length", str(len(outer.body) - start))
                self.end_headers()
                part = outer.body[start:] if outer.cut is None else outer.body[start : start + outer.cut]
                with contextlib.suppress(OSError):  # the client hangs up on a file that is too long
                    self.wfile.write(part)
                self.close_connection = True

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def remote(self, name: str = "file.bin", body: bytes = BODY, unpacks: str = "") -> Remote:
        url = f"http://127.0.0.1:{self.http.server_port}/{name}"
        return Remote(url, "sha256:" + hashlib.sha256(body).hexdigest(), len(body), unpacks)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


class TestDownload:
    def test_progress_and_the_file(self, server: Server, tmp_path: Path) -> None:
        told: list[tuple[str, int, int]] = []
        fetch([server.remote()], tmp_path / "x", lambda *step: told.append(step))
        assert (tmp_path / "x" / "file.bin").read_bytes() == BODY
        assert told[-1] == ("file.bin", len(BODY), len(BODY))
        assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
        assert names(tmp_path / "x") == ["file.bin"]
        server.asked.clear()
        fetch([server.remote()], tmp_path / "x")
        assert server.asked == [], "what is there is not fetched again"

    def test_a_cut_connection_goes_on_where_it_stopped(self, server: Server, tmp_path: Path) -> None:
        server.cut = 70_000
        fetch([server.remote()], tmp_path, pause=0)
        assert (tmp_path / "file.bin").read_bytes() == BODY
        assert server.asked == [None, *(f"bytes={i * 70_000}-" for i in range(1, 5))]

    def test_the_next_day_goes_on_too(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file.bin.part").write_bytes(BODY[:123_456])
        fetch([server.remote()], tmp_path)
        assert server.asked == ["bytes=123456-"]
        assert (tmp_path / "file.bin").read_bytes() == BODY

    def test_a_server_without_ranges_starts_again(self, server: Server, tmp_path: Path) -> None:
        server.ranges = False
        (tmp_path / "file.bin.part").write_bytes(b"\0" * 1000)
        fetch([server.remote()], tmp_path)
        assert (tmp_path / "file.bin").read_bytes() == BODY

    @pytest.mark.parametrize(
        "sent", [BODY[:-1] + b"\0", BODY + b"more", b"<html>please sign in</html>" + BODY[27:], BODY * 3]
    )
    def test_a_wrong_file_is_refused_and_removed(self, server: Server, tmp_path: Path, sent: bytes) -> None:
        server.body = sent
        with pytest.raises(DataError, match="sent another file than the published"):
            fetch([server.remote()], tmp_path, pause=0)
        assert names(tmp_path) == []

    def test_a_wrong_beginning_is_not_gone_on_from_twice(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file.bin.part").write_bytes(b"\0" * 1000)
        with pytest.raises(DataError, match="another file"):
            fetch([server.remote()], tmp_path)
        fetch([server.remote()], tmp_path)
        assert (tmp_path / "file.bin").read_bytes() == BODY

    def test_a_file_that_is_too_short_for_ever(self, server: Server, tmp_path: Path) -> None:
        server.body = b"<html>not found</html>"
        with pytest.raises(DownloadError, match="cannot be downloaded"):
            fetch([server.remote()], tmp_path, pause=0)

    def test_passing_trouble_is_waited_out(self, server: Server, tmp_path: Path) -> None:
        server.fail = [503, 500, 429]
        fetch([server.remote()], tmp_path, pause=0)
        assert (tmp_path / "file.bin").read_bytes() == BODY

    def test_gone_is_said_at_once_and_what_to_do(self, server: Server, tmp_path: Path) -> None:
        server.fail = [404]
        with pytest.raises(DownloadError, match="HTTP 404") as error:
            fetch([server.remote()], tmp_path)
        assert len(server.asked) == 1
        assert f"put it at {tmp_path / 'file.bin'}" in error.value.next

    def test_no_network(self, server: Server, tmp_path: Path) -> None:
        remote = server.remote()
        server.http.shutdown()
        server.http.server_close()
        with pytest.raises(DownloadError, match="refused") as error:
            fetch([remote], tmp_path, pause=0)
        assert remote.file in error.value.next
        assert isinstance(error.value, RandpathError), "exit code 74, not 65"
        (tmp_path / "file.bin").write_bytes(BODY)
        fetch([remote], tmp_path)  # put there by hand, it is taken

    def test_a_wrong_file_put_there_by_hand(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file.bin").write_bytes(b"something else")
        with pytest.raises(DataError, match="not the published file"):
            fetch([server.remote()], tmp_path)
        assert (tmp_path / "file.bin").read_bytes() == b"something else", "it is the user's"


def cifar_archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        record = np.zeros((5, 3074), np.uint8)
        record[:, 1] = np.arange(5)
        for name, raw in (
            ("train.bin", record.tobytes()),
            ("test.bin", record.tobytes()),
            ("fine_label_names.txt", "\n".join(f"c{i}" for i in range(100)).encode()),
        ):
            info = tarfile.TarInfo(f"cifar-100-binary/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return file.getvalue()


class TestDatasets:
    def test_an_archive_is_fetched_unpacked_and_loadable(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.body = cifar_archive()
        remote = server.remote("cifar-100-binary.tar.gz", server.body, "cifar-100-binary")
        monkeypatch.setitem(named.REMOTES, "cifar100", [remote])
        assert named.download("cifar100", tmp_path) == tmp_path / "cifar100"
        assert names(tmp_path / "cifar100") == ["fine_label_names.txt", "test.bin", "train.bin"]
        assert named.load("cifar100", tmp_path).train.labels.tolist() == [0, 1, 2, 3, 4]
        server.asked.clear()
        named.download("cifar100", tmp_path)
        assert server.asked == []

    def test_an_archive_put_there_by_hand(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remote = server.remote("cifar-100-binary.tar.gz", cifar_archive(), "cifar-100-binary")
        monkeypatch.setitem(named.REMOTES, "cifar100", [remote])
        (tmp_path / "cifar100").mkdir()
        (tmp_path / "cifar100" / remote.file).write_bytes(cifar_archive())
        named.download("cifar100", tmp_path)
        assert server.asked == []
        assert (tmp_path / "cifar100" / remote.file).exists()

    def test_what_needs_no_download_and_what_has_none(self, tmp_path: Path) -> None:
        assert named.download("digits", tmp_path) is None
        for name in ("imagenet", "imagenet100", "ms_celeb"):
            with pytest.raises(DataError, match="not found"):
                named.download(name, tmp_path)
        with pytest.raises(ValueError, match="no dataset"):
            named.download("nonsense", tmp_path)

    def test_every_remote_is_well_formed(self) -> None:
        for remotes in named.REMOTES.values():
            for remote in remotes:
                kind, _, digest = remote.checksum.partition(":")
                assert len(digest) == {"md5": 32, "sha256": 64}[kind]
                assert remote.size > 1000
                assert remote.url.startswith("http")


Members = list[tuple[str, bytes, dict[str, object]]]


def tar_of(members: Members, mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for name, raw, extra in members:
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            for key, value in extra.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(raw))
    return file.getvalue()


def zip_of(members: Members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, raw, extra in members:
            info = zipfile.ZipInfo(name)
            for key, value in extra.items():
                setattr(info, key, value)
            zipped.writestr(info, raw)
    return file.getvalue()


GOOD: Members = [("top/a.txt", b"hello", {}), ("top/b/c.txt", b"there", {})]


def hostile() -> dict[str, Callable[[], bytes]]:
    def tar(*members: tuple[str, bytes, dict[str, object]]) -> Callable[[], bytes]:
        return lambda: tar_of([*GOOD, *members])

    def zipped(*members: tuple[str, bytes, dict[str, object]]) -> Callable[[], bytes]:
        return lambda: zip_of([*GOOD, *members])

    def patched(find: bytes, put: bytes) -> Callable[[], bytes]:
        return lambda: zip_of([*GOOD, ("top/evil.txt", b"x", {})]).replace(find, put)

    link = {"external_attr": (stat.S_IFLNK | 0o777) << 16}
    return {
        "tar parent": tar(("top/../../evil.txt", b"x", {})),
        "tar parent at the start": tar(("../evil.txt", b"x", {})),
        "tar absolute": tar(("/tmp/evil.txt", b"x", {})),
        "tar symbolic link": tar(("top/link", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
        "tar link then file through it": tar(
            ("top/link", b"", {"type": tarfile.SYMTYPE, "linkname": "/tmp"}), ("top/link/evil.txt", b"x", {})
        ),
        "tar hard link": tar(("top/link", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})),
        "tar device": tar(("top/dev", b"", {"type": tarfile.CHRTYPE})),
        "tar pipe": tar(("top/pipe", b"", {"type": tarfile.FIFOTYPE})),
        "tar same name twice": tar(("top/a.txt", b"again", {})),
        "tar same name in another case": tar(("top/A.TXT", b"again", {})),
        "tar file and folder of one name": tar(("top/a.txt/evil.txt", b"x", {})),
        "tar folder then file of one name": tar(("top/b", b"x", {})),
        "tar control characters": tar(("top/e\nvil.txt", b"x", {})),
        "tar right to left": tar(("top/evil\u202etxt.exe", b"x", {})),
        "tar backslash": tar(("top\\..\\evil.txt", b"x", {})),
        "tar drive": tar(("C:/evil.txt", b"x", {})),
        "tar endless name": tar(("top/" + "x" * 300, b"x", {})),
        "tar deep": tar(("top/" + "d/" * 40 + "x", b"x", {})),
        "tar cut": lambda: tar_of(GOOD * 1 + [("top/big", bytes(100_000), {})], "w:gz")[:-60],
        "tar forged length": lambda: tar_of(GOOD).replace(b"00000000005", b"77777777777"),
        "tar no such folder": lambda: tar_of([("other/a.txt", b"x", {})]),
        "not an archive": lambda: b"hello" * 1000,
        "empty": lambda: b"",
        "zip parent": zipped(("../evil.txt", b"x", {})),
        "zip absolute": zipped(("/evil.txt", b"x", {})),
        "zip link": zipped(("top/link", b"/etc/passwd", link)),
        "zip device": zipped(("top/dev", b"", {"external_attr": stat.S_IFCHR << 16})),
        "zip same name in another case": zipped(("top/A.txt", b"again", {})),
        "zip NUL in a name": patched(b"top/evil.txt", b"top/ev\0l.txt"),
        "zip wrong checksum": lambda: zip_of(GOOD).replace(
            struct.pack("<I", __import__("zlib").crc32(b"hello")), b"\1\2\3\4"
        ),
        "zip cut": lambda: zip_of(GOOD)[:-30],
    }


class TestArchives:
    @pytest.mark.parametrize("name", list(hostile()))
    def test_hostile_archives_leave_nothing(self, tmp_path: Path, name: str) -> None:
        target = tmp_path / "a" / "target"
        target.mkdir(parents=True)
        archive = tmp_path / "archive"
        archive.write_bytes(hostile()[name]())
        with pytest.raises(DataError, match="refused"):
            unpack(archive, target, "top")
        assert names(target) == []
        assert names(tmp_path / "a") == ["target"]
        assert names(tmp_path) == ["a", "archive"]

    @pytest.mark.parametrize("made", [tar_of, lambda m: tar_of(m, "w:gz"), lambda m: tar_of(m, "w:xz"), zip_of])
    def test_good_archives(self, tmp_path: Path, made: Callable[[Members], bytes]) -> None:
        (tmp_path / "archive").write_bytes(made([("./top/d.txt", b"", {}), *GOOD] if made is not zip_of else GOOD))
        (tmp_path / "target").mkdir()
        unpack(tmp_path / "archive", tmp_path / "target", "top")
        assert (tmp_path / "target" / "b" / "c.txt").read_bytes() == b"there"
        with pytest.raises(DataError, match="would be overwritten"):
            unpack(tmp_path / "archive", tmp_path / "target", "top")

    @pytest.mark.parametrize("made", [lambda m: tar_of(m, "w:gz"), zip_of])
    @pytest.mark.parametrize(("cap", "value"), [("MAX_BYTES", 1_000_000), ("MAX_ENTRIES", 3)])
    def test_caps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Members], bytes], cap: str, value: int
    ) -> None:
        bomb: Members = [(f"top/{i}", bytes(300_000), {}) for i in range(4)]
        (tmp_path / "archive").write_bytes(made(bomb))
        (tmp_path / "target").mkdir()
        monkeypatch.setattr(_unpack, cap, value)
        with pytest.raises(DataError, match="holds more than"):
            unpack(tmp_path / "archive", tmp_path / "target", "top")
        assert names(tmp_path / "target") == []

    def test_a_zip_with_an_endless_list(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "archive").write_bytes(zip_of(GOOD))
        monkeypatch.setattr(_unpack, "MAX_DIRECTORY", 50)
        with pytest.raises(DataError, match="too long a list"):
            unpack(tmp_path / "archive", tmp_path, "top")

    @pytest.mark.faults
    def test_a_quarter_of_a_million_entries(self, tmp_path: Path) -> None:
        """Refused by its list, before the first file is written."""
        with gzip.open(tmp_path / "archive", "wb", 1) as file:
            for i in range(250_000):
                file.write(tarfile.TarInfo(f"top/{i}").tobuf())
        target = tmp_path / "target"
        target.mkdir()
        start = time.monotonic()
        with pytest.raises(DataError, match="holds more than"):
            unpack(tmp_path / "archive", target, "top")
        assert time.monotonic() - start < 60
        assert names(target) == []
