// What if: the traffic that was recorded, replayed by the router's own program beside it, with another policy, fleet or load.

import { order, read } from "../api.js";
import { h, put } from "../dom.js";
import { state } from "../feed.js";
import { percent, time, whole } from "../format.js";
import { mayOrder, orderButton } from "../orders.js";
import { badge, card, head, poll, table, trouble } from "../parts.js";
import { plot } from "../plot.js";

const POLICIES = ["priced", "session", "round_robin", "least_requests", "power_of_two"];
const HUES = ["var(--c7)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];

/** @type {any} */
let parts = null;
/** @type {any} */
let asking = null;
let drawn = "";

/** @returns {import("../orders.js").Order} */
const start = () => ({
  title: "Record for ten minutes?", does: "What comes is written to the router's folder for recordings: times, sizes, and codes in place of names. No text is written.",
  undo: "It ends by itself, or when you stop it.", button: "Record", path: "record", body: { on: true, for: "10m" },
});

/** @returns {import("../orders.js").Order} */
const stop = () => ({ title: "Stop recording?", does: "What was recorded stays.", undo: "It can be turned on again.", button: "Stop", path: "record", body: { on: false } });

/**
 * A field with its name above it.
 * @param {string} label
 * @param {any} input
 * @param {string} hint
 */
function field(label, input, hint) {
  const id = `whatif-${label.toLowerCase().replaceAll(" ", "-")}`;
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, h("small", { id: `${id}-hint` }, hint));
}

