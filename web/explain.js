// One request drawn: its life on a time axis, and for each decision a bar for every replica, made of its terms.

import { h, s } from "./dom.js";
import { digits, percent, short, time } from "./format.js";
import { badge, card } from "./parts.js";
import { ticks } from "./plot.js";

/** What a price is made of; terms that are not listed are drawn too, under their own name. */
const TERMS = /** @type {Record<string, [string, number]>} */ ({
  wait_ms: ["waiting for what is booked", 4], prefill_ms: ["computing the prompt", 1], late_ms: ["coming late", 2],
  evict_ms: ["pushing others out of the cache", 5], crowd_ms: ["slowing answers under way", 3], slow_ms: ["slowing others", 3], weight_ms: ["its weight", 7],
});
const NOT_TERMS = ["ttft_ms", "price_ms"];

/** How wide a drawing may be, so that its text has the size of other text. */
function room() {
  const wide = Math.max(300, Math.min(1100, (document.getElementById("main")?.clientWidth ?? 900) - 90));
  return { wide, isNarrow: wide < 600 };
}

/** @typedef {{ name: string, from: number, to: number, hue: string, said: string, expected?: number | null }} Stretch */

/**
 * Stretches of a life: as the router tells them, or worked out from what it told before it did.
 * @param {any} it
 * @returns {{ stretches: Stretch[], marks: { at: number, name: string }[], end: number }}
 */
function stretches(it) {
  if (it.life?.length) return told(it);
  const end = it.outcome?.total_ms ?? Math.max(it.line?.waited_ms ?? 0, 1);
  /** @type {Stretch[]} */
  const all = [];
  const waited = it.line?.waited_ms ?? 0;
  const tries = it.tries.length;
  const because = it.line?.because ?? "there was room at once";
  all.push({ name: "in the line", from: 0, to: Math.min(waited, end), hue: "var(--c4)", said: because, expected: it.line?.wait_expected_ms });
  const last = it.tries.at(-1);
  if (last && it.outcome) {
    const first = it.outcome.ttft_ms;
    // With several tries it is known how long the last took to its first token, not when it was sent.
    const staged = /** @type {any[]} */ (it.life ?? []).filter((one) => one.stage === "try").at(-1);
    const sent = staged ? staged.at_ms : waited;
    if (tries > 1) all.push({ name: `${tries - 1} earlier ${tries === 2 ? "try" : "tries"}`, from: waited, to: Math.max(waited, sent), hue: "var(--c2)", said: it.tries.slice(0, -1).map((/** @type {any} */ one) => short(one.replica)).join(", ") });
    if (first === null) all.push({ name: "whole answer", from: sent, to: end, hue: "var(--c1)", said: `${digits(it.outcome.output_tokens)} tokens in one piece` });
    else {
      all.push({ name: "to the first token", from: sent, to: Math.min(end, sent + first), hue: "var(--c1)", said: `on ${short(last.replica)}`, expected: last.ttft_ms });
      const output = it.outcome.output_tokens;
      all.push({ name: "tokens", from: Math.min(end, sent + first), to: end, hue: "var(--c3)", said: output ? `${digits(output)} tokens, ${time((end - sent - first) / Math.max(1, output - 1))} between two` : "the answer" });
    }
  }
  const marks = /** @type {{ at: number, name: string }[]} */ ([]);
  if (it.line?.first_token_within_ms) marks.push({ at: it.line.first_token_within_ms, name: "deadline of the first token" });
  return { stretches: all.filter((one) => one.to >= one.from), marks, end };
}

/**
 * The same from the stages that the router tells.
 * @param {any} it
 */
