// Every replica as a tile: how it is, how full, what it has in flight and in memory, and how soon its first tokens come.

import { h, mark, put, say } from "../dom.js";
import { replicas, state } from "../feed.js";
import { ago, digits, percent, plural, short, time, whole } from "../format.js";
import { drain, orderButton, undrain } from "../orders.js";
import { badge, choice, figures, head, pick, shapeOf, toneOf } from "../parts.js";
import { lastMinute } from "../sums.js";

/** @typedef {import("../types").Replica} Replica */

/** From here on a replica is called slow: beside its class's times, or beside its own hour. */
const SLOW_PACE = 1.3, SLOW_HOUR = 2, SLOW_MIN_MS = 50;

let sort = "name", group = "pool", wanted = "";
/** @type {string | null} */
let opened = null;
/** @type {any} */
let parts = null;
/** @type {Map<string, any>} */
const tiles = new Map();
let layout = "";

const keyOf = (/** @type {Replica} */ it) => `${it.pool} ${it.url}`;

/**
 * Why an operator should look at a replica; nothing for one that is well.
 * @param {Replica} it
 * @returns {[string, string] | null} words and tone
 */
export function troubleOf(it) {
  if (it.state !== "up") return [it.note?.reason ? `${it.state}: ${it.note.reason}` : it.state, toneOf(it.state)];
  if (it.pace >= SLOW_PACE) return [`slow, ${it.pace.toFixed(1)}× its time`, "warn"];
  const { first_token_ms: now, first_token_hour_ms: hour } = it;
  if (now !== null && hour !== null && now >= SLOW_MIN_MS && now >= SLOW_HOUR * hour) return [`${(now / hour).toFixed(1)}× its hour`, "warn"];
  if (it.fill >= 1) return ["past its knee", "warn"];
  return null;
}

/** @param {HTMLElement} place */
function build(place) {
  const search = h("input", { type: "search", placeholder: "Find a replica", "aria-label": "Find a replica", value: wanted, oninput: () => { wanted = search.value; redraw(); } });
  const sorted = pick("Sort", [["name", "name"], ["trouble", "trouble first"], ["fill", "fullest first"], ["first_token_ms", "slowest first token"], ["in_flight", "most in flight"]], sort, (it) => { sort = it; redraw(); });
  const grouped = choice("Group by", [["pool", "Pool"], ["class", "Hardware"], ["zone", "Zone"], ["none", "All"]], group, (it) => { group = it; redraw(); });
  place.append(head("Fleet", "Every replica as this router sees it, twice a second.", search, sorted.element, grouped.element));
  const set = figures(place, ["Replicas up", "In flight", "Waiting here", "Requests", "First token p50", "Cache hits", "Answer tokens"]);
  const attention = h("div", { class: "attention" }), grid = h("div", { class: "fleet" });
  const detail = h("aside", { class: "detail card", hidden: true, "aria-label": "One replica" });
  place.append(attention, h("div", { class: "fleet-and-detail" }, grid, detail));
  tiles.clear();
  layout = "";
  parts = { set, attention, grid, detail };
}

/** @param {Replica} it */
function tile(it) {
  const name = short(it.url);
  const open = () => { opened = opened === keyOf(it) ? null : keyOf(it); update(); if (opened) parts.detail.scrollIntoView({ block: "nearest" }); };
  const made = {
    shape: h("i", { class: "shape", "aria-hidden": "true" }), word: h("span", { class: "word" }), spoken: h("span", { class: "hidden" }), fill: h("b"), mu: h("span"),
    flight: h("b"), engine: h("span"), kv: h("b"), cached: h("span"), token: h("b"), hour: h("span"), bar: h("i", { "aria-hidden": "true" }),
  };
  const pair = (/** @type {string} */ label, /** @type {any} */ a, /** @type {any} */ b) => h("span", { class: "pair" }, h("small", {}, label), a, b);
  const box = h("button", { type: "button", class: "tile", onclick: open },
    h("span", { class: "tile-head" }, made.shape, h("span", { class: "name" }, name), made.spoken, made.word),
    h("span", { class: "fill" }, made.bar),
    h("span", { class: "rows" }, pair("Of its knee", made.fill, made.mu), pair("In flight", made.flight, made.engine), pair("KV held", made.kv, made.cached), pair("First token", made.token, made.hour)));
  return { ...made, box };
}

/**
 * @param {any} own
 * @param {Replica} it
 */
