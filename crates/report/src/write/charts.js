// Draws the charts of a report from the JSON in the page, in the colours of its style sheet.
(() => {
"use strict";
const charts = JSON.parse(document.getElementById("chart-data").textContent);
const data = { span_s: Math.max(...charts.map((c) => c.span_s)), limit_ns: charts[0].limit_ns };
const SERIES_COLOURS = 7;
const DASHES = [undefined, [7, 4], [2, 3], [9, 3, 2, 3]];
const PRINT_WIDTH = 690;
const PRINT_HEIGHT = 0.6;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColour = (index) => colour(`--series-${index % SERIES_COLOURS + 1}`);
const seriesDash = (index) => DASHES[Math.floor(index / SERIES_COLOURS) % DASHES.length];

// ---- texts -----------------------------------------------------------------------------------------------------
const digits = (value) => Number(value.toPrecision(3)).toString();
const scaled = (value, units) => {
  const [factor, unit] = units.find(([least]) => Math.abs(value) >= least * 0.9995) || units[units.length - 1];
  return digits(value / factor) + (unit ? " " + unit : "");
};
const LATENCY_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const COUNT_UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const latency = (ns) => scaled(ns, LATENCY_UNITS);
const count = (n) => scaled(n, COUNT_UNITS);
const exactCount = (n) => n.toLocaleString("en-US");
// As on a clock, as the table of spikes prints it; seconds alone where the whole run is short.
const time = (seconds) => {
  if (data.span_s < 120) return digits(seconds) + " s";
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
};
const rateText = (unit) => (value) => unit === "bytes_per_s"
  ? scaled(value, [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]])
  : scaled(value, COUNT_UNITS) + " " + unit.replace(/_per_s$/, "/s");

// ---- axes ------------------------------------------------------------------------------------------------------
const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const linearSteps = (min, max, most, clock) => {
  const raw = (max - min) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const candidates = [1, 2, 5, 10].map((m) => m * power);
  const fits = (s) => s >= raw * 0.999;
  const step = (clock && CLOCK_STEPS.find(fits)) || candidates.find(fits) || raw;
  const ticks = [];
  for (let k = Math.ceil(min / step - 1e-9); k * step <= max * (1 + 1e-12); k++) ticks.push(k * step);
  return ticks;
};
// As many of 1, 2, 5 of each power of ten as have room; every power, or every second, third… one otherwise.
const logSteps = (min, max, pixels, room) => {
  const perDecade = pixels / Math.log10(max / min);
  const [mantissas] = [[[1, 2, 5], 0.301], [[1, 3], 0.477], [[1], 1]].find(([, gap]) => gap * perDecade >= room) || [[1]];
  const every = Math.max(1, Math.ceil(room / perDecade));
  const ticks = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) {
    if (((power % every) + every) % every) continue;
    for (const m of mantissas) {
      const tick = m * 10 ** power;
      if (tick >= min * 0.9999 && tick <= max * 1.0001) ticks.push(Number(tick.toPrecision(12)));
    }
  }
  return ticks.length >= 2 ? ticks : linearSteps(min, max, pixels / room);
};
const axis = (text, room, log, more) => Object.assign({
  stroke: colour("--soft"), font: FONT, gap: 6,
  grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 5 },
  filter: (u, ticks) => ticks,
  values: (u, ticks) => ticks.map(text),
  splits: (u, index, min, max) => {
    const pixels = (u.axes[index].side % 2 ? u.bbox.height : u.bbox.width) / devicePixelRatio;
    return log ? logSteps(min, max, pixels || 400, room)
      : linearSteps(min, max, (pixels || 400) / room, text === time && data.span_s >= 120);
  },
}, more);
const leftAxis = (text, log) => axis(text, 26, log, { size: 66 });