function told(it) {
  const of = (/** @type {string} */ stage) => it.life.find((/** @type {any} */ one) => one.stage === stage);
  const end = of("end")?.at_ms ?? it.outcome?.total_ms ?? 1;
  /** @type {Stretch[]} */
  const all = [];
  const [arrival, line, first, gaps] = ["arrival", "line", "first_token", "gaps"].map(of);
  if (arrival?.took_ms >= 1) all.push({ name: "body comes", from: 0, to: arrival.took_ms, hue: "var(--c7)", said: arrival.detail });
  if (line) all.push({ name: "in the line", from: line.at_ms, to: line.at_ms + (line.took_ms ?? 0), hue: "var(--c4)", said: line.detail, expected: line.expected_ms });
  const steps = it.life.filter((/** @type {any} */ one) => one.stage === "try" || one.stage === "failure");
  steps.forEach((/** @type {any} */ one, /** @type {number} */ at) => {
    if (one.stage !== "try") return;
    const failure = steps[at + 1]?.stage === "failure" ? steps[at + 1] : null;
    const where = `on ${short(one.detail)}`;
    if (failure) all.push({ name: "failed try", from: one.at_ms, to: failure.at_ms, hue: "var(--c2)", said: `${where}: ${failure.detail}` });
    else if (first) all.push({ name: "to the first token", from: one.at_ms, to: first.at_ms, hue: "var(--c1)", said: where, expected: first.expected_ms });
    else all.push({ name: "whole answer", from: one.at_ms, to: end, hue: "var(--c1)", said: where });
  });
  if (first) {
    const pause = gaps?.took_ms ? `${time(gaps.took_ms)} between two tokens (expected ${time(gaps.expected_ms)})` : "the answer";
    all.push({ name: "tokens", from: first.at_ms, to: Math.max(end, first.at_ms), hue: "var(--c3)", said: pause, expected: gaps?.took_ms ? ((end - first.at_ms) * gaps.expected_ms) / gaps.took_ms : null });
  }
  const longest = of("longest_gap");
  if (longest) all.push({ name: "longest pause", from: longest.at_ms, to: longest.at_ms + longest.took_ms, hue: "var(--c5)", said: longest.detail });
  const within = it.line?.first_token_within_ms;
  return { stretches: all.filter((one) => one.to >= one.from), marks: within ? [{ at: within, name: "deadline of the first token" }] : [], end };
}

/**
 * A life on a time axis.
 * @param {any} it
 */
export function life(it) {
  if (!it.outcome && !it.refusal) return h("p", { class: "none" }, "It runs. Its life is drawn once it is over.");
  const { stretches: all, marks, end } = stretches(it);
  const most = Math.max(end, ...marks.map((one) => one.at), ...all.map((one) => one.from + (one.expected ?? 0))) * 1.02;
  const { wide, isNarrow } = room(), left = isNarrow ? 104 : 130, row = 30, top = 8, right = isNarrow ? 56 : 90;
  const sx = (/** @type {number} */ at) => left + (wide - left - right) * (at / most);
  const drawn = [];
  const tall = top + all.length * row + 26;
  for (const at of ticks(0, most, false, isNarrow ? 3 : 6)) drawn.push(s("line", { class: "grid", x1: sx(at), x2: sx(at), y1: top, y2: tall - 22 }), s("text", { x: sx(at), y: tall - 8, "text-anchor": "middle" }, time(at)));
  all.forEach((one, at) => {
    const y = top + at * row;
    const width = Math.max(2, sx(one.to) - sx(one.from));
    drawn.push(s("text", { x: left - 10, y: y + 19, "text-anchor": "end", class: "row-name" }, one.name));
    drawn.push(s("rect", { class: "stack", x: sx(one.from), y: y + 5, width, height: row - 11, rx: 3, vars: { "--hue": one.hue } }, s("title", {}, `${one.name}: ${time(one.to - one.from)}. ${one.said}`)));
    if (one.expected !== null && one.expected !== undefined) drawn.push(s("path", { class: "expected", d: `M${sx(one.from + one.expected)} ${y + 1}v${row - 3}` }, s("title", {}, `expected: ${time(one.expected)}`)));
    drawn.push(s("text", { x: Math.max(sx(one.to), sx(one.from + (one.expected ?? 0))) + 6, y: y + 19, class: "value" }, time(one.to - one.from)));
  });
  for (const one of marks) drawn.push(s("line", { class: "limit", x1: sx(one.at), x2: sx(one.at), y1: top, y2: tall - 22 }, s("title", {}, `${one.name}: ${time(one.at)}`)));
  const label = all.map((one) => `${one.name} ${time(one.to - one.from)}`).join(", ");
  const staged = /** @type {any[]} */ (it.life ?? []);
  return h("div", {},
    h("div", { class: "plot life scroll", tabindex: 0, role: "region", "aria-label": "Life of the request" }, s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `Life of the request: ${label}` }, drawn)),
    h("p", { class: "note legend-line" }, h("i", { class: "tick-mark" }), " expected when it was decided", marks.length ? [" · dashed: ", marks.map((one) => one.name).join(", ")] : null),
    h("dl", { class: "wide" }, all.map((one) => [h("dt", {}, one.name), h("dd", {}, time(one.to - one.from), one.expected !== null && one.expected !== undefined ? ` (expected ${time(one.expected)})` : "", one.said ? `, ${one.said}` : "")]),
      it.outcome ? [h("dt", {}, "all"), h("dd", {}, `${time(it.outcome.total_ms)}, ${digits(it.outcome.input_tokens)} tokens in (${digits(it.outcome.cached_tokens)} cached), ${digits(it.outcome.output_tokens)} out`)] : null, it.refusal ? [h("dt", {}, "refused"), h("dd", {}, it.refusal)] : null),
    staged.length ? h("details", {}, h("summary", {}, `All ${staged.length} stages`), h("ol", { class: "stages" }, staged.map((one) => h("li", {}, h("small", {}, time(one.at_ms)), " ", h("b", {}, one.stage.replaceAll("_", " ")), one.took_ms === null ? "" : ` ${time(one.took_ms)}`, one.expected_ms === null ? "" : ` (expected ${time(one.expected_ms)})`, one.detail ? `, ${one.detail}` : "")))) : null);
}

