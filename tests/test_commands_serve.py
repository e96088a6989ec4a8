"""`randpath serve`: in process, as a process of its own, under load while new versions come, and in a real browser."""

import base64
import concurrent.futures
import io
import json
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from randpath.commands.serve import serve
from randpath.errors import UsageError
from randpath.model.asking import Asker
from tests.commands import ran, run, run_json, start
from tests.pictures import encoded, pixels
from tests.school import learn, pictures, tiny
from tests.served import VISIT, Client, visit

web = pytest.importorskip("randpath.commands.web", reason="the extra `serve` is not installed")


@pytest.fixture(autouse=True)
def _tiny():
    with tiny():
        yield


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("served")
    with tiny():
        learn(place / "model", pictures(place / "ab", "a", "b", "c", count=8))
    return place


@pytest.fixture
def model(two, tmp_path) -> Path:
    return Path(shutil.copytree(two / "model", tmp_path / "model"))


@pytest.fixture
def client(model):
    asker = Asker(model, pytest.fail)
    yield Client(web.application(asker), base_url="http://127.0.0.1:8000")
    asker.close()


def test_predict_answers_as_the_command_does(client, model, two):
    file = two / "ab" / "a" / "0.png"
    told = run_json("predict", model, file, "--top", 3)["predictions"][0]
    answer = client.post("/predict", params={"top": 3, "file": str(file)}, content=file.read_bytes())
    assert answer.status_code == 200
    found = answer.json()
    assert found["version"] == 1
    one = found["predictions"][0]
    assert set(one) == set(told)
    assert (one["file"], one["label"], one["unknown"]) == (told["file"], told["label"], told["unknown"])
    assert one["confidence"] == pytest.approx(told["confidence"], abs=1e-5)
    assert set(client.post("/predict", content=file.read_bytes()).json()["predictions"][0]) == {
        "file", "label", "confidence", "unknown",
    }  # fmt: skip


def test_the_nearest_stored_picture_of_a_stored_picture_is_itself(client, two):
    shown = {}
    for file in sorted((two / "ab" / "b").iterdir()):
        one = client.post("/predict", params={"nearest": 1}, content=file.read_bytes()).json()["predictions"][0]
        head, _, data = one["nearest"]["picture"].partition(",")
        assert head == "data:image/png;base64"
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        shown[file.name] = np.array_equal(np.asarray(image), np.asarray(Image.open(file)))
    assert sum(shown.values()) >= 7  # but for the one that is held out


