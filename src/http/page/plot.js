// Plots over the last minutes, as SVG, with one cursor for all.

import { draw, make, setText } from "./dom.js";
import { age, clock } from "./format.js";

/** Seconds that plots show at most. */
export const SPAN = 600;
/** The spans of plots: a gateway that has just begun has a shorter one. */
const SPANS = [60, 120, 300, SPAN];

const HEIGHT = 132;
const TOP = 8;
const BOTTOM = 20;
const LEFT = 62;
const RIGHT = 8;

/** The seconds up to `now` that show all of these points. */
const spanOf = (points, now) => SPANS.find((one) => now - (points[0]?.time ?? now) <= one) ?? SPAN;

const plots = new Set();
/** The time under the cursor, in seconds since 1970; null without a cursor. */
let cursor = null;

const ago = (seconds) => (seconds === 0 ? "now" : `−${age(seconds)}`);

function point(time) {
  cursor = time;
  for (const plot of plots) plot.mark();
}

/** Whole steps of an axis from 0 to at least `most`: 1, 2 or 5 times a power of ten of the unit that fits. */
function steps(most, scale) {
  const units = { binary: [1, 2 ** 10, 2 ** 20, 2 ** 30, 2 ** 40], time: [1, 60, 3600, 86400] }[scale] ?? [1];
  const base = units.findLast((unit) => unit <= most) ?? 1;
  const raw = most / base / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999) * base;
  const count = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/**
 * A plot below a line with the values at the cursor, or the latest ones.
 *
 * `series` has for each line its name and its value of a point (null for none); `format` makes text of a value;
 * `scale` is "linear", "binary" (bytes), "time" (seconds) or "log"; `least` is the smallest maximum of the axis.
 */
export class Plot {
  #series;
  #format;
  #scale;
  #least;
  #points = [];
  #now = 0;
  #gap = 10;
  #span = SPAN;
  #svg = draw("svg", { "aria-hidden": "true", focusable: "false", height: HEIGHT });
  #mark = draw("g", { class: "mark" });
  #values = [];
  #box;
  #place = null;

