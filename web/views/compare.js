// Two pools side by side on the same scales: the two halves of the demo, each from its own beginning.

import { h, put, say } from "../dom.js";
import { state } from "../feed.js";
import { digits, percent, time } from "../format.js";
import { card, head, table } from "../parts.js";
import { plot } from "../plot.js";
import { over } from "../sums.js";

/** @typedef {import("../types").Past} Past */

/** @type {any} */
let parts = null;

const FIGURES = /** @type {[string, string, (it: any) => string, -1 | 1][]} */ ([
  ["First token, p50", "p50_ms", time, -1], ["First token, p90", "p90_ms", time, -1], ["First token, p99", "p99_ms", time, -1],
  ["Cache hits", "hits", percent, 1], ["Prompt tokens computed", "computed", (it) => `${digits(it)} /s`, -1],
  ["Answer tokens", "output", (it) => `${digits(it)} /s`, 1], ["Requests answered", "requests", (it) => `${digits(it)} /s`, 1],
]);

const ROWS = /** @type {[string, string, (past: Past, i: number) => number | null, (it: number) => string, any][]} */ ([
  ["first", "First token p50 and p99", (past, i) => past.p50_ms[i], time, { logY: true }],
  ["hits", "Cache hits", (past, i) => (past.input[i] ? past.cached[i] / past.input[i] : null), percent, { maxY: 1 }],
  ["flight", "In flight", (past, i) => past.in_flight[i], digits, {}],
]);

/** Samples while there was traffic; those while people arrive are not counted. @param {Past} past */
function busy(past) {
  const first = past.answered.findIndex((it) => it > 0);
  let end = past.answered.length;
  while (end > 0 && past.answered[end - 1] === 0) end -= 1;
  const warm = first + Math.floor((end - first) / 3);
  return { first: Math.max(0, first), warm: Math.max(0, warm), end };
}

/** @param {HTMLElement} place */
function build(place) {
  const [one, other] = state.fleet?.compared ?? [];
  place.append(head("Side by side", `The same conversations with cold caches: first under ${one}, then under ${other}. Both on the same scales, each from its own beginning.`));
  const verdict = h("p", { class: "verdict", role: "status" });
  const summary = card("What it comes to", "Medians of samples, weighed by their answers. The first third, while people arrive, does not count.", verdict);
  const set = table(summary, "Both halves", [
    { name: "Figure", of: (/** @type {any} */ it) => it.name }, { name: one, of: (it) => it.one, figure: true },
    { name: other, of: (it) => it.other, figure: true }, { name: "change", of: (it) => it.change, figure: true },
  ], { none: "Nothing yet." });
  const charts = Object.fromEntries([one, other].map((pool) => [pool, Object.fromEntries(ROWS.map(([id]) => [id, h("div", { class: "chart" })]))]));
  const heads = [one, other].map((pool) => h("h2", { class: "half" }, pool, " ", h("small")));
  const note = (/** @type {string} */ pool) => pool === one ? heads[0] : heads[1];
  place.append(summary, h("div", { class: "halves" }, [one, other].map((pool) => h("section", { class: "card" }, note(pool), ROWS.map(([id, title]) => [h("h3", {}, title), charts[pool][id]])))));
  parts = { set, charts, verdict, heads, pools: [one, other] };
}

/**
 * @param {number | null} before
 * @param {number | null} after
 */
function change(before, after) {
  if (!before || !after) return "";
  const factor = after / before;
  return factor >= 1 ? `× ${digits(factor)}` : `÷ ${digits(1 / factor)}`;
}

function update() {
  if (!parts) return;
  const halves = parts.pools.map((/** @type {string} */ pool) => {
    const past = state.past.get(pool);
    return past && past.answered.some((it) => it > 0) ? { past, ...busy(past) } : null;
  });
  const [one, other] = halves.map((/** @type {any} */ it) => (it && it.end > it.warm ? over(it.past, it.warm, it.end) : null));
  parts.set(FIGURES.map(([name, key, show]) => ({ name, one: show(/** @type {any} */ (one)?.[key] ?? null), other: show(/** @type {any} */ (other)?.[key] ?? null), change: change(/** @type {any} */ (one)?.[key], /** @type {any} */ (other)?.[key]) })));
  const running = state.fleet?.pools[0]?.name;
  parts.heads.forEach((/** @type {any} */ it, /** @type {number} */ at) => say(it.lastChild, !halves[at] ? "comes next" : running === parts.pools[at] ? "now" : "over"));
  const faster = one?.p50_ms && other?.p50_ms ? one.p50_ms / other.p50_ms : null;
  say(parts.verdict, faster === null ? `${parts.pools[0]} is measured first; ${parts.pools[1]} follows.` : `First tokens come ${faster >= 1 ? `${digits(faster)} times sooner` : `${digits(1 / faster)} times later`} under ${parts.pools[1]}, and ${percent(other?.hits)} of prompt tokens are found in a cache instead of ${percent(one?.hits)}.`);
  const longest = Math.max(20, ...halves.map((/** @type {any} */ it) => (it ? it.past.at_s[it.end - 1] - it.past.at_s[it.first] : 0)));
  for (const [id, title, of, show, options] of ROWS) {
    const curves = halves.map((/** @type {any} */ it) => {
      if (!it) return [];
      const points = (/** @type {(i: number) => number | null} */ value) => it.past.at_s.slice(it.first, it.end).map((/** @type {number} */ at, /** @type {number} */ i) => [at - it.past.at_s[it.first], value(it.first + i)]);
      const all = [{ name: id === "first" ? "p50" : title, hue: "var(--c1)", points: points((i) => of(it.past, i)), area: id !== "first" }];
      if (id === "first") all.push({ name: "p99", hue: "var(--c2)", points: points((i) => it.past.p99_ms[i]), area: false });
      return all;
    });
    const values = curves.flat().flatMap((/** @type {any} */ it) => it.points.map((/** @type {any} */ point) => point[1])).filter((/** @type {any} */ it) => it !== null && it > 0);
    const scale = !values.length ? {} : options.logY ? { minY: 10 ** Math.floor(Math.log10(Math.min(...values))), maxY: 10 ** Math.ceil(Math.log10(Math.max(...values) * 1.01)) } : { maxY: options.maxY ?? Math.max(...values) * 1.08 };
    halves.forEach((/** @type {any} */ it, /** @type {number} */ at) => {
      const place = parts.charts[parts.pools[at]][id];
      plot(place, curves[at], { label: `${title}, ${parts.pools[at]}`, y: show, x: (/** @type {number} */ s) => `${s} s`, minX: 0, maxX: longest, height: 150, width: place.clientWidth || 480, legend: id === "first", none: it ? "No figures yet." : "This half comes next.", ...options, ...scale });
    });
  }
}

/** @type {import("../types").View} */
export const compare = {
  draw(place) {
    if (!place.firstChild) build(place);
    update();
  },
  update(kind) {
    if (kind === "past" || kind === "fleet") update();
  },
  leave() {
    parts = null;
  },
};
