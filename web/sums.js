// Figures over the samples of the last hour.

import { state } from "./feed.js";

/** @typedef {import("./types").Past} Past */

/**
 * How long a sample is, in seconds: a router that is short of time takes them late.
 * @param {Past} past
 * @param {number} at
 */
export function spanOf(past, at) {
  const step = state.fleet?.sample_seconds ?? 5;
  const since = at > 0 ? past.at_s[at] - past.at_s[at - 1] : step;
  return since > 12 * step ? step : Math.max(step, since);
}

/** @param {number[]} of */
export const sum = (of) => of.reduce((all, it) => all + it, 0);

/**
 * The samples of several pools as one: counts are added; of quantiles the one of the pool with the most answers counts.
 * @param {string} [pool] only this one
 * @returns {Past}
 */
export function together(pool) {
  const chosen = [...state.past].filter(([name]) => !pool || name === pool).map((it) => it[1]);
  if (chosen.length === 1) return chosen[0];
  const step = state.fleet?.sample_seconds ?? 5;
  /** @type {Map<number, any>} */
  const at = new Map();
  for (const past of chosen) {
    for (let i = 0; i < past.at_s.length; i += 1) {
      // Samples of pools are taken at the same tick.
      const key = Math.round(past.at_s[i] / step);
      const row = Object.fromEntries(Object.entries(past).map(([name, column]) => [name, column[i]]));
      const before = at.get(key);
      at.set(key, before ? merged(before, row) : row);
    }
  }
  const rows = [...at].sort((a, b) => a[0] - b[0]).map((it) => it[1]);
  const names = ["at_s", "answered", "failed", "refused", "cancelled", "input", "cached", "output", "p50_ms", "p90_ms", "p99_ms", "in_flight", "waiting", "moved"];
  return /** @type {any} */ (Object.fromEntries(names.map((name) => [name, rows.map((it) => it[name])])));
}

/**
 * @param {any} a
 * @param {any} b
 */
function merged(a, b) {
  const busier = a.p50_ms === null ? b : b.p50_ms === null || a.answered >= b.answered ? a : b;
  const added = Object.fromEntries(["answered", "failed", "refused", "cancelled", "input", "cached", "output", "in_flight", "waiting"].map((name) => [name, a[name] + b[name]]));
  return { ...added, at_s: a.at_s, p50_ms: busier.p50_ms, p90_ms: busier.p90_ms, p99_ms: busier.p99_ms, moved: a.moved.map((/** @type {number} */ it, /** @type {number} */ i) => it + b.moved[i]) };
}

/**
 * The median of what is known, each weighed by its count.
 * @param {(number | null)[]} values
 * @param {number[]} weights
 */
export function typical(values, weights) {
  const known = values.map((it, at) => /** @type {[number | null, number]} */ ([it, weights[at]])).filter((it) => it[0] !== null && it[1] > 0);
  known.sort((a, b) => Number(a[0]) - Number(b[0]));
  const half = sum(known.map((it) => it[1])) / 2;
  let below = 0;
  for (const [value, weight] of known) {
    below += weight;
    if (below >= half) return value;
  }
  return null;
}

/**
 * Rates and shares over some samples.
 * @param {Past} past
 * @param {number} from
 * @param {number} [to]
 */
export function over(past, from, to = past.at_s.length) {
  const cut = (/** @type {any[]} */ it) => it.slice(from, to);
  const seconds = Math.max(1, sum(past.at_s.slice(from, to).map((_, at) => spanOf(past, from + at))));
  const answered = cut(past.answered), input = sum(cut(past.input));
  return {
    seconds, answered: sum(answered),
    requests: (sum(answered) + sum(cut(past.failed))) / seconds,
    failed: sum(cut(past.failed)) / seconds, refused: sum(cut(past.refused)) / seconds,
    input: input / seconds, output: sum(cut(past.output)) / seconds,
    computed: (input - sum(cut(past.cached))) / seconds,
    hits: input > 0 ? sum(cut(past.cached)) / input : null,
    p50_ms: typical(cut(past.p50_ms), answered), p90_ms: typical(cut(past.p90_ms), answered), p99_ms: typical(cut(past.p99_ms), answered),
  };
}

/** The last minute of all pools. */
export function lastMinute() {
  const past = together();
  const newest = (state.now?.at_ms ?? 0) / 1000 - 65;
  const from = past.at_s.findIndex((it) => it >= newest);
  return over(past, from < 0 ? past.at_s.length : from);
}
