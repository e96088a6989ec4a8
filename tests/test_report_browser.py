"""Pages in a real headless browser: nothing is fetched or logged, slider and sorting work, hostile names are inert.

It needs Debian's chromium, node and the npm package playwright-core, as tests/test_model_browser.py says.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from randpath.commands.report import page_of
from randpath.report.live import server
from tests.made_runs import made_run

ROOT = Path(__file__).parents[1]
MODULES = Path(os.environ.get("RANDPATH_NODE_MODULES", ROOT / "node_modules"))
VISIT = """
const { chromium } = require("playwright-core");
(async () => {
  const [executablePath, code, ...files] = process.argv.slice(1);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const answers = [];
  for (const file of files.map(file => file.startsWith("http:") ? file : "file://" + file)) {
    const page = await browser.newPage({ viewport: { width: 390, height: 800 } });
    const heard = [];
    page.on("console", message => heard.push("console: " + message.text()));
    page.on("pageerror", error => heard.push("error: " + error));
    page.on("dialog", dialog => { heard.push("dialog: " + dialog.message()); dialog.dismiss(); });
    page.on("request", request => {
      if (!request.url().startsWith(file) && !request.url().startsWith("data:image/png")) heard.push(request.url());
    });
    const began = Date.now();
    await page.goto(file);
    await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    const ready = Date.now() - began;
    answers.push({ heard, ready, found: await (new Function("page", `return (${code})(page)`))(page) });
    await page.close();
  }
  await browser.close();
  console.log(JSON.stringify(answers));
})().catch(error => { console.error(error); process.exit(1); });
"""

HOSTILE = [
    "<script>window.hit=1</script>", "</script><script>window.hit=1</script>", "</style><script>window.hit=1</script>",
    "</title><script>window.hit=1</script>", '"><img src=x onerror=window.hit=1>', "'><svg onload=window.hit=1>",
    "<img src=http://example.com/x.png>", "<iframe srcdoc='<script>parent.hit=1</script>'>", "</svg><b>out</b>",
    "<base href=http://example.com/>", "<meta http-equiv=refresh content='0;url=http://example.com'>",
    "<link rel=stylesheet href=http://example.com/a.css>", "javascript:window.hit=1",
    "<a href=javascript:window.hit=1>x</a>",
    "' onmouseover='window.hit=1", '" onfocus="window.hit=1" autofocus="', "{{ 7 * 7 }}{% raw %}", "${window.hit=1}`",
    "<!-- ", "]]><script>window.hit=1</script>", "&lt;script&gt;&#x3c;b&#x3e;", "\\u003cscript\\u003e", "__proto__",
    "\u202eevil\u202c \u2028 \u0000 \ud7ff \ufeff", "x" * 3000,
]  # fmt: skip


def visit(files: list[Path | str], code: str) -> list[dict]:
    """What `code`, an asynchronous function of the page, finds in each file or address, and what the browser heard."""
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        pytest.skip("there is no chromium or no node on this machine: apt-get install chromium nodejs")
    if not (MODULES / "playwright-core").is_dir():
        pytest.skip(f"the npm package playwright-core is not in {MODULES}: npm install playwright-core")
    process = subprocess.run(
        [node, "-e", VISIT, chromium, code, *map(str, files)],
        env={**os.environ, "NODE_PATH": str(MODULES)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def written(file: Path, *runs: Path) -> Path:
    file.write_text(page_of(runs), encoding="utf-8")
    return file


def test_slider_orders_sorting_and_readout_work_on_a_phone(tmp_path):
    file = written(tmp_path / "page.html", made_run(tmp_path / "run", tasks=5))
    code = """async page => {
      const shown = () => page.$$eval(".frames figure", all => all.map(f => !f.hidden).indexOf(true) + 1);
      const first = column => page.$eval("#confusion tbody tr", (row, c) => row.cells[c].textContent, column);
      const found = { svgs: await page.$$eval("svg.figure", all => all.length), frame: await shown() };
      await page.locator(".frames input").fill("2");
      found.moved = await shown();
      found.named = await page.textContent(".frames output");
      found.most = await first(2);
      await page.click("#confusion th:nth-child(3)");
      await page.click("#confusion th:nth-child(3)");
      found.least = await first(2);
      await page.click("#confusion th:nth-child(1)");
      found.names = await page.$$eval("#confusion tbody tr", rows => rows.map(r => r.cells[0].textContent));
      await page.selectOption("#confusion select", "worst class first");
      found.view = await page.$eval(".views figure:not([hidden])", f => f.dataset.name);
      const box = await page.locator(".views figure:not([hidden]) svg").boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      found.readout = await page.textContent(".readout");
      found.sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      found.smallest = await page.$$eval(".grid svg.figure text", all =>
        Math.min(...all.map(text => {
          const svg = text.ownerSVGElement, size = parseFloat(getComputedStyle(text).fontSize);
          return size * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        }).filter(size => size > 0)));
      await page.emulateMedia({ media: "print", colorScheme: "dark" });
      found.paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      found.pdf = (await page.pdf()).length;
      return found;
    }"""
    answer = visit([file], code)[0]
    assert answer["heard"] == []
    found = answer["found"]
    assert found["svgs"] > 15
    assert (found["frame"], found["moved"], found["named"]) == (5, 2, "task 2")
    assert int(found["most"]) > int(found["least"])
    assert found["names"] == sorted(found["names"])
    assert found["view"] == "worst class first"
    assert re.fullmatch(r"class \d (recognised|taken for class \d): \d+ of 20", found["readout"])
    assert found["sideways"] <= 0  # nothing to scroll sideways for
    assert found["smallest"] > 8  # pixels of a letter, on a phone
    assert found["paper"] == "rgb(255, 255, 255)"  # printed black on white, also by those who read white on black
    assert found["pdf"] > 10_000


def test_a_live_page_renews_itself(tmp_path):
    run = made_run(tmp_path / "run", learned=1)
    more = made_run(tmp_path / "more", learned=2)

    def go_on():
        for file in ("metrics.jsonl", "epochs.jsonl", "times.jsonl"):
            (more / file).replace(run / file)

    later = threading.Timer(3, go_on)

    def page(state):
        text = page_of((run,), state)
        if not later.is_alive() and (more / "metrics.jsonl").exists():  # when the first page is on its way
            later.start()
        return text

    with server((run,), page, 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        try:
            code = """async page => {
              const before = await page.textContent(".banner");
              await page.waitForFunction(() => document.querySelector(".banner").textContent.includes("2 of 3"), null,
                { timeout: 60000 });
              return before;
            }"""
            answer = visit([f"http://127.0.0.1:{serving.server_port}/"], code)[0]
        finally:
            later.cancel()
            serving.shutdown()
    assert "1 of 3 tasks" in answer["found"]
    assert answer["heard"] == []


def test_hostile_names_are_inert_in_every_field(tmp_path):
    files = []
    for i, name in enumerate(HOSTILE):
        run = made_run(
            tmp_path / f"run{i}", names=[name, "b", f"{name} ", "d"], tasks=2, learned=1, recipe=name, dataset=name,
            command=name, environment={"machine": name}, options={name or "x": name},
        )  # fmt: skip
        files.append(written(tmp_path / f"{i}.html", run))
    both = written(tmp_path / "both.html", tmp_path / "run0", tmp_path / "run4")
    code = """async page => page.evaluate(() => ({
      hit: window.hit, title: document.title, text: document.body.textContent,
      odd: [...document.querySelectorAll("iframe, base, link, a, b, svg svg, object, embed, form")].filter(
        e => !e.closest(".tiles")).map(e => e.outerHTML),
      scripts: document.scripts.length, metas: document.querySelectorAll("meta").length,
      handlers: [...document.querySelectorAll("*")].flatMap(e => [...e.attributes]).filter(
        a => a.name.startsWith("on")).length,
    }))"""
    for name, answer in zip([*HOSTILE, "two runs"], visit([*files, both], code)):
        found = answer["found"]
        assert answer["heard"] == [], name
        assert "hit" not in found, name  # JSON leaves out what is undefined
        assert found["odd"] == [], name
        assert (found["scripts"], found["metas"], found["handlers"]) == (1 if name == "two runs" else 2, 4, 0), name
        assert "\u0000" in name or name == "two runs" or found["text"].count(name) >= 5, name


def test_a_run_of_twenty_tasks_and_a_hundred_classes_is_a_page_under_5_mb_ready_in_2_s(tmp_path):
    names = [f"a class with a name {c}" for c in range(100)]
    run = made_run(tmp_path / "run", tasks=20, names=names, epochs=50, layers=9)
    file = written(tmp_path / "page.html", run)
    assert file.stat().st_size < 5_000_000
    answers = visit([file, file, file], "async page => page.$$eval('svg.figure', all => all.length)")
    assert answers[0]["heard"] == []
    assert answers[0]["found"] > 30
    assert min(answer["ready"] for answer in answers) < 2000
