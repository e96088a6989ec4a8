"use strict";
// A slider over frames: one figure of its box is shown.
for (const box of document.querySelectorAll(".frames")) {
  const slider = box.querySelector("input"), frames = [...box.querySelectorAll("figure")];
  if (slider) slider.addEventListener("input", () => {
    frames.forEach((frame, i) => { frame.hidden = i !== slider.value - 1; });
    box.querySelector("output").textContent = frames[slider.value - 1].dataset.name;
  });
}
// A matrix in several orders, read by pointing at its cells.
for (const box of document.querySelectorAll(".views")) {
  const { names, counts } = JSON.parse(document.getElementById(box.dataset.of).textContent);
  const views = [...box.querySelectorAll("figure")], readout = box.querySelector(".readout");
  const select = box.querySelector("select");
  if (select) select.addEventListener("input", () => {
    views.forEach((view, i) => { view.hidden = i !== select.selectedIndex; });
  });
  for (const view of views) {
    const svg = view.querySelector("svg"), order = JSON.parse(view.dataset.order);
    const [left, top, wide, tall] = svg.dataset.grid.split(" ").map(Number);
    const point = event => {
      const box = svg.getBoundingClientRect(), unit = svg.viewBox.baseVal.width / box.width;
      const column = Math.floor(((event.clientX - box.left) * unit - left) / wide);
      const row = Math.floor(((event.clientY - box.top) * unit - top) / tall);
      if (!(row >= 0 && row < order.length && column >= 0 && column < order.length)) return;
      const t = order[row], p = order[column], all = counts[t].reduce((a, b) => a + b, 0);
      readout.textContent = `${names[t]} ${t === p ? "recognised" : `taken for ${names[p]}`}: ${counts[t][p]} of ${all}`;
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
  }
}
// A table is sorted by the column whose head is pressed: numbers downwards first.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("th")], body = table.tBodies[0];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const cell = row => row.cells[column].textContent.trim();
    const rows = [...body.rows], numeric = rows.every(row => cell(row) === "" || !isNaN(parseFloat(cell(row))));
    const before = head.getAttribute("aria-sort");
    const up = before ? before === "descending" : !numeric;
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => parseFloat(cell(row).replaceAll(",", ""));
    const compare = numeric ? (a, b) => value(a) - value(b) : (a, b) => cell(a).localeCompare(cell(b));
    rows.sort((a, b) => up ? compare(a, b) : compare(b, a)).forEach(row => body.append(row));
  }));
}
// A live page asks its server whether there is more to see.
if (document.body.dataset.live) setInterval(async () => {
  try {
    const state = await (await fetch("state", { cache: "no-store" })).text();
    if (state !== document.body.dataset.live) location.reload();
  } catch { /* the server has left; the page stays as it is */ }
}, 2000);