// ---- shared parts ----------------------------------------------------------------------------------------------
const SYNC = uPlot.sync("time");
const printing = () => document.documentElement.classList.contains("printing");
const shape = (holder, height) => ({
  width: printing() ? PRINT_WIDTH : Math.max(holder.clientWidth, 260),
  height: printing() ? height * PRINT_HEIGHT : height, pxAlign: 1, padding: [14, 14, 0, 0],
  legend: { markers: { width: 0, fill: (u, i) => u.series[i].stroke(u, i) } },
  hooks: { drawClear: [(u) => { u.taken = []; }], draw: [] },
});
// The first row in which a label from `left` to `right` covers no other one.
const freeRow = (u, left, right) => {
  let row = 0;
  while (u.taken.some(([other, from, to]) => other === row && from < right && left < to)) row++;
  u.taken.push([row, left, right]);
  return row;
};
const cellSeries = (entry, label, value, more) => Object.assign({
  label, stroke: seriesColour(entry.cell), dash: seriesDash(entry.cell), width: 1.6, pxAlign: 0,
  value: (u, v) => v == null ? "–" : value(v), points: { show: false },
}, more);
// A dashed line with a label; `scale` says along which axis `at` lies.
const marker = (u, scale, at, text, ink, left) => {
  const { min, max } = u.scales[scale];
  if (at < min || at > max) return;
  const { ctx, bbox } = u, dpr = devicePixelRatio, place = Math.round(u.valToPos(at, scale, true));
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = ink;
  ctx.lineWidth = dpr;
  ctx.setLineDash([5 * dpr, 4 * dpr]);
  ctx.font = FONT.replace("12px", `${11 * dpr}px`);
  ctx.beginPath();
  if (scale === "x") {
    ctx.moveTo(place, bbox.top); ctx.lineTo(place, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(text).width, right = place + wide + 8 * dpr < bbox.left + bbox.width;
    const from = right ? place + 4 * dpr : place - 4 * dpr - wide, line = 13 * dpr;
    const top = bbox.top + 2 * dpr + line * freeRow(u, from, from + wide + 3 * dpr);
    // The next line may be nearer than the text is long.
    ctx.fillStyle = colour("--paper");
    ctx.fillRect(from - dpr, top - dpr, wide + 2 * dpr, line);
    ctx.fillStyle = ink;
    ctx.textAlign = "left"; ctx.textBaseline = "top";
    ctx.fillText(text, from, top);
    ctx.beginPath();
  } else {
    ctx.moveTo(bbox.left, place); ctx.lineTo(bbox.left + bbox.width, place);
    ctx.textAlign = left ? "left" : "right"; ctx.textBaseline = "bottom";
    ctx.fillText(text, left ? bbox.left + 4 * dpr : bbox.left + bbox.width - 4 * dpr, place - 2 * dpr);
  }
  ctx.stroke();
  ctx.restore();
};
const limitMark = (scale, left) => (u) => {
  if (data.limit_ns) marker(u, scale, data.limit_ns, "limit " + latency(data.limit_ns), colour("--bad"), left);
};
const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
// A logarithmic range around the data, so that no point lies on the frame.
const logRange = (min, max, pad) => { const p = Math.max(max / min, 2) ** pad; return [min / p, max * p]; };

// ---- charts ----------------------------------------------------------------------------------------------------
// The complementary distribution: how many samples are at least that late, as a share or as a number.
const drawDistribution = (holder, { edges, series, noise_ns, is_count }) => {
  const curves = series.map(({ counts }) => {
    const total = counts.reduce((a, b) => a + b, 0);
    const values = new Array(edges.length).fill(null);
    let above = 0;
    for (let i = counts.length - 1; i >= 0; i--) {
      above += counts[i];
      if (above) values[i] = is_count ? above : above / total;
    }
    return values;
  });
  const [low, high] = extent(curves.flatMap((curve) => curve.filter((v) => v != null)));
  if (!(high > 0)) return empty(holder);
  const text = is_count ? count : (v) => v == null ? "–" : scaledShare(v);
  const [left, right] = [edges[0], Math.max(edges[edges.length - 1], data.limit_ns <= edges[edges.length - 1] * 3 ? data.limit_ns * 1.3 || 0 : 0)];
  const options = shape(holder, 380);
  Object.assign(options, {
    scales: { x: { time: false, distr: 3, range: (u, a, b) => a === edges[0] && b === edges[edges.length - 1] ? [left, right] : [a, b] },
      y: { distr: 3, range: () => [low / 2, high * 1.5] } },
    axes: [axis(latency, 64, true), leftAxis(is_count ? count : scaledShare, true)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [
      { label: "at least", value: (u, v) => v == null ? "–" : latency(v) },
      ...series.map((entry) => cellSeries(entry, entry.name, text, { paths: uPlot.paths.stepped({ align: -1 }) })),
    ],
  });
  const shade = (u, from, to, ink) => {
    const { min, max } = u.scales.x;
    if (to <= min || from >= max) return;
    const x0 = u.valToPos(Math.max(from, min), "x", true), x1 = u.valToPos(Math.min(to, max), "x", true);
    u.ctx.save();
    u.ctx.globalAlpha = 0.1;
    u.ctx.fillStyle = ink;
    u.ctx.fillRect(x0, u.bbox.top, x1 - x0, u.bbox.height);
    u.ctx.restore();
  };
  options.hooks.drawClear.push((u) => {
    if (data.limit_ns) shade(u, data.limit_ns, Infinity, colour("--bad"));
    if (noise_ns) shade(u, 0, noise_ns, colour("--soft"));
  });
  options.hooks.draw.push(limitMark("x"), (u) => {
    if (noise_ns) marker(u, "x", noise_ns, "noise floor " + latency(noise_ns), colour("--soft"));
  });
  return new uPlot(options, [edges, ...curves], holder);
};
// `99 %`, `0.01 %`, `30 ppm`.
const scaledShare = (v) => v >= 0.99e-4 ? digits(v * 100) + " %" : v >= 0.99e-6 ? digits(v * 1e6) + " ppm" : digits(v * 1e9) + " ppb";

// Bars `[begin, end, value]` of several series on one time axis; uPlot gets their middles, the path draws the bars.
const barChart = (holder, height, entries, text, log, range) => {
  const middles = [...new Set(entries.flatMap((e) => e.bars.map(([a, b]) => (a + b) / 2)))].sort((a, b) => a - b);
  const place = new Map(middles.map((t, i) => [t, i]));
  const rows = entries.map((entry) => {
    const row = new Array(middles.length).fill(null);
    for (const [a, b, value] of entry.bars) row[place.get((a + b) / 2)] = Math.max(value, row[place.get((a + b) / 2)] || 0);
    return row;
  });
  const path = (bars) => (u) => {
    const stroke = new Path2D(), least = 3 * devicePixelRatio;
    let before = null;
    for (const [a, b, value] of bars) {
      let x0 = u.valToPos(a, "x", true), x1 = u.valToPos(b, "x", true);
      const y = u.valToPos(value, "y", true);
      if (x1 - x0 < least) { const middle = (x0 + x1) / 2; x0 = middle - least / 2; x1 = middle + least / 2; }
      if (before !== null && Math.abs(a - before) <= (b - a) * 0.02 + 0.002) stroke.lineTo(x0, y); else stroke.moveTo(x0, y);
      stroke.lineTo(x1, y);
      before = b;
    }
    return { stroke };
  };
  const options = shape(holder, height);
  Object.assign(options, {
    scales: {
      x: { time: false, range: (u, a, b) => a === middles[0] && b === middles[middles.length - 1] ? [0, data.span_s] : [a, b] },
      y: { distr: log ? 3 : 1, range: () => range },
    },
    axes: [axis(time, 64, false), leftAxis(text, log)],
    cursor: { drag: { x: true, y: false }, sync: { key: SYNC.key, setSeries: false }, points: { size: 7 } },
    series: [
      { label: "time", value: (u, v) => v == null ? "–" : time(v) },
      ...entries.map((entry) => cellSeries(entry, entry.name, text, { paths: path(entry.bars), cap: "round" })),
    ],
  });
  return { options, rows: [middles, ...rows] };
};

const CAUSE_COLOUR = { off: "--bad", irq: "--series-5", thread: "--series-4", idle: "--series-1", machine: "--series-2", unknown: "--soft" };
const REACH = 12;
const drawTimeline = (holder, { series: entries, repeats, dots }) => {
  const [low, high] = extent(entries.flatMap((entry) => entry.bars.map((bar) => bar[2])).concat(dots.map((dot) => dot[1])));
  if (!(high > 0)) return empty(holder);
  const top = data.limit_ns && data.limit_ns <= high * 3 ? Math.max(high, data.limit_ns) : high;
  const { options, rows } = barChart(holder, 320, entries, latency, true, logRange(Math.max(low, 1), top, 0.12));
  options.hooks.draw.push(limitMark("y"), (u) => {
    for (const { repeat, at_s } of repeats) marker(u, "x", at_s, String(repeat), colour("--soft"));
    drawDots(u, dots);
  });
  const plot = new uPlot(options, rows, holder);
  follow(plot, holder, dots, (dot) => `${latency(dot[1])}: ${dot[3]}`);
  return plot;
};
// Describes the nearest dot `[x, y, class, text, row]`, and opens its row at a click; arrow keys go from dot to dot, Enter
// opens.
const follow = (plot, holder, dots, text) => {
  const said = document.createElement("p");
  said.className = "note said";
  said.setAttribute("aria-live", "polite");
  said.textContent = "\u00a0";
  holder.append(said);
  const place = ([at, value]) => [plot.valToPos(at, "x"), plot.valToPos(value, "y")];
  const show = (dot) => { said.textContent = dot ? text(dot) : "\u00a0"; };
  const nearest = (event) => {
    const { left, top: above } = plot.over.getBoundingClientRect();
    const far = (dot) => { const [x, y] = place(dot); return Math.hypot(x - (event.clientX - left), y - (event.clientY - above)); };
    return dots.reduce((best, dot) => far(dot) < (best ? far(best) : REACH) ? dot : best, null);
  };
  plot.over.addEventListener("mousemove", (event) => {
    const dot = nearest(event);
    plot.over.style.cursor = dot ? "pointer" : "";
    show(dot);
  });
  plot.over.addEventListener("click", (event) => {
    const dot = nearest(event);
    if (dot) open(dot[4]);
  });
  const inOrder = [...dots].sort((a, b) => a[0] - b[0]);
  let at = -1;
  plot.over.tabIndex = dots.length ? 0 : -1;
  plot.over.setAttribute("aria-label", `${dots.length} dots: arrow keys move between them, Enter opens one`);
  plot.over.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      at = Math.min(Math.max(at + step, 0), inOrder.length - 1);
      const [left, top] = place(inOrder[at]);
      plot.setCursor({ left, top });
      show(inOrder[at]);
    } else if (event.key === "Enter" && inOrder[at]) open(inOrder[at][4]);
    else return;
    event.preventDefault();
  });
};
const drawDots = (u, dots) => {
  const { ctx } = u, radius = 3.5 * devicePixelRatio;
  for (const [at, value, kind] of dots) {
    if (at < u.scales.x.min || at > u.scales.x.max) continue;
    ctx.beginPath();
    ctx.arc(u.valToPos(at, "x", true), u.valToPos(value, "y", true), radius, 0, 2 * Math.PI);
    ctx.fillStyle = colour(CAUSE_COLOUR[kind] || "--soft");
    ctx.strokeStyle = colour("--paper");
    ctx.fill();
    ctx.stroke();
  }
};
// A dot per run, the middle of each part between changes, and a line where a change begins.
const drawSeries = (holder, { dots, levels, changes, unit, name }) => {
  const [low, high] = extent(dots.map((dot) => dot[1]));
  if (!dots.length) return empty(holder);
  const log = low > 0, text = unit === "ns" ? latency : (v) => v == null ? "–" : digits(v);
  const range = log ? logRange(low, high, 0.12) : [0, high * 1.08 || 1];
  const edges = [0, ...changes.map(([at]) => at), dots.length];
  const options = shape(holder, 320);
  Object.assign(options, {
    scales: { x: { time: false, range: (u, a, b) => a === 1 && b === dots.length ? [0.5, dots.length + 0.5] : [a, b] },
      y: { distr: log ? 3 : 1, range: () => range } },
    axes: [axis((v) => Number.isInteger(v) ? v : "", 48, false), leftAxis(text, log)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [{ label: "run", value: (u, v) => v == null ? "–" : v },
      cellSeries({ cell: 0 }, name, text, { paths: () => null })],
  });
  options.hooks.draw.push((u) => {
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = colour("--series-2");
    ctx.lineWidth = 2 * devicePixelRatio;
    levels.forEach((level, i) => {
      const side = (run) => u.valToPos(Math.min(Math.max(run + 0.5, u.scales.x.min), u.scales.x.max), "x", true);
      ctx.beginPath();
      ctx.moveTo(side(edges[i]), u.valToPos(level, "y", true));
      ctx.lineTo(side(edges[i + 1]), u.valToPos(level, "y", true));
      ctx.stroke();
    });
    ctx.restore();
    for (const [at, ratio] of changes) marker(u, "x", at + 0.5, digits(ratio) + " ×", colour("--warn"));
    drawDots(u, dots);
  });
  const plot = new uPlot(options, [dots.map((dot) => dot[0]), dots.map((dot) => dot[1])], holder);
  follow(plot, holder, dots, (dot) => `${text(dot[1])}: ${dot[3]}`);
  return plot;
};
// Shows a row, and unfolds what contains it.
const open = (id) => {
  const row = document.getElementById(id);
  if (!row) return;
  for (let at = row; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  // A frame without an address of its own has none to change.
  try { history.replaceState(null, "", "#" + id); } catch { /* the row still opens */ }
  for (const other of document.querySelectorAll("tr.open")) other.classList.remove("open");
  row.classList.add("open");
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
};

// A line per CPU; the darker, the more.
const drawHeat = (holder, { cpus, lines, edges, seconds, scale, is_count }) => {
  const canvas = document.createElement("canvas"), dpr = devicePixelRatio;
  const wide = printing() ? PRINT_WIDTH : Math.max(holder.clientWidth, 260);
  const left = 56, below = 26, line = Math.max(2, Math.min(14, Math.floor(480 / cpus.length)));
  const high = line * cpus.length + below;
  canvas.width = wide * dpr; canvas.height = high * dpr;
  canvas.style.width = "100%"; canvas.style.height = high + "px";
  const ctx = canvas.getContext("2d");
  ctx.scale(dpr, dpr);
  ctx.font = FONT; ctx.textBaseline = "middle"; ctx.textAlign = "right";
  const columns = lines[0].length, step = (wide - left) / columns;
  const every = Math.ceil(14 / line);
  cpus.forEach((cpu, i) => {
    ctx.globalAlpha = 1;
    ctx.fillStyle = colour("--soft");
    if (i % every === 0) ctx.fillText("CPU " + cpu, left - 6, i * line + line / 2);
    ctx.fillStyle = colour("--series-1");
    [...lines[i]].forEach((mark, j) => {
      if (mark === " ") return;
      ctx.globalAlpha = 0.12 + 0.88 * parseInt(mark, 36) / 35;
      ctx.fillRect(left + j * step, i * line, Math.max(step - 0.5, 1), Math.max(line - 0.5, 1));
    });
  });
  ctx.globalAlpha = 1; ctx.fillStyle = colour("--soft"); ctx.textAlign = "center";
  const label = (j) => edges ? latency(edges[Math.min(j, edges.length - 1)]) : time(seconds * j / columns);
  for (let j = 0; j < columns; j += Math.ceil(columns / Math.max(2, Math.floor(wide / 110)))) ctx.fillText(label(j), left + j * step, high - below / 2);
  const said = document.createElement("p");
  said.className = "note said";
  const value = is_count ? (v) => count(Math.round(v)) + " samples" : latency;
  const range = `${value(scale[0])} to ${value(scale[1])}`;
  said.textContent = range;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top) / line), j = Math.floor(((event.clientX - box.left) * wide / box.width - left) / step);
    const mark = lines[i] && lines[i][j];
    said.textContent = !mark || mark === " " ? range
      : `CPU ${cpus[i]}, ${label(j)}: about ${value(scale[0] * (scale[1] / scale[0]) ** (parseInt(mark, 36) / 35))}`;
  });
  holder.append(canvas, said);
  return null;
};