/** @param {any} terms */
function termsOf(terms) {
  const names = Object.keys(terms).filter((name) => name.endsWith("_ms") && !NOT_TERMS.includes(name));
  return names.map((name) => ({ name: TERMS[name]?.[0] ?? name.slice(0, -3).replaceAll("_", " "), hue: `var(--c${TERMS[name]?.[1] ?? 7})`, ms: terms[name] })).filter((it) => it.ms > 0);
}

/**
 * One decision: a bar for every replica, made of its terms, the chosen one marked.
 * @param {any} one
 * @param {number} at
 * @param {any} it
 */
export function decision(one, at, it) {
  const title = it.tries.length > 1 ? `Decision ${at + 1} of ${it.tries.length}` : "The decision";
  const out = card(title, null);
  const isLast = at === it.tries.length - 1;
  const real = isLast ? it.outcome?.ttft_ms ?? null : null;
  out.append(h("p", {}, "It went to ", h("b", {}, short(one.replica)), `: ${one.because}.`, one.beyond ? ` ${sentence(one.beyond)}` : "", one.moved ? [" Its session left ", h("b", {}, short(one.home ?? "another replica")), `: ${one.moved_because}.`] : one.home === one.replica ? " Its session was there already." : ""));
  if (one.failed) out.append(h("p", {}, badge(`failed there: ${one.failed}`, "bad")));
  out.append(h("div", { class: "figures" },
    figure("First token predicted", time(one.ttft_ms)), figure("First token came", time(real), real === null ? (isLast ? "it was not streamed" : "it failed there") : one.ttft_ms > 0 ? `${digits(real / one.ttft_ms)}× the prediction` : ""),
    figure("Prompt", `${digits(one.prompt_tokens)} tok`, one.terms ? `${percent(one.terms.cached_tokens / Math.max(1, one.prompt_tokens))} cached there` : ""), one.policy ? figure("Candidates", String(one.candidates_total), one.policy) : null));
  const priced = one.candidates.filter((/** @type {any} */ candidate) => candidate.terms);
  if (priced.length) out.append(h("h3", {}, "What each replica would have cost"), bars(one, priced));
  else if (one.policy) out.append(h("p", { class: "note" }, `The policy ${one.policy} prices nothing.`));
  if (one.what_if.length) out.append(h("h3", {}, "What other policies would have done"), others(one));
  return out;
}

/** @param {string} text */
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/**
 * @param {string} name
 * @param {string} value
 * @param {string} [note]
 */
const figure = (name, value, note = "") => h("div", { class: "figure" }, h("span", {}, name), h("b", {}, value), h("small", {}, note));

/**
 * @param {any} one
 * @param {any[]} priced
 */
