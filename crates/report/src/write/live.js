// Shows the live values of a running run, from server-sent events.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const section = at("live");
  const most = new Map();
  const strip = [];
  const STRIP_SECONDS = 300;
  const duration = (ns) => {
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
      if (ns >= size) return `${(ns / size).toPrecision(3)} ${unit}`;
    }
    return `${ns} ns`;
  };
  const cell = (row, text, kind) => {
    const element = row.appendChild(document.createElement("td"));
    element.textContent = text;
    element.className = kind;
  };
  const draw = () => {
    const log = (ns) => Math.log10(Math.max(ns, 100));
    const top = Math.max(...strip.map(log), 3);
    const points = strip.map((ns, i) => `${600 - 2 * (strip.length - i)},${78 - 76 * (log(ns) - 2) / (top - 2)}`);
    at("live-line").setAttribute("points", points.join(" "));
  };
  const show = (value) => {
    at("live-stage").textContent = `${value.what} in ${value.cell}, repeat ${value.repeat}; ` +
      `${value.done} of ${value.total} repeats are done`;
    at("live-progress").value = value.total ? (value.done + value.part) / value.total : 0;
    const body = at("live-cpus");
    body.replaceChildren();
    for (const { cpu, samples, max_ns } of value.cpus) {
      const row = body.appendChild(document.createElement("tr"));
      cell(row, cpu, "");
      cell(row, samples.toLocaleString("en"), "number");
      cell(row, duration(max_ns), "number");
    }
    const key = Math.floor(Date.now() / 1000);
    const now = Math.max(0, ...value.cpus.map((it) => it.newest_max_ns));
    if (most.has(key)) strip.pop();
    most.set(key, Math.max(most.get(key) ?? 0, now));
    strip.push(most.get(key));
    if (strip.length > STRIP_SECONDS) strip.shift();
    if (most.size > 2 * STRIP_SECONDS) most.delete(most.keys().next().value);
    draw();
  };
  const source = new EventSource(section.dataset.events);
  source.addEventListener("value", (event) => show(JSON.parse(event.data)));
  source.addEventListener("end", () => { source.close(); location.reload(); });
  source.addEventListener("refused", (event) => { source.close(); at("live-stage").textContent = event.data; });
})();