def test_page_health_and_description(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert client.get("/health").json() == {"ok": True, "version": 1, "classes": 3}
    described = client.get("/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    assert set(described["paths"]) == {"/predict", "/health"}


@pytest.mark.parametrize(
    ("body", "query", "status", "says"),
    [
        (b"", {}, 422, "empty"),
        (b"hello", {}, 422, "contents"),
        (b"\x89PNG\r\n\x1a\n", {}, 422, "header"),
        (encoded(Image.new("1", (10_000, 6_000)), "png"), {}, 413, "megapixels"),
        (b"x" * 20_000_001, {}, 413, "bytes"),
        (encoded(pixels(1)), {"top": "0"}, 400, "top"),
        (encoded(pixels(1)), {"top": "many"}, 400, "top"),
    ],
    ids=["empty", "text", "cut", "pixels", "bytes", "none", "word"],
)
def test_what_is_no_question_ends_in_a_sentence(client, body, query, status, says):
    answer = client.post("/predict", params=query, content=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "where", "kept", "next"}
    assert says in answer.json()["error"]


def test_a_body_without_its_length_is_cut_off_too(client):
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 1_000_000

    answer = client.post("/predict", content=parts())
    assert answer.status_code == 413


def test_only_this_machine_and_its_own_pages_may_ask(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil:8000", ""):
        assert client.get("/health", headers={"host": host}).status_code == 403, host
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    assert client.post("/predict", headers={"origin": "http://evil.example"}, content=b"").status_code == 403
    assert client.get("/health", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


def test_elsewhere_a_token_is_needed(model, monkeypatch):
    monkeypatch.delenv("RANDPATH_TOKEN", raising=False)
    with pytest.raises(UsageError, match="token"):
        serve(model, host="0.0.0.0")
    monkeypatch.setenv("RANDPATH_TOKEN", "short")
    assert ran("serve", model, "--host", "0.0.0.0").returncode == 64
    asker = Asker(model, pytest.fail)
    client = Client(web.application(asker, "a secret of some length"), base_url="http://birds.example")
    picture = encoded(pixels(1))
    for given in (None, "Bearer x", "Bearer ", "a secret of some lengt", "Bearer ä"):
        headers = {} if given is None else {"authorization": given.encode()}
        assert client.post("/predict", content=picture, headers=headers).status_code == 401
    headers = {"authorization": "Bearer a secret of some length"}
    assert client.post("/predict", content=picture, headers=headers).status_code == 200
    assert client.get("/health").status_code == 200
    assert client.get("/").status_code == 200
    asker.close()


def test_questions_that_wait_are_answered_together(model, monkeypatch):
    sizes = []
    answered = Asker._answered
    monkeypatch.setattr(Asker, "_answered", lambda self, batch: sizes.append(len(batch)) or answered(self, batch))
    asker = Asker(model, pytest.fail)
    found = [asker.ask(encoded(pixels(i)), 1 + i % 3) for i in range(40)]
    answers = [future.result(timeout=30) for future in found]
    asker.close()
    assert max(sizes) > 5
    assert [len(one.get("top", [0])) for one in answers] == [1 + i % 3 for i in range(40)]
    alone = Asker(model, pytest.fail)
    for i in (0, 13, 39):
        one = alone.ask(encoded(pixels(i)), 1).result(timeout=30)
        assert one["label"] == answers[i]["label"]
        assert one["confidence"] == pytest.approx(answers[i]["confidence"], abs=1e-5)
    alone.close()


def test_without_the_extra_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "randpath.commands.web", None)
    told = ran("serve", model)
    assert told.returncode == 69
    assert "randpath[serve]" in told.stderr
    assert ran("serve", model / "nothing").returncode == 65


def under_load(model: Path, folder: Path, questions: int, clients: int, more: list[Path]) -> dict[str, object]:
    """Ask a real server while `learn` commits; every answer must be that of the version it names."""
    process = start("serve", model, "--port", 0)
    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.search(r"http://\S+", line)
    assert address, process.stderr.read() if process.stderr else ""
    files = sorted(folder.rglob("*.png"))

    def ask(i: int) -> tuple[Path, int, dict]:
        file = files[i % len(files)]
        answer = httpx.post(f"{address[0]}predict", content=file.read_bytes(), timeout=60)
        assert answer.status_code == 200, answer.text
        return file, answer.json()["version"], answer.json()["predictions"][0]

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        waiting = [pool.submit(ask, i) for i in range(questions)]
        for one in more:
            learn(model, one, "--keep", 9)
        found = [future.result() for future in waiting]
    seconds = time.monotonic() - began
    time.sleep(2)
    newest = httpx.get(f"{address[0]}health", timeout=60).json()["version"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said, said
    assert newest == 1 + len(more)
    return {"found": found, "seconds": seconds, "code": process.returncode}


def wrong_answers(model: Path, found: list[tuple[Path, int, dict]]) -> int:
    from randpath.data.dataset import Arrays
    from randpath.model import versions
    from randpath.model.answers import answers
    from randpath.model.model import Model

    wrong = 0
    for number in {version for _, version, _ in found}:
        loaded = Model.restore(versions.load(model, number))
        own = [(file, one) for file, version, one in found if version == number]
        items = np.stack([np.asarray(Image.open(file).convert("RGB")) for file, _ in own])
        for (_, one), told in zip(own, answers(loaded, Arrays(items, np.zeros(len(own), np.int64)))):
            wrong += one["label"] != told["label"] or abs(one["confidence"] - told["confidence"]) > 1e-5
    return wrong


def test_a_real_server_takes_up_new_versions_and_loses_nothing(model, two, tmp_path):
    done = under_load(model, two / "ab", 40, 4, [pictures(tmp_path / "d", "d")])
    assert len(done["found"]) == 40
    assert wrong_answers(model, done["found"]) == 0
    assert done["code"] in (0, 130)


@pytest.mark.faults
def test_a_thousand_requests_from_eight_clients_while_learn_commits(model, two, tmp_path):
    more = [pictures(tmp_path / name, name) for name in "defgh"]
    done = under_load(model, two / "ab", 1000, 8, more)
    assert len(done["found"]) == 1000
    assert wrong_answers(model, done["found"]) == 0
    began = time.monotonic()
    run("predict", model, two / "ab" / "a" / "0.png")
    alone = time.monotonic() - began
    print(json.dumps({"requests per second": 1000 / done["seconds"], "one predict, seconds": alone}))


def test_the_page_in_a_browser(model, two):
    asker_file = two / "ab" / "a" / "0.png"
    process = start("serve", model, "--port", 0)
    assert process.stdout is not None
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address
    try:
        found = visit(VISIT, address[0], str(asker_file), str(two / "ab" / "b" / "1.png"))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert found["heard"] == []
    assert len(found["names"]) == 3
    assert found["names"][0][0] in "abc"
    assert re.fullmatch(r"\d+\.\d %", found["names"][0][2])
    assert found["bars"] == sorted(found["bars"], reverse=True)
    assert found["nearest"].startswith("the nearest stored picture: ")
    assert found["dropped"] in ("a", "b", "c", "Perhaps unknown: unlike what was learned")
    assert found["bad"] != ""
    assert found["sideways"] <= 0
