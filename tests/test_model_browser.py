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
from PIL import Image

from randpath.data.dataset import Arrays
from tests.test_model_onnx import items, shaken

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
    const image = await createImageBitmap(await (await fetch("picture.png")).blob());
    return await classify(image, ["a", "b", "c", "d", "e", "f", "g"], 16);
  })));
  await browser.close();
})().catch(error => { console.error(error); process.exit(1); });
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        pass


def test_the_javascript_of_the_docs_gives_the_same_probabilities(tmp_path):
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        pytest.skip("there is no chromium or no node on this machine: apt-get install chromium nodejs")
    for package in ("playwright-core", "onnxruntime-web"):
        if not (MODULES / package).is_dir():
            pytest.skip(f"the npm package {package} is not in {MODULES}: npm install playwright-core onnxruntime-web")
    from randpath.model.onnx import to_onnx

    model = shaken("compact", (16, 16, 3), "peak", 8)
    picture = items((16, 16, 3), 1)[0]
    (tmp_path / "birds.onnx").write_bytes(to_onnx(model))
    Image.fromarray(picture).save(tmp_path / "picture.png")
    for file in (MODULES / "onnxruntime-web" / "dist").glob("ort*"):
        if file.name == "ort.min.js" or "wasm" in file.name:
            shutil.copy(file, tmp_path)
    code = (ROOT / "docs" / "deploy.md").read_text().split("```javascript\n", 1)[1].split("```", 1)[0]
    assert len(code.strip().splitlines()) <= 13
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
    answer = json.loads(process.stdout)
    expected = model.probabilities(Arrays(picture[None], np.zeros(1, np.int64)))[0]
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-4)
    assert answer["name"] == "abcdefg"[int(expected.argmax())]
