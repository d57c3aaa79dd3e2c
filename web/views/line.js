// The line and the tenants: which requests wait, for how long and why; what contracts allow and what was used of them.

import { read } from "../api.js";
import { h } from "../dom.js";
import { state } from "../feed.js";
import { bytes, digits, percent, plural, time, whole } from "../format.js";
import { badge, card, figures, head, meter, poll, table, trouble } from "../parts.js";

/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;
let wanted = "";

const REASONS = /** @type {Record<string, string>} */ ({
  no_replica: "no replica could take it", tries_spent: "tried as often as it may be", retry_budget_spent: "the retry budget was spent",
  quarantined: "replicas went down under it", suspected: "a replica went down under it", line_full: "the line was full",
  deadline_unmeetable: "its deadline could not be met", deadline_passed: "its deadline passed while it waited",
  waited_out: "it waited as long as its class may", sessions_full: "KV memory was full for new sessions",
  pool_restarted: "the pool's decisions were rebuilt", id_not_found: "what it names is gone", over_contract: "beyond its contract",
  replica_unauthorized: "no replica takes the router's key",
});

/** @param {HTMLElement} place */
function build(place) {
  const search = h("input", { type: "search", placeholder: "Find a tenant", "aria-label": "Find a tenant", value: wanted, oninput: () => { wanted = search.value; drawTenants(); } });
  place.append(head("Line & tenants", "Which requests wait, for how long and why; contracts and what was used of them.", search));
  const wrong = trouble();
  place.append(wrong.element);
  const set = figures(place, ["Waiting", "Work waiting", "The line moves", "Gone in about", "Held in memory"]);
  const classes = card("Classes", "What each class promises, and what of it waits.");
  const line = card("Waiting now", "Requests of one class and tenant that wait for the same.");
  const tenants = card("Tenants", "What contracts allow in a minute, what is left of it, and what was used since the start.");
  const refused = card("Refused", "Since the start, by tenant, class and reason.");
  place.append(h("div", { class: "two wide-first" }, line, classes), tenants, refused);
  const setClasses = table(classes, "Classes", [
    { name: "Class", of: (/** @type {any} */ it) => [h("b", {}, it.name), it.pools > 1 ? h("small", {}, it.pool) : null] },
    { name: "First token", of: (it) => (it.first_token_ms === null ? "–" : `in ${time(it.first_token_ms)}`), figure: true },
    { name: "May wait", of: (it) => time(it.wait_max_ms), figure: true },
    { name: "Waits", of: (it) => [whole(it.waiting), it.mu > 0 ? h("small", {}, `${digits(it.mu)} MU`) : null], by: (it) => it.waiting, figure: true },
  ], { none: "There is no pool." });
  const setLine = table(line, "Waiting now", [
    { name: "Tenant", of: (/** @type {any} */ it) => h("b", {}, it.tenant), by: (it) => it.tenant },
    { name: "Class", of: (it) => it.class, by: (it) => it.class },
    { name: "Waits for", of: (it) => [badge(it.waits_for, "warn"), " ", h("small", {}, it.because)] },
    { name: "Requests", of: (it) => whole(it.count), by: (it) => it.count, figure: true },
    { name: "Work", of: (it) => `${digits(it.mu)} MU`, by: (it) => it.mu, figure: true },
    { name: "Longest", of: (it) => time(it.oldest_ms), by: (it) => it.oldest_ms, figure: true },
  ], { none: "Nothing waits: what comes is sent at once." });
  const used = (/** @type {any} */ it, /** @type {string} */ kind) => it.limits[kind] === null ? h("small", { title: "not limited" }, "no limit") : meter(1 - it.remaining[kind] / it.limits[kind], `${digits(it.limits[kind] - it.remaining[kind])} of ${digits(it.limits[kind])}`, it.remaining[kind] <= 0 ? "bad" : "");
  const total = (/** @type {any} */ it) => it.used.reduce((/** @type {number} */ all, /** @type {any} */ one) => all + one.mu, 0);
  const setTenants = table(tenants, "Tenants", [
    { name: "Tenant", of: (/** @type {any} */ it) => [h("b", {}, it.name), it.pools > 1 ? h("small", {}, it.pool) : null], by: (it) => it.name },
    { name: "Share", of: (it) => meter(it.share, percent(it.share)), by: (it) => it.share, figure: true },
    { name: "Used", of: (it) => [`${digits(total(it))} MU`, h("small", {}, it.used.filter((/** @type {any} */ one) => one.mu > 0).map((/** @type {any} */ one) => `${one.kind.replace("_", " ")} ${digits(one.mu)}`).join(", "))], by: total, figure: true, hint: "Work since the start" },
    { name: "MU/min", of: (it) => used(it, "mu"), figure: true },
    { name: "Tokens/min", of: (it) => used(it, "tokens"), figure: true },
    { name: "Requests/min", of: (it) => used(it, "requests"), figure: true },
    { name: "In flight", of: (it) => whole(it.in_flight), by: (it) => it.in_flight, figure: true },
    { name: "Waiting", of: (it) => whole(it.waiting), by: (it) => it.waiting, figure: true },
  ], { none: "No tenant was seen yet.", most: 100, sort: 2 });
  const setRefused = table(refused, "Refused", [
    { name: "Tenant", of: (/** @type {any} */ it) => h("b", {}, it.tenant), by: (it) => it.tenant }, { name: "Class", of: (it) => it.class ?? "–" },
    { name: "Why", of: (it) => [badge(it.reason, "warn"), " ", h("small", {}, REASONS[it.reason] ?? "")], by: (it) => it.reason },
    { name: "Requests", of: (it) => whole(it.count), by: (it) => it.count, figure: true },
  ], { none: "Nothing was refused since the start.", most: 50 });
  parts = { set, setClasses, setLine, setTenants, setRefused, tenants: [], wrong };
}