function bars(one, priced) {
  const { wide, isNarrow } = room(), left = isNarrow ? 128 : 190, right = isNarrow ? 58 : 190, row = 26, top = 4;
  const most = Math.max(...priced.map((it) => it.terms.price_ms), 1) * 1.03;
  const sx = (/** @type {number} */ ms) => left + (wide - left - right) * (ms / most);
  const tall = top + priced.length * row + 24;
  const drawn = [];
  for (const at of ticks(0, most, false, isNarrow ? 2 : 5)) drawn.push(s("line", { class: "grid", x1: sx(at), x2: sx(at), y1: top, y2: tall - 20 }), s("text", { x: sx(at), y: tall - 6, "text-anchor": "middle" }, time(at)));
  const seen = new Map();
  priced.forEach((it, at) => {
    const y = top + at * row, chosen = it.replica === one.replica;
    if (chosen) drawn.push(s("rect", { class: "chosen", x: 2, y: y + 1, width: wide - 4, height: row - 2, rx: 5 }));
    drawn.push(s("text", { x: left - 8, y: y + 17, "text-anchor": "end", class: chosen ? "row-name strong" : "row-name" }, `${chosen ? "◆ " : ""}${clip(short(it.replica), isNarrow ? 17 : 26)}`, s("title", {}, it.replica)));
    let from = 0;
    for (const term of termsOf(it.terms)) {
      seen.set(term.name, term.hue);
      drawn.push(s("rect", { class: "stack", x: sx(from), y: y + 5, width: Math.max(0.8, sx(from + term.ms) - sx(from)), height: row - 10, vars: { "--hue": term.hue } }, s("title", {}, `${term.name}: ${time(term.ms)}`)));
      from += term.ms;
    }
    const rest = it.terms.price_ms - from;
    if (rest > 0.01 * it.terms.price_ms) {
      seen.set("other terms", "var(--faint)");
      drawn.push(s("rect", { class: "stack", x: sx(from), y: y + 5, width: Math.max(0.8, sx(it.terms.price_ms) - sx(from)), height: row - 10, vars: { "--hue": "var(--faint)" } }, s("title", {}, `other terms: ${time(rest)}`)));
    }
    drawn.push(s("text", { x: sx(Math.max(from, it.terms.price_ms)) + 6, y: y + 17, class: "value" }, `${time(it.terms.price_ms)}`, isNarrow ? null : s("tspan", { class: "soft" }, `  ${percent(it.terms.cached_tokens / Math.max(1, one.prompt_tokens))} cached${it.beyond ? `, ${it.beyond}` : ""}`)));
  });
  const rest = one.candidates_total - priced.length;
  const label = priced.map((it) => `${short(it.replica)} ${time(it.terms.price_ms)}${it.replica === one.replica ? ", chosen" : ""}`).join("; ");
  return h("div", { class: "plot" }, h("ul", { class: "legend" }, [...seen].map(([name, hue]) => h("li", { vars: { "--hue": hue } }, h("i"), name))),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Prices of replicas" }, s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `Prices: ${label}` }, drawn)),
    h("p", { class: "note" }, "◆ chosen. A shorter bar is a cheaper replica; times are predictions.", rest > 0 ? ` ${rest} dearer ones are not shown.` : ""));
}

/** @param {any} one */
function others(one) {
  const rows = one.what_if.map((/** @type {any} */ it) => {
    const same = it.replica === one.replica;
    const more = it.ttft_ms === null || !one.terms ? null : it.ttft_ms - one.terms.ttft_ms;
    return h("tr", {}, h("td", {}, it.policy), h("td", {}, short(it.replica), " ", same ? badge("the same", "good") : null), h("td", { class: "figure-column" }, time(it.ttft_ms)),
      h("td", { class: "figure-column" }, same || more === null ? "–" : `${more >= 0 ? "+" : "−"}${time(Math.abs(more))}`));
  });
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Other policies" }, h("table", {}, h("thead", {}, h("tr", {}, ["Policy", "Replica", "First token", "Against the choice"].map((it, at) => h("th", { scope: "col", class: at > 1 && "figure-column" }, it)))), h("tbody", {}, rows)));
}

/**
 * @param {string} text
 * @param {number} most
 */
function clip(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
