// A request: the newest, the slowest, those that failed, or one by its id. Its life on a time axis, and why it went where it went.

import { path, read, unescaped } from "../api.js";
import { h, put } from "../dom.js";
import { state } from "../feed.js";
import { ago, digits, percent, short, time } from "../format.js";
import { badge, card, choice, head, poll, table, trouble } from "../parts.js";
import { decision, life } from "../explain.js";

let order = "newest";
/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;
/** @type {string | null} */
let opened = null;

/** @param {HTMLElement} place */
function build(place) {
  const field = h("input", { id: "request-id", type: "search", placeholder: "x-request-id", "aria-label": "Find a request by its id" });
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); if (field.value.trim()) location.hash = `#request/${encodeURIComponent(field.value.trim())}`; };
  const orders = choice("Which requests", [["newest", "Newest"], ["slowest", "Slowest"], ["failed", "Failed"]], order, (it) => { order = it; asking?.now(); });
  place.append(head("Requests", `Those whose decision was kept: ${percent(state.fleet?.explained ?? 0)} of all (explain.sample), those that asked for it, and what failed, was slow, held, retried or moved.`, h("form", { class: "inline", onsubmit: submit }, field, h("button", { type: "submit" }, "Find")), orders.element));
  const wrong = trouble(), one = h("div", { class: "one-request" });
  const list = card("Requests", "Click one to see its life and its decision.");
  const set = table(list, "Requests", [
    { name: "Request", of: (/** @type {any} */ it) => [h("a", { href: `#request/${encodeURIComponent(it.request_id)}`, title: it.request_id }, h("code", {}, it.request_id.length > 14 ? `${it.request_id.slice(0, 13)}…` : it.request_id)), h("small", {}, ago(it.age_seconds))] },
    { name: "Came to", of: (it) => outcome(it) },
    { name: "Replica", of: (it) => [it.replica ? short(it.replica) : "–", it.tries > 1 ? badge(`${it.tries} tries`, "warn") : null], by: (it) => it.replica ?? "" },
    { name: "Tenant", of: (it) => [it.tenant ?? "–", it.class ? h("small", {}, it.class) : null], by: (it) => it.tenant ?? "" },
    { name: "Prompt", of: (it) => [it.prompt_tokens === null ? "–" : `${digits(it.prompt_tokens)} tok`, it.cached_tokens === null ? null : h("small", {}, `${percent(it.cached_tokens / Math.max(1, it.prompt_tokens))} cached`)], by: (it) => it.prompt_tokens ?? 0, figure: true },
    { name: "Waited", of: (it) => time(it.waited_ms), by: (it) => it.waited_ms ?? 0, figure: true },
    { name: "First token", of: (it) => [time(it.ttft_ms), it.ttft_predicted_ms === null ? null : h("small", {}, `${time(it.ttft_predicted_ms)} predicted`)], by: (it) => it.ttft_ms ?? 0, figure: true },
    { name: "Whole", of: (it) => time(it.total_ms), by: (it) => it.total_ms ?? 0, figure: true },
  ], { none: "None is kept yet. They appear as requests come; a request whose header x-cleave-explain carries the admin token is always kept.", most: 100 });
  place.append(wrong.element, one, list);
  parts = { set, wrong, one, list, field };
}

/** @param {any} it */
function outcome(it) {
  if (it.refusal) return badge(it.refusal, "bad");
  if (!it.outcome) return badge("runs", "calm");
  if (it.outcome === "cancelled") return badge("client left", "calm");
  const well = it.outcome === "done" && it.status < 400;
  return badge(well ? "done" : `${it.outcome}${it.status ? ` ${it.status}` : ""}`, well ? "good" : "bad");
}

/** @param {string} id */
async function open(id) {
  opened = id;
  put(parts.one, h("p", { class: "note" }, "Looking."));
  try {
    const it = await read(`explain/${path(id)}`);
    if (opened !== id || !parts) return;
    const close = () => { location.hash = "#request"; };
    const last = it.tries.at(-1);
    put(parts.one,
      h("section", { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, h("code", {}, it.request_id), " ", it.outcome ? outcome({ ...it.outcome, refusal: it.refusal }) : outcome({ refusal: it.refusal, outcome: null })), h("button", { type: "button", class: "quiet", onclick: close }, "Close")),
        h("p", { class: "note" }, [ago(it.age_seconds), `pool ${it.pool}`, it.line ? `tenant ${it.line.tenant}, class ${it.line.class}` : null, it.kept_for ? `kept for: ${it.kept_for}` : null, last?.session ? `session ` : null].filter(Boolean).join(" · "), last?.session ? h("a", { href: `#sessions/${last.session}` }, h("code", {}, last.session)) : null, last?.workload ? ` · ${last.workload}` : ""),
        it.verdict ? h("p", { class: "verdict" }, it.verdict) : null, life(it)),
      it.tries.map((/** @type {any} */ one, /** @type {number} */ at) => decision(one, at, it)));
    parts.one.scrollIntoView({ block: "start" });
  } catch (error) {
    put(parts.one, h("p", { class: "error", role: "alert" }, error instanceof Error ? error.message : String(error)));
  }
}

/** @type {import("../types").View} */
export const request = {
  draw(place, rest) {
    if (!place.firstChild) {
      build(place);
      opened = null;
      asking = poll(async () => { const lines = await read(`requests?order=${order}`); parts?.set(lines); }, 2000, (error) => parts?.wrong.say(error));
    }
    const id = rest ? unescaped(rest) : null;
    if (id === opened) return;
    opened = id;
    if (id) void open(id);
    else put(parts.one);
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