const drawRates = (holder, { series: entries, unit }) => {
  const [, high] = extent(entries.flatMap((entry) => entry.bars.map((bar) => bar[2])));
  const { options, rows } = barChart(holder, 260, entries, rateText(unit), false, [0, (high > 0 ? high : 1) * 1.08]);
  options.axes[1].size = 84;
  return new uPlot(options, rows, holder);
};

// One line per way to copy: bytes per second over the size of a block.
const size = (bytes) => scaled(bytes, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
const drawCopy = (holder, { x, series }) => {
  const [low, high] = extent(series.flatMap((entry) => entry.values.filter((v) => v != null)));
  if (!(high > 0)) return empty(holder);
  const bytes = rateText("bytes_per_s");
  const options = shape(holder, 380);
  const range = logRange(x[0], x[x.length - 1], 0.02), rates = logRange(low, high, 0.08);
  Object.assign(options, {
    scales: { x: { time: false, distr: 3, range: () => range }, y: { distr: 3, range: () => rates } },
    axes: [axis(size, 72, true, { splits: () => x.filter((v, i) => i % Math.ceil(x.length * 72 / holder.clientWidth) === 0) }),
      leftAxis(bytes, true)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [
      { label: "block", value: (u, v) => v == null ? "–" : size(v) },
      ...series.map((entry) => cellSeries(entry, entry.name, bytes, { points: { show: true, size: 5 } })),
    ],
  });
  options.axes[1].size = 84;
  return new uPlot(options, [x, ...series.map((entry) => entry.values)], holder);
};

// Latency over the rate of a load.
const drawLoaded = (holder, { x, series, unit }) => {
  const [low, high] = extent(series.flatMap((entry) => entry.values));
  const rate = rateText(unit), range = logRange(Math.max(low, 1), Math.max(high, 1), 0.08);
  const options = shape(holder, 320);
  Object.assign(options, {
    scales: { x: { time: false, range: () => [0, Math.max(x[x.length - 1], 1) * 1.04] }, y: { distr: 3, range: () => range } },
    axes: [axis(rate, 84, false), leftAxis(latency, true)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [
      { label: "rate", value: (u, v) => v == null ? "–" : rate(v) },
      ...series.map((entry) => cellSeries(entry, entry.name, latency, { points: { show: true, size: 5 } })),
    ],
  });
  return new uPlot(options, [x, ...series.map((entry) => entry.values)], holder);
};

const empty = (holder) => {
  holder.textContent = "no samples";
  return null;
};

// ---- drawing and redrawing -------------------------------------------------------------------------------------
const holders = [...document.querySelectorAll("[data-chart]")];
let plots = [];
const draw = (holder) => {
  const chart = charts[Number(holder.dataset.chart)];
  return { distribution: drawDistribution, timeline: drawTimeline, rates: drawRates, heat: drawHeat, copy: drawCopy, loaded: drawLoaded, series: drawSeries }[chart.kind](holder, chart);
};
const redraw = () => {
  for (const plot of plots) if (plot) plot.destroy();
  for (const holder of holders) holder.textContent = "";
  plots = holders.map(draw);
};
const setPrinting = (on) => {
  if (document.documentElement.classList.toggle("printing", on) !== on) return;
  redraw();
};

// A picture as a file, on the paper of the page, with its name and its series above it.
const HEAD_HEIGHT = 46;
const heading = (ctx, holder, wide, high) => {
  ctx.fillStyle = colour("--paper");
  ctx.fillRect(0, 0, wide, high);
  ctx.textAlign = "left"; ctx.textBaseline = "middle"; ctx.font = "600 " + FONT; ctx.fillStyle = colour("--ink");
  ctx.fillText(holder.getAttribute("aria-label"), 10, 14);
  ctx.font = FONT;
  let at = 10;
  for (const { cell, name } of charts[Number(holder.dataset.chart)].series || []) {
    ctx.fillStyle = seriesColour(cell);
    ctx.fillRect(at, 28, 10, 10);
    ctx.fillStyle = colour("--ink");
    ctx.fillText(name, at + 15, 33);
    at += 31 + ctx.measureText(name).width;
  }
};
const download = (holder, ending, address) => {
  const link = document.createElement("a");
  link.download = holder.getAttribute("aria-label").replace(/[^a-zA-Z0-9]+/g, "-") + "." + ending;
  link.href = address;
  link.click();
};
const savePng = (holder) => {
  const drawn = holder.querySelector("canvas"), dpr = devicePixelRatio;
  const canvas = document.createElement("canvas");
  canvas.width = drawn.width; canvas.height = drawn.height + HEAD_HEIGHT * dpr;
  const ctx = canvas.getContext("2d");
  ctx.scale(dpr, dpr);
  heading(ctx, holder, canvas.width / dpr, canvas.height / dpr);
  ctx.drawImage(drawn, 0, HEAD_HEIGHT, drawn.width / dpr, drawn.height / dpr);
  download(holder, "png", canvas.toDataURL("image/png"));
};
// Draws once more, on a context that records the drawing.
const saveSvg = async (holder) => {
  const copy = holder.cloneNode(false);
  copy.style.cssText = `position:absolute;left:-99999px;width:${holder.clientWidth}px`;
  document.body.append(copy);
  let plot = null;
  const { width, height, elements, Context } = await recordCanvas(() => {
    plot = draw(copy);
    return copy.querySelector("canvas");
  });
  if (plot) plot.destroy();
  copy.remove();
  const wide = width / devicePixelRatio, high = height / devicePixelRatio + HEAD_HEIGHT, head = new Context();
  heading(head, holder, wide, high);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}">
${head.elements.join("\n")}
<g transform="translate(0 ${HEAD_HEIGHT}) scale(${1 / devicePixelRatio})">
${elements()}
</g></svg>`;
  download(holder, "svg", "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg));
};
for (const holder of holders) {
  for (const [name, save] of [["PNG", savePng], ["SVG", saveSvg]]) {
    const button = document.createElement("button");
    button.className = "save";
    button.textContent = name;
    button.setAttribute("aria-label", `Save as ${name}: ${holder.getAttribute("aria-label")}`);
    button.addEventListener("click", () => save(holder));
    holder.parentElement.querySelector("figcaption").append(button);
  }
}
redraw();
if (location.hash) open(location.hash.slice(1));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
let resizing = 0;
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 120);
});
})();
