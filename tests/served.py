"""A served page in a headless Chromium: Debian's chromium, node and playwright-core, as test_report_browser.py says."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

MODULES = Path(os.environ.get("RANDPATH_NODE_MODULES", Path(__file__).parents[1] / "node_modules"))
VISIT = """
const { chromium } = require("playwright-core");
const fs = require("fs");
(async () => {
  const [executablePath, address, first, second] = process.argv.slice(1);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 390, height: 800 } });
  const heard = [], found = {};
  page.on("console", message => heard.push("console: " + message.text()));
  page.on("pageerror", error => heard.push("error: " + error));
  page.on("request", request => {
    if (!/^(data:image|blob:)/.test(request.url()) && !request.url().startsWith(address)) heard.push(request.url());
  });
  await page.goto(address);
  const answered = () => page.waitForFunction(() => !["", "…"].includes(document.getElementById("said").textContent));
  await page.setInputFiles("input[type=file]", first);
  await answered();
  found.names = await page.$$eval("#names tr", rows => rows.map(r => [...r.cells].map(c => c.textContent)));
  found.bars = await page.$$eval("#names progress", bars => bars.map(b => b.value));
  found.nearest = await page.textContent("#nearest");
  const bytes = [...fs.readFileSync(second)];
  await page.evaluate(bytes => {
    const carried = new DataTransfer();
    carried.items.add(new File([new Uint8Array(bytes)], "x.png", { type: "image/png" }));
    dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
  }, bytes);
  await answered();
  found.dropped = await page.textContent("#said");
  const before = heard.length;
  await page.evaluate(() => {
    const carried = new DataTransfer();
    carried.items.add(new File(["no picture"], "x.png", { type: "image/png" }));
    dispatchEvent(new ClipboardEvent("paste", { clipboardData: carried }));
  });
  await answered();
  heard.length = before;  // the browser logs the status 422, and the picture that is none
  found.bad = await page.textContent("#said");
  found.sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await browser.close();
  console.log(JSON.stringify({ heard, ...found }));
})().catch(error => { console.error(error); process.exit(1); });
"""


class Client:
    """Asks an application in this process, without a socket."""

    def __init__(self, app: Any, base_url: str):
        self.app, self.base_url = app, base_url

    def get(self, path: str, **more: Any) -> httpx.Response:
        return asyncio.run(self._ask("GET", path, **more))

    def post(self, path: str, **more: Any) -> httpx.Response:
        return asyncio.run(self._ask("POST", path, **more))

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=self.base_url) as client:
            return await client.request(method, path, **more)


def visit(script: str, *arguments: str) -> dict[str, Any]:
    """What a script, given a chromium and these arguments, prints as JSON."""
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        pytest.skip("there is no chromium or no node on this machine: apt-get install chromium nodejs")
    if not (MODULES / "playwright-core").is_dir():
        pytest.skip(f"the npm package playwright-core is not in {MODULES}: npm install playwright-core")
    done = subprocess.run(
        [node, "-e", script, chromium, *arguments],
        env={**os.environ, "NODE_PATH": str(MODULES)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
