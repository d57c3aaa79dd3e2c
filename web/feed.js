// What the router tells twice a second, and what is kept of it here. EventSource cannot send a token, so that the stream is
// read by fetch. A stream that breaks is opened again, soon at first and then more rarely, and goes on from
// where it was.

import { NeedsToken, open } from "./api.js";

const HOUR_S = 3600, EVENTS_MAX = 1024, SILENCE_MS = 10_000, PAUSE_MAX_MS = 5000, RELOADED = "cleave-reloaded-for";

/** Which page this is, as the router that served it wrote it down. */
const BUILD = document.querySelector("meta[name=cleave-page]")?.getAttribute("content");

/** Everything that views draw from. */
export const state = {
  /** @type {import("./types").Fleet | null} */ fleet: null,
  /** @type {import("./types").Now | null} */ now: null,
  /** @type {Map<string, import("./types").Past>} */ past: new Map(),
  /** @type {import("./types").Incident[]} */ events: [],
  /** @type {"connecting" | "live" | "lost" | "locked"} */ link: "connecting",
  /** The router serves another page than this one: it was upgraded, or went back. */ stale: false,
};

/** @typedef {"link" | "fleet" | "now" | "past" | "event"} Kind */

/** @type {Set<(kind: Kind) => void>} */
const listeners = new Set();

/** @param {(kind: Kind) => void} listener */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @param {Kind} kind */
function tell(kind) {
  for (const it of listeners) it(kind);
}

/** @param {typeof state.link} link */
function setLink(link) {
  if (state.link === link) return;
  state.link = link;
  tell("link");
}

let generation = 0;

/** Begins to listen, or begins anew with another token. */
export function start() {
  generation += 1;
  void run(generation);
}

export function stop() {
  generation += 1;
}

/** @param {number} own */
async function run(own) {
  let pause = 250;
  while (own === generation) {
    try {
      const newest = Math.max(0, ...[...state.past.values()].map((it) => it.at_s.at(-1) ?? 0));
      const last = state.events.at(-1)?.id ?? 0;
      const halt = new AbortController();
      const answer = await open(`live?after=${newest}&event=${last}`, { signal: halt.signal });
      if (!answer.ok || !answer.body) throw new Error(`the router answered ${answer.status}`);
      await follow(answer.body.getReader(), halt, own, () => { pause = 250; });
    } catch (error) {
      if (own !== generation) return;
      if (error instanceof NeedsToken) return setLink("locked");
    }
    if (own !== generation) return;
    setLink("lost");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, PAUSE_MAX_MS);
  }
}

/**
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {AbortController} halt
 * @param {number} own
 * @param {() => void} heard
 */
async function follow(reader, halt, own, heard) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    // A stream that says nothing for long is dead, whatever the network makes of it.
    const silence = setTimeout(() => halt.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (own !== generation) halt.abort();
    if (done || own !== generation) return;
    rest += decoder.decode(value, { stream: true });
    const frames = rest.split("\n\n");
    rest = frames.pop() ?? "";
    try {
      frames.forEach(take);
    } catch (error) {
      // Figures of another build may be none that this page can draw. Its own page can, and is asked for once.
      const page = state.fleet?.page ?? "";
      if (!state.stale || sessionStorage.getItem(RELOADED) === page) throw error;
      sessionStorage.setItem(RELOADED, page);
      location.reload();
      return;
    }
    heard();
    setLink("live");
  }
}

/** @param {string} frame */
function take(frame) {
  let kind = "", data = "";
  for (const line of frame.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trimStart();
  }
  if (!data) return;
  const told = JSON.parse(data);
  if (kind === "fleet") {
    state.stale = told.page !== BUILD;
    state.fleet = told;
  } else if (kind === "now") state.now = told;
  else if (kind === "past") for (const [pool, it] of Object.entries(told.pools)) remember(pool, it);
  else if (kind === "event") {
    if (state.events.some((it) => it.id === told.id)) return;
    state.events.push(told);
    if (state.events.length > EVENTS_MAX) state.events.shift();
  } else return;
  tell(/** @type {Kind} */ (kind));
}

/**
 * @param {string} pool
 * @param {any} more
 */
function remember(pool, more) {
  const known = state.past.get(pool);
  if (!known) return void state.past.set(pool, more);
  // After a restart of the router the hour begins anew, and what is here already is not added twice.
  const from = more.at_s.findIndex((/** @type {number} */ it) => it > (known.at_s.at(-1) ?? 0));
  if (from < 0) return;
  const columns = /** @type {Record<string, any[]>} */ (/** @type {unknown} */ (known));
  for (const name of Object.keys(more)) columns[name].push(...more[name].slice(from));
  const oldest = (known.at_s.at(-1) ?? 0) - HOUR_S;
  const old = known.at_s.findIndex((it) => it >= oldest);
  if (old > 0) for (const name of Object.keys(more)) columns[name].splice(0, old);
}

/**
 * The replicas of all pools, each with its figures of this moment.
 * @returns {import("./types").Replica[]}
 */
export function replicas() {
  const { fleet, now } = state;
  if (!fleet || !now) return [];
  return fleet.pools.flatMap((pool) => {
    const live = now.pools.find((it) => it.name === pool.name);
    if (!live || live.replicas.state.length !== pool.replicas.length) return [];
    const columns = /** @type {Record<string, any[]>} */ (/** @type {unknown} */ (live.replicas));
    return pool.replicas.map((it, at) => {
      /** @type {any} */
      const whole = { ...it, pool: pool.name, note: live.notes[at] ?? null };
      for (const name of Object.keys(columns)) whole[name] = columns[name][at];
      return whole;
    });
  });
}
