// Zooms and moves the time bars. Without it they show the whole time.
(() => {
"use strict";
const LEAST_NS = 100;
const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const time = (ns) => {
  const [factor, unit] = units.find(([least]) => Math.abs(ns) >= least) || units[3];
  return Number((ns / factor).toPrecision(4)) + " " + unit;
};
for (const holder of document.querySelectorAll(".time")) {
  const length = Number(holder.dataset.length);
  const parts = [...holder.querySelectorAll(".part")];
  const lanes = [...holder.querySelectorAll(".lane")];
  const [first, last] = holder.querySelectorAll(".ticks span");
  const texts = [first.textContent, last.textContent];
  let from = 0, to = length;
  const draw = () => {
    for (const part of parts) {
      const a = Math.max(Number(part.dataset.from), from), b = Math.min(Number(part.dataset.to), to);
      part.style.display = b > a ? "" : "none";
      part.style.left = `${(a - from) / (to - from) * 100}%`;
      part.style.width = `${(b - a) / (to - from) * 100}%`;
    }
    const whole = from === 0 && to === length;
    first.textContent = whole ? texts[0] : "+" + time(from);
    last.textContent = whole ? texts[1] : "+" + time(to);
  };
  const show = (a, width) => {
    width = Math.min(Math.max(width, Math.min(LEAST_NS, length)), length);
    from = Math.min(Math.max(a, 0), length - width);
    to = from + width;
    draw();
  };
  const place = (event, lane) => {
    const box = lane.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  for (const lane of lanes) {
    const zoom = (at, factor) => {
      const width = (to - from) * factor;
      show(from + at * (to - from) - at * Math.min(width, length), width);
    };
    lane.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(place(event, lane), Math.exp(event.deltaY * 0.002));
    }, { passive: false });
    lane.tabIndex = 0;
    lane.addEventListener("keydown", (event) => {
      const step = (to - from) / 4;
      const keys = {
        "+": () => zoom(0.5, 0.5), "-": () => zoom(0.5, 2), "0": () => show(0, length),
        ArrowLeft: () => show(from - step, to - from), ArrowRight: () => show(from + step, to - from),
      };
      if (event.ctrlKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    lane.addEventListener("dblclick", () => show(0, length));
    lane.addEventListener("pointerdown", (event) => {
      lane.setPointerCapture(event.pointerId);
      const start = event.clientX, begin = from, width = to - from, box = lane.getBoundingClientRect();
      const move = (moved) => show(begin - (moved.clientX - start) / box.width * width, width);
      const end = () => lane.removeEventListener("pointermove", move);
      lane.addEventListener("pointermove", move);
      lane.addEventListener("pointerup", end, { once: true });
      lane.addEventListener("pointercancel", end, { once: true });
    });
  }
  holder.querySelector(".hint").hidden = false;
}
})();
