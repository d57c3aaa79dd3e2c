// Orders that stand, those that can be given, and those that were.

import { read } from "../api.js";
import { h, put } from "../dom.js";
import { replicas, state } from "../feed.js";
import { ago, clock, plural, short } from "../format.js";
import { drain, freeze, mayOrder, orderButton, pin, undrain, unfreeze } from "../orders.js";
import { badge, card, head, poll, shapeOf, table, trouble } from "../parts.js";

/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;
/** @type {any[]} */
let pins = [];

/** @param {HTMLElement} place */
function build(place) {
  place.append(head("Orders", "Each is confirmed, signed with the name of your token, and can be undone."));
  const wrong = trouble(), rights = h("p", { class: "note" });
  const standing = card("In force", "What was ordered and has not been undone.");
  const setStanding = table(standing, "Orders in force", [
    { name: "Order", of: (/** @type {any} */ it) => [badge(it.kind, "warn"), " ", h("b", {}, it.what)] }, { name: "By", of: (it) => it.by ?? "–" },
    { name: "Since", of: (it) => (it.at ? ago((Date.now() - Date.parse(it.at)) / 1000) : "–") }, { name: "Undo", of: (it) => orderButton(it.undo(), it.undo().button, () => asking?.now()) },
  ], { none: "No order is in force." });
  const freezing = h("p", { class: "buttons" });
  const all = card("Assignments", "Freeze them while you work on the fleet: workloads then keep the replicas they have.", freezing);
  const filter = h("input", { type: "search", placeholder: "Find a replica", "aria-label": "Find a replica", oninput: () => update() });
  const drains = card("Drain a replica", "It takes nothing new, finishes what runs, and its sessions leave at their next turn.", filter);
  const setDrains = table(drains, "Replicas", [
    { name: "Replica", of: (/** @type {any} */ it) => [h("span", { "aria-hidden": "true" }, `${shapeOf(it.state)} `), h("b", {}, short(it.url)), h("small", {}, it.pool)], by: (it) => it.url },
    { name: "State", of: (it) => it.state, by: (it) => it.state },
    { name: "Order", of: (it) => (it.drained ? orderButton(undrain(it.url)) : orderButton(drain(it.url))) },
  ], { none: "No replica fits.", most: 16 });
  const log = card("What was ordered", "Since the router started; the audit file keeps all.");
  const setLog = table(log, "Orders given", [
    { name: "When", of: (/** @type {any} */ it) => clock(Date.parse(it.at)) }, { name: "Order", of: (it) => [h("b", {}, it.state), " ", it.replica ? short(it.replica) : it.pool ?? "", it.detail ? h("small", {}, it.detail) : null] }, { name: "By", of: (it) => it.by ?? "–" },
  ], { none: "None was given.", most: 30 });
  const pinning = card("Pins", null, h("p", {}, "Pin a workload to the replicas it has, or give it back to the planner, in ", h("a", { href: "#subsets" }, "Subsets"), "."));
  place.append(wrong.element, rights, standing, h("div", { class: "two" }, h("div", { class: "stack-of-cards" }, all, pinning, log), drains));
  parts = { wrong, rights, setStanding, freezing, filter, setDrains, setLog };
}

function update() {
  if (!parts || !state.now) return;
  put(parts.rights, mayOrder() ? "" : "Your token may read, and give no orders.");
  const frozen = state.now.pools.find((it) => it.frozen)?.frozen ?? null;
  const key = `${Boolean(frozen)} ${mayOrder()}`;
  if (parts.freezing.dataset.key !== key) {
    parts.freezing.dataset.key = key;
    put(parts.freezing, frozen ? orderButton(unfreeze(), "Unfreeze") : orderButton(freeze(), "Freeze all assignments"));
  }
  const all = replicas();
  const standing = [
    ...(frozen ? [{ kind: "frozen", what: "all assignments", ...frozen, undo: unfreeze }] : []),
    ...all.filter((it) => it.note?.drained).map((it) => ({ kind: "drained", what: short(it.url), ...it.note?.drained, undo: () => undrain(it.url) })),
    ...pins.map((it) => ({ kind: "pinned", what: `${it.name ?? it.workload} to ${plural(it.replicas.length, "replica")}`, by: it.by, at: it.at, undo: () => pin(it.pool, it.workload, it.name ?? it.workload, []) })),
  ];
  parts.setStanding(standing);
  const wanted = parts.filter.value.toLowerCase();
  parts.setDrains(all.filter((it) => it.url.toLowerCase().includes(wanted)).map((it) => ({ url: it.url, pool: it.pool, state: it.state, drained: Boolean(it.note?.drained) })));
  parts.setLog(state.events.filter((it) => it.kind === "order").slice().reverse());
}

/** @type {import("../types").View} */
export const orders = {
  draw(place) {
    if (!place.firstChild) {
      build(place);
      asking = poll(async () => {
        const told = await read("assignment");
        pins = told.pools.flatMap((/** @type {any} */ pool) => pool.pins.map((/** @type {any} */ it) => ({ ...it, pool: pool.name })));
        update();
      }, 3000, (error) => parts?.wrong.say(error));
    }
    update();
  },
  update(kind) {
    if (kind === "now" || kind === "event") update();
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
