// A picture as SVG: while `make` draws on canvases, the calls are recorded as elements instead.
"use strict";
const recordCanvas = async (make) => {
  const n = (value) => Number(value.toFixed(2));
  const quoted = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
  class Path {
    constructor(other) { this.d = other ? other.d : ""; }
    moveTo(x, y) { this.d += `M${n(x)} ${n(y)}`; }
    lineTo(x, y) { this.d += `${this.d ? "L" : "M"}${n(x)} ${n(y)}`; }
    rect(x, y, w, h) { this.d += `M${n(x)} ${n(y)}h${n(w)}v${n(h)}h${n(-w)}Z`; }
    // Only whole circles are drawn.
    arc(x, y, r) { this.d += `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0Z`; }
    bezierCurveTo(...points) { this.d += "C" + points.map(n).join(" "); }
    quadraticCurveTo(...points) { this.d += "Q" + points.map(n).join(" "); }
    closePath() { this.d += "Z"; }
    addPath(other) { this.d += other.d; }
  }
  const ruler = getContext.call(document.createElement("canvas"), "2d");
  let clips = 0;
  class Context extends Path {
    constructor(canvas) {
      super();
      Object.assign(this, { canvas, elements: [], saved: [], strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, globalAlpha: 1,
        lineCap: "butt", lineJoin: "miter", font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", dash: [], moves: "", clip_: "" });
    }
    state() {
      const { strokeStyle, fillStyle, lineWidth, globalAlpha, lineCap, lineJoin, font, textAlign, textBaseline, dash, moves, clip_ } = this;
      return { strokeStyle, fillStyle, lineWidth, globalAlpha, lineCap, lineJoin, font, textAlign, textBaseline, dash, moves, clip_ };
    }
    save() { this.saved.push(this.state()); }
    restore() { Object.assign(this, this.saved.pop()); }
    translate(x, y) { this.moves += `translate(${n(x)} ${n(y)})`; }
    rotate(angle) { this.moves += `rotate(${n(angle * 180 / Math.PI)})`; }
    scale(x, y) { this.moves += `scale(${n(x)} ${n(y)})`; }
    setLineDash(dash) { this.dash = dash; }
    beginPath() { this.d = ""; }
    clearRect() {}
    measureText(text) { ruler.font = this.font; return ruler.measureText(text); }
    clip(path) {
      const id = `clip-${++clips}`;
      // One inside another: both apply.
      const outer = this.clip_ ? ` clip-path="url(#${this.clip_})"` : "";
      this.elements.push(`<clipPath id="${id}"${outer}><path d="${(path || this).d}"/></clipPath>`);
      this.clip_ = id;
    }
    add(element, more) {
      const moved = this.moves ? ` transform="${this.moves}"` : "";
      const shown = this.globalAlpha < 1 ? ` opacity="${n(this.globalAlpha)}"` : "";
      const drawn = `<${element}${moved}${shown}${more}`;
      this.elements.push(this.clip_ ? `<g clip-path="url(#${this.clip_})">${drawn}</g>` : drawn);
    }
    stroke(path) {
      const dash = this.dash.length ? ` stroke-dasharray="${this.dash.map(n).join(" ")}"` : "";
      this.add(`path d="${(path || this).d}" fill="none"`, ` stroke="${quoted(this.strokeStyle)}" stroke-width="${n(this.lineWidth)}"`
        + ` stroke-linecap="${this.lineCap}" stroke-linejoin="${this.lineJoin}"${dash}/>`);
    }
    fill(path) { this.add(`path d="${(path || this).d}"`, ` fill="${quoted(this.fillStyle)}"/>`); }
    fillRect(x, y, w, h) { const path = new Path(); path.rect(x, y, w, h); this.fill(path); }
    fillText(text, x, y) {
      const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] || "start";
      const base = { middle: "central", top: "text-before-edge", bottom: "text-after-edge" }[this.textBaseline] || "alphabetic";
      this.add(`text x="${n(x)}" y="${n(y)}"`, ` style="font:${quoted(this.font)}" text-anchor="${anchor}" dominant-baseline="${base}"`
        + ` fill="${quoted(this.fillStyle)}">${quoted(text)}</text>`);
    }
  }
  const RealPath = window.Path2D;
  HTMLCanvasElement.prototype.getContext = function () { return this.recorded ||= new Context(this); };
  window.Path2D = Path;
  try {
    const canvas = make();
    // uPlot draws when the current task has ended.
    await new Promise((done) => setTimeout(done));
    const { width, height, recorded } = canvas;
    return { width, height, context: recorded, elements: () => recorded.elements.join("\n"), Context };
  } finally {
    HTMLCanvasElement.prototype.getContext = getContext;
    window.Path2D = RealPath;
  }
};
const getContext = HTMLCanvasElement.prototype.getContext;
