// Curves over an axis, as SVG: for the page and for the simulator's report alike. A chart of an hour has 720 points and is
// drawn once in five seconds, so that SVG is fast enough; its text can be read aloud, selected and printed,
// and its colours follow the theme by themselves.

import { h, put, s } from "./dom.js";

/**
 * @typedef {[number, number | null]} Point
 * @typedef {{ name: string, hue: string, points: Point[], weak?: boolean, area?: boolean, last?: string }} Curve
 * @typedef {{ at: number, text: string, alert?: boolean }} Mark
 * @typedef {{
 *   label: string, x?: (at: number) => string, y: (at: number) => string, xName?: string, yName?: string,
 *   logX?: boolean, logY?: boolean, minX?: number, maxX?: number, minY?: number, maxY?: number, marks?: Mark[],
 *   limits?: { at: number, name: string }[], width?: number, height?: number, tags?: boolean, legend?: boolean,
 *   none?: string, hover?: boolean, xTicks?: number[],
 * }} PlotOptions
 */

const LEFT = 54, BOTTOM = 24, TAGS = 150;

/**
 * Round steps between two ends.
 * @param {number} low
 * @param {number} high
 * @param {boolean} log
 * @param {number} [about]
 */
export function ticks(low, high, log, about = 4) {
  const all = [];
  if (log) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) all.push(10 ** power);
    const inside = all.filter((it) => it >= low * 0.999 && it <= high * 1.001);
    return inside.length > 1 ? inside : [low, high];
  }
  const rough = (high - low) / about || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((it) => it * unit).find((it) => it >= rough * 0.999) ?? unit;
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) all.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return all;
}

/**
 * Round moments of the day, in milliseconds.
 * @param {number} low
 * @param {number} high
 * @param {number} about
 */
export function timeTicks(low, high, about) {
  const steps = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].map((it) => it * 1000);
  const step = steps.find((it) => (high - low) / it <= about) ?? 3_600_000;
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) all.push(at);
  return all;
}

/**
 * Draws curves into a place, in place of what was there.
 * @param {Element} place
 * @param {Curve[]} curves
 * @param {PlotOptions} options
 */
