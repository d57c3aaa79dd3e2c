// Orders: each is confirmed by a person who is told what it does, and can be undone.

import { order, path } from "./api.js";
import { h, put } from "./dom.js";
import { short } from "./format.js";

/** @type {import("./types").Operator | null} */
let operator = null;

/** @param {import("./types").Operator | null} it */
export function setOperator(it) {
  operator = it;
}

export const mayOrder = () => operator?.may_order ?? false;

/** @typedef {{ title: string, does: string, undo: string, button: string, path: string, body?: unknown, danger?: boolean }} Order */

/** @param {string} url @returns {Order} */
export const drain = (url) => ({
  title: `Drain ${short(url)}?`,
  does: "It takes nothing new. What runs there finishes, and its sessions leave at their next turn.",
  undo: "Undrain brings it back.",
  button: "Drain", path: `drain/${path(short(url))}`, danger: true,
});

/** @param {string} url @returns {Order} */
export const undrain = (url) => ({
  title: `Take ${short(url)} back?`, does: "It takes sessions again.", undo: "Drain empties it again.",
  button: "Undrain", path: `undrain/${path(short(url))}`,
});

/** @returns {Order} */
export const freeze = () => ({
  title: "Freeze all assignments?",
  does: "Workloads keep the replicas they have. The planner moves none, also when load changes; dead replicas are still stood in for.",
  undo: "Unfreeze lets assignments follow the load again.", button: "Freeze", path: "assignment/freeze", danger: true,
});

/** @returns {Order} */
export const unfreeze = () => ({
  title: "Unfreeze all assignments?", does: "Assignments follow the load again.", undo: "Freeze holds them.",
  button: "Unfreeze", path: "assignment/unfreeze",
});

/**
 * @param {string} pool
 * @param {string} workload eight digits
 * @param {string} name
 * @param {string[]} replicas none gives it back to the planner
 * @returns {Order}
 */
export const pin = (pool, workload, name, replicas) => ({
  title: replicas.length ? `Pin ${name} to ${replicas.length === 1 ? "1 replica" : `${replicas.length} replicas`}?` : `Unpin ${name}?`,
  does: replicas.length ? `It uses exactly ${replicas.map(short).join(", ")}, whatever its load.` : "The planner decides again which replicas it uses.",
  undo: replicas.length ? "Unpin gives it back to the planner." : "It can be pinned again.",
  button: replicas.length ? "Pin" : "Unpin", path: `assignment/pin/${path(pool, workload)}`,
  body: replicas.map(short), danger: replicas.length > 0,
});

/**
 * Asks a person, then the router. Resolves to what the router said, or to null if the person did not want it.
 * @param {Order} it
 * @returns {Promise<string | null>}
 */
export function give(it) {
  return new Promise((resolve) => {
    const said = h("p", { class: "error", role: "alert", hidden: true });
    const confirm = h("button", { class: it.danger ? "danger" : "primary", type: "submit" }, it.button);
    const dialog = h("dialog", { "aria-labelledby": "order-title", "aria-describedby": "order-does" });
    let answer = /** @type {string | null} */ (null);
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        answer = await order(it.path, it.body);
        dialog.close();
        notify(answer);
      } catch (error) {
        said.hidden = false;
        put(said, error instanceof Error ? error.message : String(error));
        confirm.disabled = false;
      }
    };
    dialog.append(h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: "order-title" }, it.title), h("p", { id: "order-does" }, it.does), h("p", { class: "note" }, it.undo), said,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"), confirm)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(answer); });
    document.body.append(dialog);
    dialog.showModal();
    confirm.focus();
  });
}

/** @param {string} text */
function notify(text) {
  const place = document.getElementById("notices");
  const notice = h("p", { class: "notice done" }, text);
  place?.append(notice);
  setTimeout(() => notice.remove(), 6000);
}

/**
 * A button that gives an order; dead where the token may not.
 * @param {Order} it
 * @param {string} [name]
 * @param {() => void} [done]
 */
export function orderButton(it, name = it.button, done) {
  const can = mayOrder();
  const press = async (/** @type {Event} */ event) => {
    event.stopPropagation();
    if ((await give(it)) !== null) done?.();
  };
  return h("button", { type: "button", class: "small", disabled: !can, title: can ? null : "This token may read, and give no orders", onclick: press }, name);
}
