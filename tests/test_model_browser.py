"""docs/deploy.md's JavaScript, run by onnxruntime-web in a real headless browser.

It needs Debian's chromium, node, and two npm packages: `npm install playwright-core onnxruntime-web` in the checkout,
or anywhere, with RANDPATH_NODE_MODULES naming the node_modules directory.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from randpath.commands.reading import open_model
from randpath.data.dataset import Arrays
from randpath.data.decode import decode
from randpath.model.model import Model
from tests.commands import run_json
from tests.pictures import put, small_network
from tests.school import tiny
from tests.test_model_onnx import shaken

ROOT = Path(__file__).parents[1]
MODULES = Path(os.environ.get("RANDPATH_NODE_MODULES", ROOT / "node_modules"))
VISIT = """
const { chromium } = require("playwright-core");
(async () => {
  const browser = await chromium.launch({ executablePath: process.argv[1], args: ["--no-sandbox"] });
  const page = await browser.newPage();
  page.on("console", message => console.error(message.text()));
  page.on("request", request => {
    if (!request.url().startsWith(process.argv[2])) console.error("asks", request.url());
  });
  await page.goto(process.argv[2] + "/index.html");
  console.log(JSON.stringify(await page.evaluate(async () => {
    const answers = [];
    for (const name of ["exact", "large", "tall", "small"]) {
      const image = await createImageBitmap(await (await fetch(name + ".png")).blob());
      answers.push(await classify(image, ["a", "b", "c", "d", "e", "f", "g"], 16));
    }
    return answers;
  })));
  await browser.close();
})().catch(error => { console.error(error); process.exit(1); });
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        pass


SIZES = {"exact": (16, 16), "large": (75, 130), "tall": (61, 24), "small": (9, 12)}  # h, w


def with_a_start(folder: Path) -> Model:
    """A model behind a small start, which takes 16 x 16 too."""
    pytest.importorskip("onnxruntime", reason="pip install 'randpath[start]'")
    (folder / "small.onnx").write_bytes(small_network())
    for c, name in enumerate("abcdefg"):
        for i in range(6):
            put(folder / "pictures" / name / f"{i}.png", f"{c} {i}", 16, 16)
    with tiny():
        run_json("learn", folder / "m", folder / "pictures", "--start", folder / "small.onnx", "--epochs", 1)
    return open_model(folder / "m")[1]


@pytest.mark.parametrize("start", [False, True], ids=["alone", "with a start"])
def test_the_javascript_of_the_docs_gives_the_same_probabilities(tmp_path, start):
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        pytest.skip("there is no chromium or no node on this machine: apt-get install chromium nodejs")
    for package in ("playwright-core", "onnxruntime-web"):
        if not (MODULES / package).is_dir():
            pytest.skip(f"the npm package {package} is not in {MODULES}: npm install playwright-core onnxruntime-web")
    from randpath.model.onnx import to_onnx

    model = with_a_start(tmp_path) if start else shaken("compact", (16, 16, 3), "peak", 8)
    (tmp_path / "birds.onnx").write_bytes(to_onnx(model))
    for name, (h, w) in SIZES.items():
        put(tmp_path / f"{name}.png", name, h, w)
    for file in (MODULES / "onnxruntime-web" / "dist").glob("ort*"):
        if file.name == "ort.min.js" or "wasm" in file.name:
            shutil.copy(file, tmp_path)
    code = (ROOT / "docs" / "deploy.md").read_text().split("```javascript\n", 1)[1].split("```", 1)[0]
    (tmp_path / "index.html").write_text(
        f"<!doctype html><script src='ort.min.js'></script><script>ort.env.wasm.numThreads = 1;\n{code}</script>"
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        process = subprocess.run(
            [node, "-e", VISIT, chromium, f"http://127.0.0.1:{server.server_port}"],
            env={**os.environ, "NODE_PATH": str(MODULES)}, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    assert process.returncode == 0, process.stderr
    assert "asks" not in process.stderr  # nothing is fetched from elsewhere
    for name, answer in zip(SIZES, json.loads(process.stdout), strict=True):
        picture = decode((tmp_path / f"{name}.png").read_bytes(), (16, 16, 3))  # as `predict` sees it
        expected = model.probabilities(Arrays(picture[None], np.zeros(1, np.int64)))[0]
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-4 if name == "exact" else 1e-3)
        assert answer["name"] == "abcdefg"[int(expected.argmax())]
