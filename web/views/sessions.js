// Sessions: how many moved and why, over time; and where one lives and lived.

import { read } from "../api.js";
import { h, put, s } from "../dom.js";
import { state } from "../feed.js";
import { ago, clock, digits, percent, plural, short, whole } from "../format.js";
import { card, figures, head, table } from "../parts.js";
import { timeTicks, ticks } from "../plot.js";
import { sum, together } from "../sums.js";
import { sessionKey } from "../xxh3.js";

const CAUSES = /** @type {Record<string, [string, number]>} */ ({
  lost: ["its replica is gone, takes nothing or failed", 2], drained: ["an operator empties its replica", 7],
  overloaded: ["its replica had too much to do", 4], spilled: ["the replicas of its subset are busy or out", 5],
  rebalanced: ["its replica is not of its subset any more", 1], kept: ["it names by an id what another replica keeps", 3],
  rule: ["the policy keeps no sessions", 6],
});

/** @type {any} */
let parts = null;

/** @param {HTMLElement} place */
function build(place) {
  place.append(head("Sessions", "A session stays on the replica that has its cache. Here is when one left, and why."));
  const set = figures(place, ["Sessions", "Moved since the start", "Moved in the last hour"]);
  const field = h("input", { id: "session", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "x-session-id, or 16 digits" });
  const found = h("div", { class: "found", role: "status" });
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); void find(field.value.trim()); };
  const look = card("Find a session", "By its id, which is hashed here and does not leave the browser, or by its sixteen digits, as the access log and explanations show it.");
  look.append(h("form", { class: "inline", onsubmit: submit }, h("label", { class: "hidden", for: "session" }, "Session id or its sixteen digits"), field, h("button", { class: "primary", type: "submit" }, "Find")), found);
  const chart = h("div", { class: "chart" });
  const moves = card("Moves by cause", "A minute, over the last hour.", chart);
  const causes = card("Since the start", null);
  const setCauses = table(causes, "Moves by cause", [
    { name: "Cause", of: (/** @type {any} */ it) => h("span", { class: "nowrap" }, h("i", { class: "swatch", vars: { "--hue": `var(--c${it.hue})` } }), h("b", {}, it.cause)) },
    { name: "Why", of: (it) => it.why }, { name: "Sessions", of: (it) => whole(it.count), by: (it) => it.count, figure: true },
    { name: "Share", of: (it) => percent(it.share), figure: true },
  ], { none: "No session has moved." });
  place.append(look, h("div", { class: "two" }, moves, causes));
  parts = { set, field, found, chart, setCauses };
}

/** @param {string} text */
async function find(text) {
  const { found } = parts;
  if (!text) return;
  put(found, h("p", { class: "note" }, "Looking."));
  try {
    if (/^[0-9a-f]{16}$/i.test(text)) return show([await read(`session/${text.toLowerCase()}`)], text);
    const workloads = /** @type {{ name: string, seed: string }[]} */ (await read("workloads"));
    const looked = await Promise.all(workloads.slice(0, 64).map((it) => read(`session/${sessionKey(it.seed, text)}`)));
    const known = looked.filter((it) => it.home || it.visits.length);
    if (known.length) return show(known, text);
    put(found, h("p", { class: "none" }, `No session of this name is remembered for ${plural(workloads.length, "known workload")}. Sessions of tenants that are known only by their API key are found by their sixteen digits.`));
  } catch (error) {
    put(found, h("p", { class: "error" }, error instanceof Error ? error.message : String(error)));
  }
}

/**
 * @param {any[]} all
 * @param {string} text
 */
function show(all, text) {
  put(parts.found, all.map((it) => h("article", { class: "session" },
    h("h3", {}, h("code", {}, it.key), it.workload ? h("small", {}, it.workload) : null),
    it.home ? h("p", {}, "Lives on ", h("b", {}, short(it.home.replica)), ` in pool ${it.home.pool}, served last ${ago(it.home.served_seconds)}.`) : h("p", {}, text.length === 16 ? "No replica is remembered for it: it is unknown, or too long ago." : "No replica is remembered for it."),
    it.visits.length ? [h("p", { class: "note" }, "Decisions that were kept, the newest first:"), h("ol", { class: "visits" }, it.visits.slice(0, 30).map((/** @type {any} */ one) => h("li", {},
      h("small", {}, ago(one.age_seconds)), " ", h("a", { href: `#request/${encodeURIComponent(one.request_id)}` }, short(one.replica)), one.moved_from ? ` from ${short(one.moved_from)}: ${one.moved_because}` : "",
      one.cached_tokens === null ? null : h("small", {}, ` ${percent(one.cached_tokens / Math.max(1, one.prompt_tokens))} of ${digits(one.prompt_tokens)} tokens cached`))))] : h("p", { class: "note" }, `No decision about it is kept (${percent(state.fleet?.explained ?? 0)} of all are).`))));
}

