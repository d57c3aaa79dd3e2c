// The routers that decide as one, as this one sees them.

import { read } from "../api.js";
import { h, put } from "../dom.js";
import { state } from "../feed.js";
import { bytes, time, whole } from "../format.js";
import { badge, card, figures, head, poll, table, trouble } from "../parts.js";

/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;

/** @param {HTMLElement} place */
function build(place) {
  place.append(head("Routers", "Routers of one cluster tell each other every booking and what lies in which cache."));
  const wrong = trouble();
  place.append(wrong.element);
  const set = figures(place, ["This router", "Others it talks to", "Slowest to hear", "In flight at others"]);
  const others = card("Other routers", "Lag is how old the news is that was heard last.");
  const alone = h("p", { class: "none", hidden: true });
  const setPeers = table(others, "Other routers", [
    { name: "Router", of: (/** @type {any} */ it) => [h("b", {}, it.id.slice(0, 8)), it.leader ? badge("leader", "good") : null, h("small", {}, it.address || "address unknown")], by: (it) => it.id },
    { name: "State", of: (it) => badge(it.state, it.state === "talking" ? "good" : "bad"), by: (it) => it.state },
    { name: "Lag", of: (it) => (it.state === "talking" ? time(it.lag_seconds * 1000) : "–"), by: (it) => it.lag_seconds, figure: true },
    { name: "In flight there", of: (it) => whole(it.in_flight), by: (it) => it.in_flight, figure: true },
    { name: "Told", of: (it) => bytes(it.bytes_told), by: (it) => it.bytes_told, figure: true }, { name: "Heard", of: (it) => bytes(it.bytes_heard), by: (it) => it.bytes_heard, figure: true },
    { name: "Gaps", of: (it) => whole(it.gaps), by: (it) => it.gaps, figure: true, hint: "Times that news was missing and all was told again" },
    { name: "Snapshots told / heard", of: (it) => `${whole(it.snapshots_told)} / ${whole(it.snapshots_heard)}`, figure: true },
    { name: "Overruns", of: (it) => whole(it.overruns), by: (it) => it.overruns, figure: true },
  ], { none: "It talks to no other router now." });
  others.append(alone);
  place.append(others);
  parts = { set, setPeers, wrong, alone };
}

async function ask() {
  const told = await read("routers");
  if (!parts) return;
  const talking = told.peers.filter((/** @type {any} */ it) => it.state === "talking");
  const lag = Math.max(0, ...talking.map((/** @type {any} */ it) => it.lag_seconds));
  const flight = told.peers.reduce((/** @type {number} */ all, /** @type {any} */ it) => all + it.in_flight, 0);
  parts.set([
    [told.own ? told.own.slice(0, 8) : "alone", told.joining ? "waits to be told what others know" : state.now?.draining ? "draining" : told.leads ? "leads: plans for all" : told.leader ? `${told.leader.slice(0, 8)} leads` : told.state === "minority" ? "too few are there to have a leader" : "decides", told.joining || told.state === "minority" ? "warn" : ""],
    [`${talking.length} of ${told.peers.length}`, told.own ? "" : "no cluster is configured", talking.length < told.peers.length ? "bad" : ""], [talking.length ? time(lag * 1000) : "–", ""], [whole(flight), "as heard"],
  ]);
  parts.alone.hidden = Boolean(told.own);
  put(parts.alone, "This router is alone. Several routers decide as one when each lists the others under [cluster] in its configuration.");
  parts.setPeers(told.peers.map((/** @type {any} */ it) => ({ ...it, leader: it.id === told.leader })));
}

/** @type {import("../types").View} */
export const routers = {
  draw(place) {
    if (place.firstChild) return;
    build(place);
    asking = poll(ask, 2000, (error) => parts?.wrong.say(error));
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