function refresh(own, it) {
  const wrong = troubleOf(it);
  const tone = wrong?.[1] ?? "good";
  mark(own.box, "data-tone", tone);
  mark(own.box, "aria-expanded", String(opened === keyOf(it)));
  say(own.shape, wrong && it.state === "up" ? "▲" : shapeOf(it.state));
  say(own.word, wrong?.[0] ?? "");
  // What a shape says, for readers who hear the page.
  say(own.spoken, wrong ? "" : it.state);
  say(own.fill, percent(it.fill));
  say(own.mu, `${digits(it.mu)} MU`);
  say(own.flight, whole(it.in_flight));
  say(own.engine, it.running === null ? "" : `${it.running} run, ${it.waiting} wait`);
  say(own.kv, it.kv_share === null ? `${digits(it.kv_tokens)} tok` : percent(it.kv_share));
  say(own.cached, it.cached === null ? "" : `${percent(it.cached)} cached`);
  say(own.token, time(it.first_token_ms));
  say(own.hour, it.first_token_hour_ms === null ? "" : `hour ${time(it.first_token_hour_ms)}`);
  own.bar.style.setProperty("--share", `${Math.min(1, it.fill / 1.25) * 100}%`);
}

/** @param {Replica[]} all */
function arrange(all) {
  const found = all.filter((it) => !wanted || `${it.url} ${it.class} ${it.zone ?? ""} ${it.pool} ${it.state}`.toLowerCase().includes(wanted.toLowerCase()));
  const rank = (/** @type {Replica} */ it) => sort === "trouble" ? Number(Boolean(troubleOf(it))) : sort === "name" ? 0 : Number(/** @type {any} */ (it)[sort] ?? -1);
  const order = [...found].sort((a, b) => rank(b) - rank(a) || short(a.url).localeCompare(short(b.url), "en", { numeric: true }));
  /** @type {Map<string, Replica[]>} */
  const groups = new Map();
  for (const it of order) {
    const name = group === "none" ? "All replicas" : group === "zone" ? it.zone ?? "no zone" : group === "class" ? it.class || "unknown" : it.pool;
    groups.set(name, [...(groups.get(name) ?? []), it]);
  }
  const size = found.length <= 64 ? "large" : found.length <= 160 ? "medium" : "small";
  // Sorted by what changes, tiles would jump under the pointer: they are put in order again when they are asked for.
  const next = JSON.stringify([size, [...groups].map(([name, them]) => [name, them.map(keyOf)])]);
  if (next === layout || (sort !== "name" && layout !== "" && sameSet(layout, next))) return;
  layout = next;
  const { grid } = parts;
  mark(grid, "data-size", size);
  if (!found.length) {
    return put(grid, h("p", { class: "none" }, all.length ? `No replica fits “${wanted}”.` : "There is no replica. They come from the configuration, or from discovery."));
  }
  put(grid, [...groups].sort((a, b) => a[0].localeCompare(b[0])).map(([name, them]) => h("section", {},
    groups.size > 1 || group !== "none" ? h("h2", {}, name, " ", h("small", {}, `${plural(them.length, "replica")}${group === "pool" ? about(name) : ""}`)) : null,
    h("div", { class: "tiles" }, them.map((it) => {
      const key = keyOf(it);
      if (!tiles.has(key)) tiles.set(key, tile(it));
      return tiles.get(key).box;
    })))));
}

/** @param {string} name */
function about(name) {
  const pool = state.fleet?.pools.find((it) => it.name === name);
  return pool ? ` · ${pool.policy} · ${pool.models.join(", ") || "no model yet"}` : "";
}

/**
 * @param {string} one
 * @param {string} other
 */
function sameSet(one, other) {
  const flat = (/** @type {string} */ it) => JSON.stringify(JSON.parse(it).flat(9).sort());
  return flat(one) === flat(other);
}

function redraw() {
  layout = "";
  update();
}