function update() {
  if (!parts || !state.now || !state.fleet) return;
  const past = together();
  const { causes } = state.fleet;
  const totals = causes.map((_, at) => sum((state.now?.pools ?? []).map((it) => it.moved[at])));
  const all = sum(totals);
  const hour = sum(past.moved.map(sum));
  const sessions = sum(state.now.pools.map((it) => sum(it.replicas.sessions ?? [])));
  parts.set([[whole(sessions), "that live on a replica"], [whole(all), all ? "see why below" : "none"], [whole(hour), sessions ? `${digits(hour / sessions)} a session` : ""]]);
  parts.setCauses(causes.map((cause, at) => ({ cause, why: CAUSES[cause]?.[0] ?? "", hue: CAUSES[cause]?.[1] ?? 7, count: totals[at], share: all ? totals[at] / all : 0 })).filter((it) => it.count > 0));
  draw(past, causes);
}

/**
 * Bars of a minute each, made of causes.
 * @param {import("../types").Past} past
 * @param {string[]} causes
 */
function draw(past, causes) {
  const high = Math.floor((state.now?.at_ms ?? 0) / 60_000), low = high - 59;
  const minutes = Array.from({ length: 60 }, () => causes.map(() => 0));
  past.at_s.forEach((at, i) => {
    const minute = Math.floor(at / 60) - low;
    if (minute >= 0 && minute < 60) past.moved[i].forEach((it, cause) => { minutes[minute][cause] += it; });
  });
  const most = Math.max(...minutes.map(sum));
  if (!most) return put(parts.chart, h("p", { class: "none" }, "No session moved in the last hour."));
  const wide = Math.max(300, parts.chart.clientWidth || 560), tall = 210, left = 46, bottom = 24, top = 10;
  const step = (wide - left - 8) / 60, sy = (/** @type {number} */ it) => tall - bottom - (tall - bottom - top) * (it / (most * 1.06));
  const drawn = [];
  for (const at of ticks(0, most, false)) drawn.push(s("line", { class: "grid", x1: left, x2: wide - 8, y1: sy(at), y2: sy(at) }), s("text", { x: left - 6, y: sy(at) + 4, "text-anchor": "end" }, digits(at)));
  for (const at of timeTicks(low * 60_000, (high + 1) * 60_000, Math.max(2, Math.floor(wide / 110)))) {
    const x = left + (at / 60_000 - low) * step;
    drawn.push(s("text", { x, y: tall - 8, "text-anchor": "middle" }, clock(at, false)));
  }
  minutes.forEach((row, at) => {
    let below = 0;
    row.forEach((count, cause) => {
      if (!count) return;
      drawn.push(s("rect", { class: "stack", x: left + at * step + 0.5, y: sy(below + count), width: Math.max(1.5, step - 1.5), height: Math.max(0.5, sy(below) - sy(below + count)), vars: { "--hue": `var(--c${CAUSES[causes[cause]]?.[1] ?? 7})` } }, s("title", {}, `${clock((low + at) * 60_000, false)}: ${count} ${causes[cause]}`)));
      below += count;
    });
  });
  const seen = causes.filter((_, at) => minutes.some((row) => row[at]));
  put(parts.chart, h("div", { class: "plot" },
    h("ul", { class: "legend" }, seen.map((it) => h("li", { vars: { "--hue": `var(--c${CAUSES[it]?.[1] ?? 7})` } }, h("i"), it))),
    s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `Sessions that moved a minute, at most ${most}` }, drawn)));
}

/** @type {import("../types").View} */
export const sessions = {
  draw(place, rest) {
    if (!place.firstChild) build(place);
    update();
    if (rest && parts.field.value !== rest) {
      parts.field.value = rest;
      void find(rest);
    }
  },
  update(kind) {
    if (kind === "past") update();
  },
  leave() {
    parts = null;
  },
};