export function plot(place, curves, options) {
  const { logX = false, logY = false, marks = [], limits = [], tags = false, legend = !tags } = options;
  const points = curves.flatMap((it) => it.points).filter((it) => it[1] !== null);
  if (!points.length) {
    put(place, h("p", { class: "none" }, options.none ?? "Nothing to draw yet."));
    return;
  }
  const wide = options.width ?? Math.max(300, place.clientWidth || 600), high = options.height ?? 190;
  const right = tags ? TAGS : 12;
  // The name of the axis stands above the flags, and those above the curves.
  const above = options.yName ? 32 : 14;
  const bottom = BOTTOM + (options.xName ? 14 : 0);
  const xs = points.map((it) => it[0]), ys = points.map((it) => /** @type {number} */ (it[1]));
  const low = options.minX ?? Math.min(...xs);
  const end = Math.max(options.maxX ?? Math.max(...xs), logX ? low * 1.0001 : low + 1e-9);
  const most = Math.max(...ys, ...limits.map((it) => it.at));
  const least = Math.min(...ys);
  let top = options.maxY ?? (logY ? 10 ** Math.ceil(Math.log10(most * 1.01)) : most * 1.08);
  if (!(top > 0)) top = 1;
  const floor = options.minY ?? (logY ? Math.min(10 ** Math.floor(Math.log10(Math.max(least, 1e-9))), top / 10) : 0);
  const scale = (/** @type {boolean} */ log, /** @type {number} */ from, /** @type {number} */ to) => (/** @type {number} */ it) =>
    log ? (Math.log(Math.max(it, from)) - Math.log(from)) / (Math.log(to) - Math.log(from)) : (it - from) / (to - from);
  const ax = scale(logX, low, end), ay = scale(logY, floor, top);
  const sx = (/** @type {number} */ it) => LEFT + (wide - LEFT - right) * ax(it);
  const sy = (/** @type {number} */ it) => high - bottom - (high - above - bottom) * Math.max(0, Math.min(1, ay(it)));
  const showX = options.x ?? ((/** @type {number} */ it) => String(Number(it.toPrecision(3))));

  const parts = [];
  for (const at of ticks(floor, top, logY)) {
    parts.push(s("line", { class: "grid", x1: LEFT, x2: wide - right, y1: sy(at), y2: sy(at) }));
    parts.push(s("text", { x: LEFT - 7, y: sy(at) + 4, "text-anchor": "end" }, options.y(at)));
  }
  const xTicks = options.xTicks ?? ticks(low, end, logX, Math.max(2, Math.floor(wide / 110)));
  for (const at of xTicks) {
    if (sx(at) < LEFT - 1 || sx(at) > wide - right + 1) continue;
    parts.push(s("line", { class: "grid", x1: sx(at), x2: sx(at), y1: above, y2: high - bottom }));
    parts.push(s("text", { x: sx(at), y: high - bottom + 15, "text-anchor": "middle" }, showX(at)));
  }
  parts.push(s("line", { class: "axis", x1: LEFT, x2: wide - right, y1: high - bottom, y2: high - bottom }));
  if (options.xName) parts.push(s("text", { x: (LEFT + wide - right) / 2, y: high - 3, "text-anchor": "middle" }, options.xName));
  if (options.yName) parts.push(s("text", { x: 2, y: 9 }, options.yName));
  for (const it of marks) {
    if (it.at < low || it.at > end) continue;
    const kind = it.alert ? "event alert" : "event";
    parts.push(s("line", { class: kind, x1: sx(it.at), x2: sx(it.at), y1: above, y2: high - bottom }));
    const x = sx(it.at);
    parts.push(s("path", { class: it.alert ? "flag alert" : "flag", d: `M${x - 4} ${above - 8}h8l-4 7z` }, s("title", {}, it.text)));
  }
  const inside = (/** @type {Point} */ it) => it[0] >= low - 1e-9 && it[0] <= end * 1.000001 + 1e-9;
  for (const it of [...curves].sort((a, b) => Number(b.weak ?? false) - Number(a.weak ?? false))) {
    parts.push(...drawn(it, it.points.filter(inside), sx, sy, high - bottom));
  }
  for (const it of limits) {
    parts.push(s("line", { class: "limit", x1: LEFT, x2: wide - right, y1: sy(it.at), y2: sy(it.at) }));
    if (!tags) parts.push(s("text", { x: wide - right - 2, y: sy(it.at) - 4, "text-anchor": "end" }, it.name));
  }
  if (tags) parts.push(...tagged(curves, limits, inside, sy, wide - right + 7, high - bottom));
  const cursor = s("line", { class: "cursor", y1: above, y2: high - bottom });
  parts.push(cursor);
  const picture = s("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": spoken(curves, options) }, parts);
  const box = h("div", { class: "plot" }, legend && curves.length ? legendOf(curves) : null, picture);
  if (options.hover !== false) hover(box, picture, cursor, curves, marks, { sx, low, end, wide, right, showX, y: options.y, ax });
  put(place, box);
}

/**
 * @param {Curve} it
 * @param {Point[]} points
 * @param {(at: number) => number} sx
 * @param {(at: number) => number} sy
 * @param {number} ground
 */