function drawTenants() {
  parts.setTenants(parts.tenants.filter((/** @type {any} */ it) => !wanted || it.name.toLowerCase().includes(wanted.toLowerCase())));
}

async function ask() {
  const [tenants, waiting] = await Promise.all([read("tenants"), read("waiting")]);
  if (!parts) return;
  const rows = tenants.pools.flatMap((/** @type {any} */ pool) => pool.tenants.map((/** @type {any} */ it) => ({ ...it, pool: pool.name, pools: tenants.pools.length })));
  const total = (/** @type {any} */ it) => it.used.reduce((/** @type {number} */ all, /** @type {any} */ one) => all + one.mu, 0);
  const all = rows.reduce((/** @type {number} */ sum, /** @type {any} */ it) => sum + total(it), 0);
  parts.tenants = rows.map((/** @type {any} */ it) => ({ ...it, share: all > 0 ? total(it) / all : 0 }));
  drawTenants();
  parts.setLine(waiting.pools.flatMap((/** @type {any} */ it) => it.groups));
  parts.setRefused(waiting.pools.flatMap((/** @type {any} */ it) => it.refused));
}

function update() {
  if (!parts || !state.now || !state.fleet) return;
  const { pools } = state.now;
  const add = (/** @type {(it: any) => number} */ of) => pools.reduce((all, it) => all + of(it), 0);
  const waiting = add((it) => it.waiting), work = add((it) => it.classes.reduce((/** @type {number} */ all, /** @type {any} */ one) => all + one[1], 0)), speed = add((it) => it.mu_per_min);
  parts.set([
    [plural(waiting, "request"), waiting ? "see why below" : "what comes is sent at once", waiting ? "warn" : ""], [`${digits(work)} MU`, ""],
    [digits(speed), "MU/min, while others wait"], [work > 0 && speed > 0 ? time((work / speed) * 60_000) : "–", work > 0 ? "at this speed" : "nothing waits"],
    [bytes(add((it) => it.waiting_bytes)), "bodies that wait"],
  ]);
  parts.setClasses(state.fleet.pools.flatMap((pool) => pool.classes.map((it, at) => {
    const [count, mu] = pools.find((one) => one.name === pool.name)?.classes[at] ?? [0, 0];
    return { ...it, pool: pool.name, pools: pools.length, waiting: count, mu };
  })));
}

/** @type {import("../types").View} */
export const line = {
  draw(place) {
    if (!place.firstChild) {
      build(place);
      asking = poll(ask, 2000, (error) => parts?.wrong.say(error));
    }
    update();
  },
  update(kind) {
    if (kind === "now") update();
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