  constructor(title, { series, format, scale = "linear", least = 1 }) {
    this.#series = series;
    this.#format = format;
    this.#scale = scale;
    this.#least = least;
    const legend = make("p", { class: "legend" }, make("span", { class: "title" }, title));
    series.forEach((one, index) => {
      const value = make("b");
      this.#values.push(value);
      const key = draw("svg", { class: "key", width: 18, height: 8, "aria-hidden": "true" },
        draw("path", { class: `line line${index}`, d: "M0 4H18" }));
      legend.append(make("span", { class: "entry" }, key, series.length > 1 ? `${one.name} ` : "", value));
    });
    this.#box = make("div", {
      class: "canvas", role: "slider", tabindex: "0", "aria-label": `${title}, last minutes`,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no values yet",
    }, this.#svg);
    this.element = make("div", { class: "plot" }, legend, this.#box);
    this.#listen();
    plots.add(this);
    new ResizeObserver(() => this.#draw()).observe(this.#box);
  }

  /** Shows these points; the right edge is `now`. A distance of more than `gap` seconds between points is a gap. */
  show(points, now, gap) {
    this.#points = points;
    this.#now = now;
    this.#gap = gap;
    this.#span = spanOf(points, now);
    this.#draw();
  }

  #listen() {
    const box = this.#box;
    const move = (event) => {
      const place = this.#place;
      if (!place || this.#points.length === 0) return;
      const x = event.clientX - box.getBoundingClientRect().left;
      point(this.#points[this.#nearest(place.time(x))].time);
    };
    box.addEventListener("pointermove", move);
    box.addEventListener("pointerdown", move);
    box.addEventListener("pointerleave", () => point(null));
    box.addEventListener("focus", () => {
      if (cursor === null && box.matches(":focus-visible")) this.#step(Infinity);
    });
    box.addEventListener("blur", () => point(null));
    const keys = {
      ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -15, PageUp: 15, Home: -Infinity, End: Infinity,
    };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "Escape") point(null);
      else if (event.key in keys) this.#step(keys[event.key]);
      else return;
      event.preventDefault();
    });
  }

  #step(by) {
    const last = this.#points.length - 1;
    if (last < 0) return;
    const from = cursor === null ? last : this.#nearest(cursor);
    point(this.#points[Math.min(last, Math.max(0, from + by))].time);
  }

  #nearest(time) {
    let best = this.#points.length - 1;
    for (let index = best - 1; index >= 0; index -= 1) {
      if (Math.abs(this.#points[index].time - time) > Math.abs(this.#points[best].time - time)) break;
      best = index;
    }
    return best;
  }

  #draw() {
    const width = Math.floor(this.#box.clientWidth);
    if (width < LEFT + 40) return;
    const span = this.#span;
    const from = this.#now - span;
    const shown = this.#points.filter((one) => one.time >= from);
    const axis = this.#axis(shown);
    const x = (time) => LEFT + ((time - from) / span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - axis.part(value)) * (HEIGHT - TOP - BOTTOM);
    this.#place = { x, y, time: (at) => from + ((at - LEFT) / (width - LEFT - RIGHT)) * span };
    const parts = [];
    for (const tick of axis.ticks) {
      const at = Math.round(y(tick)) + 0.5;
      parts.push(draw("path", { class: "grid", d: `M${LEFT} ${at}H${width - RIGHT}` }));
      parts.push(draw("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.#format(tick).replace(".0 ", " ")));
    }
    for (const [part, anchor] of [[1, "start"], [0.5, "middle"], [0, "end"]]) {
      parts.push(draw("text", { class: "tick", x: x(this.#now - part * span), y: HEIGHT - 4, "text-anchor": anchor }, ago(part * span)));
    }
    // The first one on top.
    for (let index = this.#series.length - 1; index >= 0; index -= 1) parts.push(...this.#line(index, shown, x, y));
    this.#svg.setAttribute("width", width);
    this.#svg.replaceChildren(...parts, this.#mark);
    this.#box.dataset.points = shown.length;
    this.mark();
  }

  #line(index, shown, x, y) {
    const { of } = this.#series[index];
    const filled = index === 0 && this.#scale !== "log";
    let path = "";
    let area = "";
    let lone = "";
    let run = null;
    let before = null;
    const end = () => {
      if (run === null) return;
      // A point without neighbours is a dot, since it would be invisible as a line.
      if (run.count === 1) lone += `${run.text}h0.01`;
      if (filled) area += `${run.text}V${y(0)}H${run.x}Z`;
      run = null;
    };
    for (const one of shown) {
      const value = of(one);
      const missing = value === null || value === undefined || (this.#scale === "log" && value <= 0);
      if (missing || (before !== null && one.time - before > this.#gap)) end();
      before = one.time;
      if (missing) continue;
      const [left, top] = [x(one.time).toFixed(1), y(value).toFixed(1)];
      const step = `${run === null ? "M" : "L"}${left} ${top}`;
      path += step;
      if (run === null) run = { text: "", x: left, count: 0 };
      run.text += step;
      run.count += 1;
    }
    end();
    const lines = [[path, ""], [lone, " lone"]].map(([d, more]) => draw("path", { class: `line line${index}${more}`, d }));
    return filled ? [draw("path", { class: "area", d: area }), ...lines] : lines;
  }

  #axis(shown) {
    const values = this.#series.flatMap(({ of }) => shown.map(of)).filter((value) => value > 0);
    const most = values.reduce((one, other) => Math.max(one, other), this.#least);
    if (this.#scale !== "log") {
      const ticks = steps(most, this.#scale);
      const top = ticks[ticks.length - 1];
      return { ticks, part: (value) => value / top };
    }
    const lowest = values.reduce((one, other) => Math.min(one, other), most);
    const high = Math.ceil(Math.log10(most) - 1e-9);
    const low = Math.min(high - 2, Math.floor(Math.log10(lowest) + 1e-9));
    const every = Math.ceil((high - low) / 4);
    const ticks = [];
    for (let power = high; power >= low; power -= every) ticks.push(10 ** power);
    return { ticks, part: (value) => Math.min(1, Math.max(0, (Math.log10(value) - low) / (high - low))) };
  }

  /** Shows the values at the cursor, or the latest ones. */
  mark() {
    const last = this.#points.length - 1;
    const index = cursor === null ? last : this.#nearest(cursor);
    const one = this.#points[index];
    const texts = this.#series.map(({ of }) => (one ? this.#format(of(one) ?? null) : "–"));
    texts.forEach((text, at) => setText(this.#values[at], text));
    this.#mark.replaceChildren();
    if (!one) return;
    const box = this.#box;
    box.setAttribute("aria-valuemax", String(last));
    box.setAttribute("aria-valuenow", String(index));
    const said = this.#series.map(({ name }, at) => `${name} ${texts[at]}`).join(", ");
    box.setAttribute("aria-valuetext", `${clock(one.time)}: ${said}`);
    const place = this.#place;
    if (cursor === null || place === null || one.time < this.#now - this.#span) return;
    const x = place.x(one.time).toFixed(1);
    const right = one.time < this.#now - this.#span / 2;
    this.#mark.append(
      draw("path", { class: "cursor", d: `M${x} ${TOP}V${HEIGHT - BOTTOM}` }),
      draw("text", { class: "at", x: Number(x) + (right ? 5 : -5), y: TOP + 9, "text-anchor": right ? "start" : "end" }, clock(one.time)));
    this.#series.forEach(({ of }, at) => {
      const value = of(one);
      if (value === null || value === undefined || (this.#scale === "log" && value <= 0)) return;
      this.#mark.append(draw("circle", { class: `dot dot${at}`, cx: x, cy: place.y(value).toFixed(1), r: 3.5 }));
    });
  }
}

/** The states of the last minutes as a strip: the worse, the higher. Returns where it begins. */
export function strip(host, points, now, gap, levels) {
  const span = spanOf(points, now);
  const from = now - span;
  const shown = points.filter((one) => one.time >= from && one.health in levels);
  const parts = [];
  shown.forEach((one, index) => {
    const next = shown[index + 1]?.time ?? now;
    const until = next - one.time > gap ? one.time + gap / 2 : next;
    const before = parts[parts.length - 1];
    if (before?.state === one.health && before.until === one.time) before.until = until;
    else parts.push({ state: one.health, time: one.time, until });
  });
  const bars = parts.map(({ state, time, until }) => {
    const height = levels[state];
    return draw("rect", { class: state, x: (time - from).toFixed(1), y: 12 - height, width: (until - time).toFixed(1), height });
  });
  const view = { viewBox: `0 0 ${span} 12`, preserveAspectRatio: "none", "aria-hidden": "true" };
  host.replaceChildren(draw("svg", view, ...bars));
  return ago(span);
}