/** @param {Replica} it */
function details(it) {
  const rows = /** @type {[string, any][]} */ ([
    ["State", [shapeOf(it.state), " ", it.state, it.note?.reason ? ` (${it.note.reason})` : ""]],
    ["Detail", it.note?.detail], ["Drained by", it.note?.drained ? `${it.note.drained.by}, ${it.note.drained.at}` : null],
    ["Pool", it.pool], ["Hardware", it.class || "unknown"], ["Zone", it.zone ?? "none"], ["Weight", digits(it.weight)],
    ["Full", `${percent(it.fill)} of its knee`], ["Work in flight", `${digits(it.mu)} MU (makes ${digits(it.mu_per_min)} MU/min)`],
    ["Pace", `${it.pace.toFixed(2)}× the time its class takes`], ["In flight", plural(it.in_flight, "request")],
    ["Engine", it.running === null ? "says nothing" : `${it.running} running, ${it.waiting} waiting (${time((it.report_age_s ?? 0) * 1000)} ago)`],
    ["KV held", it.kv_share === null ? `${whole(it.kv_tokens)} tokens booked` : `${percent(it.kv_share)}${it.kv_tokens_max ? ` of ${whole(it.kv_tokens_max)} tokens` : ""}`],
    ["Cached", it.cached === null ? "–" : `${percent(it.cached)} of prompt tokens, last minute`], ["Sessions", whole(it.sessions)],
    ["First token p50", `${time(it.first_token_ms)} now, ${time(it.first_token_hour_ms)} over its hour`],
    ["Sent", `${plural(it.sent, "request")}, ${whole(it.failed)} failed`],
  ]);
  const close = () => { opened = null; update(); };
  const is_drained = it.state === "drained" || it.state === "draining" || Boolean(it.note?.drained);
  const events = state.events.filter((one) => one.replica === it.url).slice(-6).reverse();
  return [
    h("div", { class: "card-head" }, h("h2", {}, short(it.url)), h("button", { type: "button", class: "quiet", onclick: close, "aria-label": "Close" }, "✕")),
    troubleOf(it) ? h("p", {}, badge(/** @type {any} */ (troubleOf(it))[0], /** @type {any} */ (troubleOf(it))[1])) : null,
    h("dl", {}, rows.filter((row) => row[1]).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("p", { class: "buttons" }, is_drained ? orderButton(undrain(it.url), "Undrain") : orderButton(drain(it.url), "Drain")),
    events.length ? [h("h3", {}, "What happened"), h("ul", { class: "plain" }, events.map((one) => h("li", {}, h("small", {}, ago((Date.now() - Date.parse(one.at)) / 1000)), " ", one.before ? `${one.before} → ${one.state}` : one.state, one.reason ? ` (${one.reason})` : "")))] : null,
  ];
}

let shownDetail = "";

function update() {
  if (!parts || !state.now) return;
  const all = replicas();
  const up = all.filter((it) => it.state === "up").length;
  const flow = lastMinute();
  const sum = (/** @type {(it: any) => number} */ of) => state.now?.pools.reduce((total, it) => total + of(it), 0) ?? 0;
  parts.set([
    [whole(up), `of ${whole(all.length)} in ${plural(state.now.pools.length, "pool")}`, all.some((it) => toneOf(it.state) === "bad") ? "bad" : ""],
    [whole(sum((it) => it.in_flight)), plural(state.now.connections, "connection")],
    [whole(sum((it) => it.waiting)), "in the line", sum((it) => it.waiting) > 0 ? "warn" : ""],
    [`${digits(flow.requests)} /s`, flow.failed ? `${digits(flow.failed)} /s failed` : "none failed", flow.failed ? "bad" : ""],
    [time(flow.p50_ms), "last minute"], [percent(flow.hits), "of prompt tokens"], [`${digits(flow.output)} /s`, "last minute"],
  ]);
  arrange(all);
  const known = new Set();
  for (const it of all) {
    const key = keyOf(it);
    known.add(key);
    const own = tiles.get(key);
    if (own) refresh(own, it);
  }
  for (const key of tiles.keys()) if (!known.has(key)) tiles.delete(key);
  const wrong = all.filter((it) => ["warn", "bad"].includes(troubleOf(it)?.[1] ?? "")).slice(0, 12);
  const said = JSON.stringify(wrong.map((it) => [keyOf(it), troubleOf(it)]));
  if (said !== parts.attention.dataset.said) {
    parts.attention.dataset.said = said;
    put(parts.attention, wrong.length ? [h("h2", {}, "Needs a look"), h("ul", {}, wrong.map((it) => h("li", {}, h("button", { type: "button", class: "quiet", onclick: () => { opened = keyOf(it); update(); } }, h("b", {}, short(it.url)), " ", badge(.../** @type {[string, string]} */ (troubleOf(it)))))))] : null);
  }
  const one = all.find((it) => keyOf(it) === opened);
  parts.detail.hidden = !one;
  const next = one ? JSON.stringify([one, state.events.length]) : "";
  if (one && next !== shownDetail && !parts.detail.contains(document.activeElement)) put(parts.detail, details(one));
  else if (one && !parts.detail.firstChild) put(parts.detail, details(one));
  shownDetail = next;
}

/** @type {import("../types").View} */
export const fleet = {
  draw(place) {
    if (!place.firstChild) build(place);
    update();
  },
  update(kind) {
    if (kind === "now" || kind === "past") update();
  },
  leave() {
    parts = null;
  },
};
