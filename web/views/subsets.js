// Workloads against replicas: which may use which, with their load as shade; and what the last plan changed.

import { read } from "../api.js";
import { h, put, s } from "../dom.js";
import { state } from "../feed.js";
import { ago, digits, percent, plural, short, whole } from "../format.js";
import { freeze, mayOrder, orderButton, pin, unfreeze } from "../orders.js";
import { badge, card, figures, head, pick, poll, table, trouble } from "../parts.js";

const ROWS_MAX = 60;

/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;
let pool = "";
/** @type {any} */
let told = null;

/** @param {HTMLElement} place */
function build(place) {
  const pools = h("span"), frozen = h("span");
  place.append(head("Subsets", "Every workload (a tenant and a model) uses a few replicas, sized by its demand.", pools, frozen));
  const wrong = trouble();
  place.append(wrong.element);
  const set = figures(place, ["Generation", "Workloads", "Fullest replica", "Imbalance", "Rounds", "Moved"]);
  const matrix = card("Which may use which", "A row for each workload, a column for each replica. The darker, the more of the workload's load on each of its replicas.");
  const drawing = h("div", { class: "matrix scroll", tabindex: 0, role: "region", "aria-label": "Workloads against replicas" });
  matrix.append(drawing);
  const workloads = card("Workloads", "Heaviest first. Pin one to give it exactly the replicas it has now.");
  const setWorkloads = table(workloads, "Workloads", [
    { name: "Workload", of: (/** @type {any} */ it) => [h("b", {}, nameOf(it)), it.name ? h("small", {}, it.workload) : null], by: nameOf },
    { name: "Load", of: (it) => `${digits(it.mu_per_min)} MU/min`, by: (it) => it.mu_per_min, figure: true },
    { name: "Replicas", of: (it) => [it.replicas.length ? plural(it.replicas.length, "replica") : "all", h("small", {}, it.replicas.slice(0, 6).map(short).join(", "), it.replicas.length > 6 ? ", …" : "")], by: (it) => it.replicas.length },
    { name: "Zones", of: (it) => h("span", { class: "nowrap" }, it.zones.join(", ") || "–") },
    { name: "Marks", of: (it) => [it.pinned ? badge("pinned", "warn") : null, it.pinned_by ? h("small", {}, `by ${it.pinned_by.by}, ${ago((Date.now() - Date.parse(it.pinned_by.at)) / 1000)}`) : null, it.exclusive ? badge("exclusive", "calm") : null] },
    { name: "Order", of: (it) => it.pinned ? orderButton(pin(it.pool, it.workload, nameOf(it), []), "Unpin", () => asking?.now()) : it.replicas.length ? orderButton(pin(it.pool, it.workload, nameOf(it), it.replicas), "Pin here", () => asking?.now()) : "" },
  ], { none: "No workload has sent anything lately.", most: 50 });
  const changed = card("What the last plan changed", "Slices of the key space whose replicas are new in this generation.");
  const setChanged = table(changed, "Changes of the last plan", [
    { name: "Workload", of: (/** @type {any} */ it) => h("b", {}, it.workload) }, { name: "Replicas", of: (it) => [plural(it.replicas.length, "replica"), h("small", {}, it.replicas.slice(0, 3).map(short).join(", "), it.replicas.length > 3 ? ", …" : "")] },
    { name: "Why", of: (it) => badge(it.why.replaceAll("_", " ")) }, { name: "Before", of: (it) => (it.previous ? short(it.previous) : "–") },
    { name: "Load", of: (it) => `${digits(it.mu_per_min)} MU/min`, figure: true },
  ], { none: "Nothing: every workload has what it had.", most: 20 });
  const hot = card("Hot sessions", "Sessions that alone bring a good part of the load.");
  const setHot = table(hot, "Hot sessions", [
    { name: "Session", of: (/** @type {any} */ it) => h("a", { href: `#sessions/${it.key}` }, h("code", {}, it.key)) },
    { name: "Load", of: (it) => `${digits(it.mu_per_min)} MU/min`, figure: true },
  ], { none: "None stands out.", most: 10 });
  place.append(matrix, workloads, h("div", { class: "two" }, changed, hot));
  parts = { pools, frozen, set, drawing, setWorkloads, setChanged, setHot, wrong };
}

/** @param {any} it */
function nameOf(it) {
  return it.name ?? it.workload;
}