/** @param {HTMLElement} place */
function build(place) {
  place.append(head("What if", "Replays what was recorded with another policy, fleet or load, in a process of its own."));
  const wrong = trouble(), recording = h("p", { class: "buttons" });
  const last = h("select", {}, [["5m", "the last 5 minutes"], ["30m", "the last 30 minutes"], ["", "all of it"]].map(([value, name]) => h("option", { value }, name)));
  const pool = h("select", {}, h("option", { value: "" }, "the busiest"), (state.fleet?.pools ?? []).map((it) => h("option", { value: it.name }, it.name)));
  const policies = POLICIES.map((name) => ({ name, box: h("input", { type: "checkbox", value: name, checked: name === "priced" }) }));
  const replicas = h("input", { type: "text", inputmode: "text", placeholder: "+2", maxlength: 8, size: 6, autocomplete: "off" });
  const traffic = h("input", { type: "number", min: 0.05, max: 100, step: "any", value: 1 });
  const promise = h("input", { type: "text", placeholder: "ttft=1s,tpot=50ms", maxlength: 60, autocomplete: "off" });
  const button = h("button", { type: "submit", class: "primary", disabled: !mayOrder() }, "Ask");
  const said = h("p", { class: "note", role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const question = {
      last: last.value || undefined, pool: pool.value || undefined, replicas: replicas.value || undefined, slo: promise.value || undefined,
      rate_scale: Number(traffic.value) || 1, policies: policies.filter((it) => it.box.checked).map((it) => it.name),
    };
    button.disabled = true;
    try {
      await order("what-if", question);
      asking?.now();
    } catch (error) {
      put(said, h("span", { class: "error" }, error instanceof Error ? error.message : String(error)));
      button.disabled = !mayOrder();
    }
  };
  const form = h("form", { class: "whatif", onsubmit: submit },
    field("Part", last, "of what was recorded"), field("Pool", pool, "whose requests are played"),
    field("Replicas", replicas, "8, +2 or -2; empty for as many as there were"), field("Traffic", traffic, "times what came"),
    field("Promise", promise, "empty for what the default class promises"),
    h("fieldset", {}, h("legend", {}, "Policies"), policies.map((it) => h("label", { class: "tick" }, it.box, it.name))),
    h("div", { class: "buttons" }, button, said));
  const rights = mayOrder() ? null : h("p", { class: "note" }, "Your token may read, and ask nothing that takes the machine's time.");
  const agreement = card("How well it agrees", "The fleet as it was, replayed, beside what was recorded. How far this is off is how far to trust the rest.");
  const setAgreement = table(agreement, "How well the replay agrees", [
    { name: "Figure", of: (/** @type {any} */ it) => it.figure }, { name: "Recorded", of: (it) => it.was, figure: true },
    { name: "Replayed", of: (it) => it.is, figure: true }, { name: "Off by", of: (it) => (it.off === null ? "–" : badge(`${it.off > 0 ? "+" : ""}${(100 * it.off).toFixed(1)} %`, Math.abs(it.off) <= 0.1 ? "good" : "warn")), figure: true },
  ], { none: "Nothing was asked yet." });
  const chart = h("div", { class: "chart" });
  const result = card("What would have been", "First tokens at three quantiles.", chart);
  const setResult = table(result, "What would have been", [
    { name: "If", of: (/** @type {any} */ it) => it.name }, { name: "First token p50", of: (it) => time(1e3 * it.ttft_s.p50), figure: true }, { name: "p99", of: (it) => time(1e3 * it.ttft_s.p99), figure: true },
    { name: "Whole answer p50", of: (it) => time(1e3 * it.end_to_end_s.p50), figure: true }, { name: "p99", of: (it) => time(1e3 * it.end_to_end_s.p99), figure: true },
    { name: "Cached", of: (it) => percent(it.hit), figure: true }, { name: "Kept promise", of: (it) => percent(it.good_share), figure: true }, { name: "Refused", of: (it) => whole(it.refused), figure: true },
  ], { none: "Nothing was asked yet." });
  const remarks = h("div", { class: "remarks" });
  result.append(remarks);
  place.append(wrong.element, card("Recording", "What came, without any text.", recording), card("Question", null, rights, form), h("div", { class: "answer", hidden: true }, agreement, result));
  parts = { wrong, recording, button, said, setAgreement, setResult, chart, remarks, answer: place.lastElementChild };
}

async function ask() {
  const [record, told] = await Promise.all([read("record"), read("what-if")]);
  if (!parts) return;
  const key = JSON.stringify([record.on, record.dir, record.problem ?? null, Math.round((record.seconds_left ?? 0) / 60), record.written_total, mayOrder()]);
  if (parts.recording.dataset.key !== key) {
    parts.recording.dataset.key = key;
    const left = record.seconds_left === undefined ? "" : `, ${Math.ceil(record.seconds_left / 60)} min left`;
    const how = record.problem ? badge(`off: ${record.problem}`, "bad") : record.on ? badge(`on${left}`, "good") : badge("off", "calm");
    const button = record.dir === undefined ? "Set record.dir to be able to record." : orderButton(record.on ? stop() : start(), record.on ? "Stop" : "Record for 10 minutes", () => asking?.now());
    put(parts.recording, how, h("span", {}, `${whole(record.written_total)} requests written`), button);
  }
  parts.button.disabled = told.running || !mayOrder();
  if (told.running) put(parts.said, "Replaying. It has one niced thread, so this may take a while.");
  else if (told.problem) put(parts.said, h("span", { class: "error" }, told.problem));
  else if (told.answer) put(parts.said, `Answered in ${told.took_seconds.toFixed(1)} s.`);
  if (told.answer) show(told.answer);
}

/** @param {any} answer what `cleave replay --json` said */
function show(answer) {
  const key = JSON.stringify(answer);
  if (key === drawn && !parts.answer.hidden) return;
  drawn = key;
  parts.answer.hidden = false;
  const shown = (/** @type {any} */ it, /** @type {number} */ value) => (it.figure.endsWith(", s") ? time(1e3 * value) : percent(value));
  parts.setAgreement(answer.agreement.map((/** @type {any} */ it) => ({ figure: it.figure.replace(", s", ""), was: shown(it, it.recorded), is: shown(it, it.replayed), off: it.off })));
  const named = (/** @type {any} */ it) => `${it.policy}, ${it.replicas} replicas${it.rate_scale === 1 ? "" : `, traffic × ${it.rate_scale}`}`;
  const rows = [{ name: "Recorded", ...answer.recorded }, { name: "Replayed as it was", ...answer.replayed }, ...answer.what_if.map((/** @type {any} */ it) => ({ name: named(it), ...it }))];
  parts.setResult(rows);
  const curves = rows.map((it, at) => ({ name: it.name, hue: HUES[at % HUES.length], points: /** @type {[number, number][]} */ ([[0, it.ttft_s.p50], [1, it.ttft_s.p90], [2, it.ttft_s.p99]]) }));
  plot(parts.chart, curves, { label: "First token by quantile", x: (at) => ["p50", "p90", "p99"][at] ?? "", xTicks: [0, 1, 2], y: (at) => time(1e3 * at), yName: "first token", height: 240 });
  put(parts.remarks, [...answer.damage.map((/** @type {string} */ it) => `Damaged: ${it}`), ...answer.remarks].map((it) => h("p", { class: "note" }, it)));
}

/** @type {import("../types").View} */
export const whatif = {
  draw(place) {
    if (place.firstChild) return;
    drawn = "";
    build(place);
    asking = poll(ask, 1500, (error) => parts?.wrong.say(error));
  },
  leave() {
    asking?.stop();
    parts = null;
  },
};