function drawn(it, points, sx, sy, ground) {
  let path = "", from = null, pen = false;
  const lone = [];
  for (let at = 0; at < points.length; at += 1) {
    const [x, y] = points[at];
    if (y === null) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${sx(x).toFixed(1)} ${sy(y).toFixed(1)}`;
    if (!pen && (points[at + 1]?.[1] ?? null) === null) lone.push(s("circle", { class: "dot", r: 2.4, cx: sx(x), cy: sy(y), vars: { "--hue": it.hue } }));
    pen = true;
    from ??= x;
  }
  const title = s("title", {}, it.name);
  const curve = s("path", { class: it.weak ? "curve weak" : "curve", d: path || "M0 0", vars: { "--hue": it.hue } }, title);
  if (!it.area || from === null || points.some((one) => one[1] === null)) return [curve, ...lone];
  const last = points[points.length - 1];
  const area = s("path", { class: "area", d: `${path}L${sx(last[0]).toFixed(1)} ${ground}L${sx(from).toFixed(1)} ${ground}Z`, vars: { "--hue": it.hue } });
  return [area, curve, ...lone];
}

/** @param {Curve[]} curves */
function legendOf(curves) {
  const one = (/** @type {Curve} */ it) => h("li", { vars: { "--hue": it.hue } }, h("i", { "aria-hidden": "true" }), it.name, it.last ? h("b", {}, it.last) : null);
  return h("ul", { class: "legend" }, curves.filter((it) => !it.weak).map(one));
}

/**
 * Names at the right ends of curves, pushed apart where they would overlap.
 * @param {Curve[]} curves
 * @param {{ at: number, name: string }[]} limits
 * @param {(it: Point) => boolean} inside
 * @param {(at: number) => number} sy
 * @param {number} x
 * @param {number} ground
 */
function tagged(curves, limits, inside, sy, x, ground) {
  const ends = curves.filter((it) => !it.weak).flatMap((it) => {
    const last = it.points.filter((one) => inside(one) && one[1] !== null).at(-1);
    return last ? [{ y: sy(/** @type {number} */ (last[1])), hue: it.hue, name: it.name }] : [];
  });
  const all = [...ends, ...limits.map((it) => ({ y: sy(it.at), hue: "var(--soft)", name: it.name }))].sort((a, b) => a.y - b.y);
  const gap = 13.5;
  for (let at = 1; at < all.length; at += 1) all[at].y = Math.max(all[at].y, all[at - 1].y + gap);
  for (let at = all.length - 1, floor = ground + 2; at >= 0; at -= 1, floor -= gap) all[at].y = Math.min(all[at].y, floor);
  return all.map((it) => s("text", { class: "tag", x, y: it.y + 4, vars: { "--hue": it.hue } }, it.name));
}

/**
 * What a screen reader says of a chart: its name and how each curve stands.
 * @param {Curve[]} curves
 * @param {PlotOptions} options
 */
function spoken(curves, options) {
  const said = curves.filter((it) => !it.weak).flatMap((it) => {
    const values = it.points.map((one) => one[1]).filter((one) => one !== null);
    if (!values.length) return [];
    const last = /** @type {number} */ (values[values.length - 1]);
    return [`${it.name} ${it.last ?? options.y(last)}, at most ${options.y(Math.max(.../** @type {number[]} */ (values)))}`];
  });
  return `${options.label}: ${said.join("; ")}`;
}

/**
 * @param {any} box
 * @param {any} picture
 * @param {any} cursor
 * @param {Curve[]} curves
 * @param {Mark[]} marks
 * @param {any} axes
 */
function hover(box, picture, cursor, curves, marks, axes) {
  const { sx, low, end, wide, right, showX, y } = axes;
  const shown = curves.filter((it) => !it.weak);
  const tip = h("div", { class: "tip", hidden: true });
  box.append(tip);
  const leave = () => { tip.hidden = true; cursor.style.visibility = "hidden"; };
  const move = (/** @type {PointerEvent} */ event) => {
    const rect = picture.getBoundingClientRect();
    const at = ((event.clientX - rect.left) / rect.width) * wide;
    if (at < LEFT - 4 || at > wide - right + 4) return leave();
    const reference = shown.flatMap((it) => it.points.filter((one) => one[0] >= low && one[0] <= end));
    if (!reference.length) return leave();
    const nearest = reference.reduce((best, it) => (Math.abs(sx(it[0]) - at) < Math.abs(sx(best[0]) - at) ? it : best))[0];
    cursor.setAttribute("x1", sx(nearest));
    cursor.setAttribute("x2", sx(nearest));
    cursor.style.visibility = "visible";
    const lines = shown.map((it) => {
      const value = it.points.find((one) => one[0] === nearest)?.[1];
      return value === undefined || value === null ? null : h("p", { vars: { "--hue": it.hue } }, h("i"), it.name, h("b", {}, y(value)));
    });
    const near = marks.filter((it) => Math.abs(sx(it.at) - at) < 6).slice(0, 4);
    put(tip, h("p", { class: "when" }, showX(nearest)), lines, near.map((it) => h("p", { class: "what" }, it.text)));
    tip.hidden = false;
    const space = rect.width - tip.offsetWidth;
    const left = (sx(nearest) / wide) * rect.width + 12;
    tip.style.left = `${Math.max(0, left > space ? left - tip.offsetWidth - 24 : left)}px`;
  };
  picture.addEventListener("pointermove", move);
  picture.addEventListener("pointerleave", leave);
}