function update() {
  if (!parts || !told) return;
  const names = told.pools.map((/** @type {any} */ it) => it.name);
  if (parts.pools.dataset.known !== names.join()) {
    parts.pools.dataset.known = names.join();
    put(parts.pools, names.length > 1 ? pick("Pool", names.map((/** @type {string} */ it) => [it, it]), pool, (it) => { pool = it; update(); }).element : null);
  }
  const own = told.pools.find((/** @type {any} */ it) => it.name === pool) ?? told.pools[0];
  if (!own) return put(parts.drawing, h("p", { class: "none" }, "There is no pool."));
  if (parts.frozen.dataset.known !== `${own.frozen}${mayOrder()}`) {
    parts.frozen.dataset.known = `${own.frozen}${mayOrder()}`;
    put(parts.frozen, own.frozen ? [badge("frozen", "warn"), " ", orderButton(unfreeze(), "Unfreeze", () => asking?.now())] : orderButton(freeze(), "Freeze", () => asking?.now()));
  }
  const { balance, churn } = own;
  parts.set([
    [own.generation, own.divided ? "divided" : "not divided"], [whole(own.workloads.length), `two small ones share ${digits(own.overlap_expected)} replicas`],
    [percent(balance.max), `mean ${percent(balance.mean)}`], [digits(balance.imbalance), `no less than ${digits(balance.imbalance_bound)}`],
    [whole(own.rounds), `${whole(own.changes)} changed something`], [percent(churn.removal + churn.addition + churn.choice), "of all load, since the start"],
  ]);
  const workloads = own.workloads.map((/** @type {any} */ it) => ({ ...it, pool: own.name })).sort((/** @type {any} */ a, /** @type {any} */ b) => b.mu_per_min - a.mu_per_min);
  parts.setWorkloads(workloads);
  const newest = Math.max(0, ...own.slices.map((/** @type {any} */ it) => it.since));
  const named = new Map(workloads.map((/** @type {any} */ it) => [it.workload, nameOf(it)]));
  const current = Number(own.generation.split(".").at(-1));
  parts.setChanged(own.slices.filter((/** @type {any} */ it) => it.since === newest && newest === current && named.has(it.low.slice(0, 8))).map((/** @type {any} */ it) => ({ ...it, workload: named.get(it.low.slice(0, 8)) ?? it.low.slice(0, 8) })));
  parts.setHot(own.hot_keys);
  draw(own, workloads.slice(0, ROWS_MAX));
}

/**
 * @param {any} own
 * @param {any[]} workloads
 */
function draw(own, workloads) {
  if (!own.divided || !workloads.length) {
    return put(parts.drawing, h("p", { class: "none" }, own.divided ? "No workload has sent anything lately." : "This pool is not divided: it is small, or has one workload, so that every replica may take everything."));
  }
  const known = state.fleet?.pools.find((it) => it.name === own.name)?.replicas.map((it) => it.url) ?? [];
  const replicas = [...new Set(/** @type {string[]} */ ([...known, ...own.workloads.flatMap((/** @type {any} */ it) => it.replicas)]))].sort((a, b) => short(a).localeCompare(short(b), "en", { numeric: true }));
  const column = new Map(replicas.map((it, at) => [it, at]));
  // A fleet of hundreds is drawn as wide as there is room, so that a row is seen whole; names are then told by pointing.
  const room = (parts.drawing.clientWidth - 220) / replicas.length;
  const cell = replicas.length > 128 ? Math.max(1.5, Math.min(6, room)) : replicas.length > 48 ? 12 : Math.max(22, Math.min(46, Math.floor(room)));
  const high = 24, left = 200, top = cell >= 12 ? 108 : 14, gap = cell > 4 ? 1 : 0;
  const most = Math.max(...workloads.map((it) => it.mu_per_min / Math.max(1, it.replicas.length)), 1e-9);
  const wide = left + replicas.length * cell + 12, tall = top + workloads.length * high + 4;
  const parts_ = [];
  if (cell >= 12) for (const [name, at] of column) {
    const x = left + at * cell + cell / 2 + 4;
    parts_.push(s("text", { x, y: top - 6, transform: `rotate(-55 ${x} ${top - 6})` }, clip(short(name), 20)));
  }
  workloads.forEach((it, row) => {
    const y = top + row * high;
    parts_.push(s("text", { x: left - 8, y: y + high / 2 + 4, "text-anchor": "end", class: "row-name" }, clip(nameOf(it), 27), s("title", {}, nameOf(it))));
    parts_.push(s("line", { class: "grid", x1: left, x2: wide - 8, y1: y + high, y2: y + high }));
    const each = it.mu_per_min / Math.max(1, it.replicas.length);
    for (const name of it.replicas) {
      const shade = 0.18 + 0.82 * Math.sqrt(each / most);
      parts_.push(s("rect", { class: ["cell", it.pinned && "pinned"], x: left + (column.get(name) ?? 0) * cell + gap, y: y + 2, width: Math.max(3, cell - 2 * gap), height: high - 4, rx: Math.min(4, cell / 4), vars: { "--shade": shade.toFixed(2) } }, s("title", {}, `${nameOf(it)} on ${short(name)}: about ${digits(each)} MU/min${it.pinned ? ", pinned" : ""}`)));
    }
  });
  const label = `${plural(workloads.length, "workload")} on ${plural(replicas.length, "replica")}: ${workloads.slice(0, 8).map((it) => `${nameOf(it)} uses ${plural(it.replicas.length, "replica")}`).join("; ")}`;
  put(parts.drawing, h("div", { class: "plot" }, s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": label, vars: { width: `${wide}px`, "max-width": "none" } }, parts_)));
}

/**
 * @param {string} text
 * @param {number} most
 */
function clip(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** @type {import("../types").View} */
export const subsets = {
  draw(place) {
    if (place.firstChild) return;
    build(place);
    asking = poll(async () => { told = await read("assignment"); update(); }, 2000, (error) => parts?.wrong.say(error));
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
