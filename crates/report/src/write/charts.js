// Draws the charts of a report from the JSON in the page, in the colours of its style sheet.
(() => {
"use strict";
const charts = JSON.parse(document.getElementById("chart-data").textContent);
const data = { span_s: Math.max(...charts.map((c) => c.span_s)), limit_ns: charts[0].limit_ns };
const SERIES_COLOURS = 7;
const DASHES = [undefined, [7, 4], [2, 3], [9, 3, 2, 3]];
const PRINT_WIDTH = 690;
const PRINT_HEIGHT = 0.72;
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
const percentile = (x) => {
  if (x <= 1) return "0 %";
  // 1 - 1/x keeps as many nines as it has.
  return (100 - 100 / x).toFixed(Math.max(0, Math.ceil(Math.log10(x)) - 2)) + " %";
};
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
  hooks: { draw: [] },
});
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
    const right = place + ctx.measureText(text).width + 8 * dpr < bbox.left + bbox.width;
    ctx.textAlign = right ? "left" : "right"; ctx.textBaseline = "top";
    ctx.fillText(text, place + (right ? 4 : -4) * dpr, bbox.top + 2 * dpr);
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
const drawHistogram = (holder, { edges, series }) => {
  if (!edges.length) return empty(holder);
  const centres = edges.slice(1).map((edge, i) => Math.sqrt(edge * edges[i]));
  const most = Math.max(...series.flatMap((s) => s.counts.map((n) => n || 0)));
  const floor = 0.6;
  const outline = (u, index) => {
    const counts = u.data[index], stroke = new Path2D(), fill = new Path2D();
    const x = (i) => u.valToPos(edges[i], "x", true), y = (n) => u.valToPos(n, "y", true), base = y(floor);
    for (let i = 0; i < counts.length; i++) {
      if (counts[i] == null) continue;
      for (const path of [stroke, fill]) path.moveTo(x(i), base);
      for (; i < counts.length && counts[i] != null; i++) {
        for (const path of [stroke, fill]) { path.lineTo(x(i), y(counts[i])); path.lineTo(x(i + 1), y(counts[i])); }
      }
      for (const path of [stroke, fill]) path.lineTo(x(i), base);
    }
    return { stroke, fill };
  };
  const lone = (counts) => counts.flatMap((n, i) => n != null && (counts[i - 1] == null || counts[i + 1] == null) ? [i] : []);
  const options = shape(holder, 380);
  Object.assign(options, {
    scales: { x: { time: false, distr: 3, range: (u, a, b) => [a, b] }, y: { distr: 3, range: () => [floor, most * 2] } },
    axes: [axis(latency, 64, true), leftAxis(count, true)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [
      { label: "latency", value: (u, v, s, i) => i == null ? "–" : `${latency(edges[i])} to ${latency(edges[i + 1])}` },
      ...series.map((entry) => cellSeries(entry, entry.name, exactCount, {
        paths: outline, fill: seriesColour(entry.cell) + "1c",
        points: { show: true, size: 5, filter: () => lone(entry.counts), fill: seriesColour(entry.cell), width: 0 },
      })),
    ],
  });
  options.hooks.draw.push(limitMark("x"));
  return new uPlot(options, [centres, ...series.map((entry) => entry.counts)], holder);
};

const drawPercentiles = (holder, { x, series }) => {
  if (!x.length) return empty(holder);
  const [low, high] = extent(series.flatMap((entry) => entry.values.filter((v) => v != null)));
  const range = logRange(Math.max(low, 1), Math.max(high, data.limit_ns <= high * 3 ? data.limit_ns || 0 : 0), 0.05);
  const options = shape(holder, 300);
  const rarest = x[x.length - 1];
  Object.assign(options, {
    scales: { x: { time: false, distr: 3, range: (u, a, b) => [a, b] }, y: { distr: 3, range: () => range } },
    axes: [axis(percentile, 72, true, {
      splits: (u, index, min, max) => powers(min, max, (u.bbox.width || 400) / devicePixelRatio, rarest),
    }), leftAxis(latency, true)],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    series: [
      { label: "percentile", value: (u, v) => v == null ? "–" : percentile(v) },
      ...series.map((entry) => cellSeries(entry, entry.name, latency, {
        paths: uPlot.paths.stepped({ align: -1 }),
      })),
    ],
  });
  options.hooks.draw.push(limitMark("y", true));
  return new uPlot(options, [x, ...series.map((entry) => entry.values)], holder);
};
// Powers of ten as far apart as the longest label needs.
const powers = (min, max, pixels, rarest) => {
  const decades = Math.log10(max / min);
  const every = Math.max(1, Math.ceil((30 + 7 * Math.log10(rarest)) / (pixels / decades)));
  const ticks = [];
  for (let p = Math.ceil(Math.log10(min) - 1e-9); p <= Math.log10(max); p += every) ticks.push(10 ** p);
  return ticks;
};

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

const drawTimeline = (holder, { series: entries, repeats }) => {
  const [low, high] = extent(entries.flatMap((entry) => entry.bars.map((bar) => bar[2])));
  if (!(high > 0)) return empty(holder);
  const top = data.limit_ns && data.limit_ns <= high * 3 ? Math.max(high, data.limit_ns) : high;
  const { options, rows } = barChart(holder, 300, entries, latency, true, logRange(Math.max(low, 1), top, 0.12));
  options.hooks.draw.push(limitMark("y"), (u) => {
    for (const { repeat, at_s } of repeats) marker(u, "x", at_s, String(repeat), colour("--soft"));
  });
  return new uPlot(options, rows, holder);
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

const empty = (holder) => {
  holder.textContent = "no samples";
  return null;
};

// ---- drawing and redrawing -------------------------------------------------------------------------------------
const holders = [...document.querySelectorAll("[data-chart]")];
let plots = [];
const draw = (holder) => {
  const chart = charts[Number(holder.dataset.chart)];
  return { histogram: drawHistogram, percentiles: drawPercentiles, timeline: drawTimeline, rates: drawRates, copy: drawCopy }[chart.kind](holder, chart);
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

redraw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  setPrinting(true);
});
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
