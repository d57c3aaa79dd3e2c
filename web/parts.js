// Parts that several views are made of.

import { h, put, say } from "./dom.js";

/**
 * A row of figures with their names. Returns a function that sets them.
 * @param {Element} place
 * @param {string[]} names
 */
export function figures(place, names) {
  const cells = names.map((name) => {
    const figure = h("b", {}, "–"), note = h("small");
    return { figure, note, box: h("div", { class: "figure" }, h("span", {}, name), figure, note) };
  });
  place.append(h("div", { class: "figures" }, cells.map((it) => it.box)));
  return (/** @type {([string, string?, string?])[]} */ values) => values.forEach(([figure, note, tone], at) => {
    say(cells[at].figure, figure);
    say(cells[at].note, note ?? "");
    cells[at].box.dataset.tone = tone ?? "";
  });
}

/**
 * @template T
 * @typedef {{ name: string, of: (it: T) => any, by?: (it: T) => number | string, figure?: boolean, hint?: string }} Column
 */

/**
 * A table whose columns sort by a click. Returns a function that fills it.
 * @template T
 * @param {Element} place
 * @param {string} label
 * @param {Column<T>[]} columns
 * @param {{ none: string, most?: number, pick?: (it: T) => void, sort?: number, id?: (it: T) => string }} options
 */
export function table(place, label, columns, options) {
  let sorted = options.sort ?? -1, way = -1, most = options.most ?? 200;
  /** @type {T[]} */
  let rows = [];
  /** @type {string | null} */
  let picked = null;
  const body = h("tbody"), more = h("p", { class: "more" });
  const heads = columns.map((column, at) => {
    const sort = () => { way = sorted === at ? -way : column.figure ? -1 : 1; sorted = at; draw(); };
    const inside = column.by ? h("button", { type: "button", onclick: sort, title: column.hint }, column.name) : column.name;
    return h("th", { scope: "col", class: column.figure && "figure-column" }, inside);
  });
  const box = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", {}, h("caption", { class: "hidden" }, label), h("thead", {}, h("tr", {}, heads)), body));
  place.append(box, more);
  function draw() {
    const order = columns[sorted]?.by;
    const compare = (/** @type {T} */ a, /** @type {T} */ b) => {
      const [one, other] = [order?.(a) ?? 0, order?.(b) ?? 0];
      return way * (typeof one === "string" ? -String(other).localeCompare(one) : one - Number(other));
    };
    const all = order ? [...rows].sort(compare) : rows;
    heads.forEach((it, at) => at === sorted ? it.setAttribute("aria-sort", way < 0 ? "descending" : "ascending") : it.removeAttribute("aria-sort"));
    if (!all.length) put(body, h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, options.none)));
    else put(body, all.slice(0, most).map((it) => {
      const key = options.id?.(it);
      const pick = options.pick && (() => { picked = key ?? null; options.pick?.(it); });
      return h("tr", { class: [options.pick && "picks", key !== undefined && key === picked && "picked"], onclick: pick }, columns.map((column) => h("td", { class: column.figure && "figure-column" }, column.of(it))));
    }));
    const rest = all.length - most;
    const grow = () => { most = Infinity; draw(); };
    put(more, rest > 0 ? h("button", { type: "button", class: "quiet", onclick: grow }, `Show ${rest} more`) : null);
  }
  let known = "";
  return (/** @type {T[]} */ next) => {
    // What did not change is left alone, and with it the focus in it.
    const key = JSON.stringify(next);
    if (key === known) return;
    known = key;
    rows = next;
    draw();
  };
}

/**
 * One of several, as buttons side by side. Returns the element and a function that reads it.
 * @param {string} label
 * @param {[string, string][]} choices value and name
 * @param {string} chosen
 * @param {(value: string) => void} changed
 */
export function choice(label, choices, chosen, changed) {
  let value = chosen;
  const buttons = choices.map(([own, name]) => h("button", { type: "button", "aria-pressed": String(own === value), onclick: () => set(own) }, name));
  function set(/** @type {string} */ next) {
    value = next;
    buttons.forEach((it, at) => it.setAttribute("aria-pressed", String(choices[at][0] === value)));
    changed(value);
  }
  const element = h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
  return { element, value: () => value, set };
}

/**
 * A list to pick one from.
 * @param {string} label
 * @param {[string, string][]} choices
 * @param {string} chosen
 * @param {(value: string) => void} changed
 */
export function pick(label, choices, chosen, changed) {
  const select = h("select", { onchange: () => changed(select.value) }, choices.map(([value, name]) => h("option", { value, selected: value === chosen }, name)));
  return { element: h("label", { class: "pick" }, h("span", {}, label), select), value: () => select.value };
}

/**
 * Asks again and again, while a view is shown and the tab is seen.
 * @param {() => Promise<void>} ask
 * @param {number} every_ms
 * @param {(error: string | null) => void} failed
 */
export function poll(ask, every_ms, failed) {
  let on = true, timer = 0;
  async function once() {
    if (!on) return;
    if (!document.hidden) {
      try {
        await ask();
        failed(null);
      } catch (error) {
        failed(error instanceof Error ? error.message : String(error));
      }
    }
    if (on) timer = setTimeout(once, every_ms);
  }
  void once();
  return { stop: () => { on = false; clearTimeout(timer); }, now: () => { clearTimeout(timer); void once(); } };
}

/** A place for what goes wrong. */
export function trouble() {
  const element = h("p", { class: "error", role: "alert", hidden: true });
  return { element, say: (/** @type {string | null} */ text) => { element.hidden = text === null; say(element, text === null ? "" : `This could not be read: ${text}`); } };
}

/**
 * A card with a title.
 * @param {string} title
 * @param {string | null} note
 * @param {...any} children
 */
export function card(title, note, ...children) {
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, title), note ? h("p", { class: "note" }, note) : null), children);
}

/**
 * The head of a view.
 * @param {string} title
 * @param {string} note
 * @param {...any} tools
 */
export function head(title, note, ...tools) {
  return h("div", { class: "view-head" }, h("div", {}, h("h1", {}, title), h("p", { class: "note" }, note)), h("div", { class: "tools" }, tools));
}

const SHAPES = /** @type {Record<string, [string, string]>} */ ({
  up: ["●", "good"], joining: ["◌", "calm"], trial: ["◇", "warn"], draining: ["◐", "calm"], drained: ["○", "calm"],
  suspect: ["▲", "warn"], out: ["✕", "bad"], leaving: ["→", "calm"],
});

/**
 * A state by shape, colour and word.
 * @param {string} state
 */
export function toneOf(state) {
  return SHAPES[state]?.[1] ?? "calm";
}

/** @param {string} state */
export function shapeOf(state) {
  return SHAPES[state]?.[0] ?? "·";
}

/**
 * @param {string} text
 * @param {string} [tone]
 */
export function badge(text, tone = "calm") {
  return h("span", { class: "badge", "data-tone": tone }, text);
}

/**
 * A share as a bar with its figure.
 * @param {number | null} share
 * @param {string} text
 * @param {string} [tone]
 */
export function meter(share, text, tone = "") {
  return h("span", { class: "meter", "data-tone": tone, vars: { "--share": `${Math.max(0, Math.min(1, share ?? 0)) * 100}%` } }, h("i", { "aria-hidden": "true" }), h("span", {}, text));
}
