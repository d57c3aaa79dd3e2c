// The last hour: requests, first tokens, tokens, hits and the line over time, with what happened as marks.

import { h, put } from "../dom.js";
import { state } from "../feed.js";
import { clock, digits, percent, short, time } from "../format.js";
import { badge, card, choice, head, pick } from "../parts.js";
import { plot, timeTicks } from "../plot.js";
import { spanOf, together } from "../sums.js";

let minutes = "", pool = "", alerts = "all";
/** @type {any} */
let parts = null;

const CHARTS = /** @type {[string, string, string][]} */ ([
  ["requests", "Requests", "A second, by how they ended."],
  ["first", "Time to first token", "Of streams, from arrival to first token."],
  ["tokens", "Tokens", "A second, as engines report them."],
  ["hits", "Cache hits", "Share of prompt tokens found in a replica's cache."],
  ["busy", "In flight and in the line", "At the end of each sample."],
]);

/** The shortest span that holds what there is. */
function fitting() {
  const oldest = Math.min(...[...state.past.values()].map((it) => it.at_s[0] ?? Infinity));
  const known = ((state.now?.at_ms ?? 0) / 1000 - oldest) / 60;
  return known <= 5 ? "5" : known <= 15 ? "15" : "60";
}

/** @param {HTMLElement} place */
function build(place) {
  minutes ||= state.past.size ? fitting() : "5";
  const span = choice("Span", [["5", "5 min"], ["15", "15 min"], ["60", "1 hour"]], minutes, (it) => { minutes = it; update(); });
  const pools = h("span");
  place.append(head("Flow", "The last hour, kept in the router's memory. Hover for figures; triangles are events.", pools, span.element));
  const charts = Object.fromEntries(CHARTS.map(([id]) => [id, h("div", { class: "chart" })]));
  const events = h("ol", { class: "events" });
  const which = choice("Which events", [["all", "All"], ["alerts", "Alerts"]], alerts, (it) => { alerts = it; drawEvents(); });
  place.append(h("div", { class: "charts" },
    CHARTS.map(([id, title, note]) => card(title, note, charts[id])),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Events"), which.element), h("div", { class: "events-box", tabindex: 0, role: "region", "aria-label": "Events" }, events))));
  parts = { charts, events, pools };
}

function drawPools() {
  const names = [...new Set([...(state.fleet?.pools.map((it) => it.name) ?? []), ...state.past.keys()])];
  const known = JSON.stringify(names);
  if (parts.pools.dataset.known === known) return;
  parts.pools.dataset.known = known;
  put(parts.pools, names.length > 1 ? pick("Pool", [["", "all"], ...names.map((it) => /** @type {[string, string]} */ ([it, it]))], pool, (it) => { pool = it; update(); }).element : null);
}

/**
 * Events as marks; those that would lie on each other become one.
 * @param {number} low
 * @param {number} high
 */
export function marksOf(low, high) {
  const near = (high - low) / 150;
  /** @type {import("../plot.js").Mark[]} */
  const marks = [];
  for (const it of state.events) {
    const at = Date.parse(it.at);
    if (at < low || at > high || it.kind === "sessions") continue;
    const last = marks.at(-1);
    if (last && at - last.at < near) {
      last.alert ||= it.alert;
      const count = Number(/^(\d+) events/.exec(last.text)?.[1] ?? 1) + 1;
      last.text = `${count} events, the last: ${sentence(it)}`;
    } else marks.push({ at, text: sentence(it), alert: it.alert });
  }
  return marks;
}

/** @param {import("../types").Incident} it */
export function sentence(it) {
  const subject = it.replica ? short(it.replica) : it.kind === "sessions" ? "sessions" : it.kind;
  return `${subject} ${it.state}${it.reason ? ` (${it.reason})` : ""}${it.by ? ` by ${it.by}` : ""}`;
}

function update() {
  if (!parts) return;
  drawPools();
  const past = together(pool || undefined);
  const high = state.now?.at_ms ?? Date.now(), low = high - Number(minutes) * 60_000;
  const step = state.fleet?.sample_seconds ?? 5;
  const marks = marksOf(low, high);
  // A stretch without samples is a gap in the curve, not a line across it.
  const rows = (/** @type {(at: number) => number | null} */ of) => past.at_s.flatMap((at, i) => {
    /** @type {import("../plot.js").Point[]} */
    const found = i && at - past.at_s[i - 1] > 3 * step ? [[at * 1000 - 1, null]] : [];
    return at * 1000 < low ? [] : [...found, /** @type {import("../plot.js").Point} */ ([at * 1000, of(i)])];
  });
  const last = (/** @type {import("../plot.js").Point[]} */ points, /** @type {(it: number) => string} */ show) => {
    const found = points.at(-1)?.[1];
    return found === undefined || found === null ? undefined : show(found);
  };
  const curve = (/** @type {string} */ name, /** @type {number} */ hue, /** @type {(at: number) => number | null} */ of, /** @type {(it: number) => string} */ show, area = false) => {
    const points = rows(of);
    return { name, hue: `var(--c${hue})`, points, area, last: last(points, show) };
  };
  const rate = (/** @type {number[]} */ column) => (/** @type {number} */ i) => column[i] / spanOf(past, i);
  const common = {
    minX: low, maxX: high, x: (/** @type {number} */ it) => clock(it, Number(minutes) < 60), marks,
    none: "No sample yet. The first comes within five seconds.",
  };
  const draw = (/** @type {string} */ id, /** @type {any[]} */ curves, /** @type {any} */ options) => {
    const place = parts.charts[id];
    const width = place.clientWidth || 560;
    plot(place, curves, { ...common, width, xTicks: timeTicks(low, high, Math.max(2, Math.floor(width / 110))), ...options });
  };
  const perSecond = (/** @type {number} */ it) => `${digits(it)} /s`;
  const requests = [curve("answered", 1, rate(past.answered), perSecond, true)];
  const some = (/** @type {number[]} */ column) => column.some((it) => it > 0);
  if (some(past.failed)) requests.push(curve("failed", 2, rate(past.failed), perSecond));
  if (some(past.refused)) requests.push(curve("refused", 4, rate(past.refused), perSecond));
  if (some(past.cancelled)) requests.push(curve("client left", 7, rate(past.cancelled), perSecond));
  draw("requests", requests, { label: "Requests a second", y: perSecond });
  draw("first", [curve("p50", 1, (i) => past.p50_ms[i], time), curve("p90", 4, (i) => past.p90_ms[i], time), curve("p99", 2, (i) => past.p99_ms[i], time)], { label: "Time to first token", y: time, logY: true, none: past.at_s.length ? "No stream began in this span." : common.none });
  const tokens = (/** @type {number} */ it) => `${digits(it)} /s`;
  draw("tokens", [curve("prompt, computed", 2, (i) => Math.max(0, past.input[i] - past.cached[i]) / spanOf(past, i), tokens), curve("prompt, cached", 3, rate(past.cached), tokens), curve("answers", 1, rate(past.output), tokens)], { label: "Tokens a second", y: tokens });
  draw("hits", [curve("hits", 3, (i) => (past.input[i] > 0 ? past.cached[i] / past.input[i] : null), percent, true)], { label: "Cache hits", y: percent, maxY: 1, none: past.at_s.length ? "No prompt was counted in this span." : common.none });
  draw("busy", [curve("in flight", 1, (i) => past.in_flight[i], digits, true), curve("in the line", 2, (i) => past.waiting[i], digits)], { label: "Requests in flight and in the line", y: digits });
  drawEvents();
}

function drawEvents() {
  if (!parts) return;
  const shown = state.events.filter((it) => alerts === "all" || it.alert).slice(-100).reverse();
  const key = `${alerts} ${shown.length} ${shown[0]?.id ?? ""}`;
  if (parts.events.dataset.key === key) return;
  parts.events.dataset.key = key;
  put(parts.events, shown.length ? shown.map((it) => h("li", {},
    h("time", { datetime: it.at }, clock(Date.parse(it.at))), badge(it.kind, it.alert ? "bad" : "calm"),
    h("span", {}, h("b", {}, it.replica ? short(it.replica) : it.pool ?? ""), " ", it.before ? `${it.before} → ${it.state}` : it.state, it.reason ? ` (${it.reason})` : "", it.by ? ` by ${it.by}` : "", it.detail ? h("small", {}, it.detail) : null))) : h("li", { class: "none" }, alerts === "alerts" ? "No alert since the router started." : "Nothing happened since the router started."));
}

/** @type {import("../types").View} */
export const flow = {
  draw(place) {
    if (!place.firstChild) build(place);
    update();
  },
  update(kind) {
    if (kind === "past" || kind === "event") update();
  },
  leave() {
    parts = null;
  },
};
