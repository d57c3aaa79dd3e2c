// The frame around the views: navigation by address (`#fleet`), the token, the theme and what is said of the connection.

import { NeedsToken, read, setToken, token } from "./api.js";
import { h, mark, put, say } from "./dom.js";
import { listen, start, state, stop } from "./feed.js";
import { setOperator } from "./orders.js";
import { compare } from "./views/compare.js";
import { fleet } from "./views/fleet.js";
import { flow } from "./views/flow.js";
import { line } from "./views/line.js";
import { orders } from "./views/orders.js";
import { request } from "./views/request.js";
import { routers } from "./views/routers.js";
import { sessions } from "./views/sessions.js";
import { subsets } from "./views/subsets.js";
import { whatif } from "./views/whatif.js";

/** @type {{ id: string, name: string, view: import("./types").View, only?: () => boolean }[]} */
const VIEWS = [
  { id: "compare", name: "Side by side", view: compare, only: () => (state.fleet?.compared.length ?? 0) > 0 },
  { id: "fleet", name: "Fleet", view: fleet },
  { id: "flow", name: "Flow", view: flow },
  { id: "line", name: "Line & tenants", view: line },
  { id: "subsets", name: "Subsets", view: subsets },
  { id: "sessions", name: "Sessions", view: sessions },
  { id: "routers", name: "Routers", view: routers },
  { id: "request", name: "Requests", view: request },
  { id: "whatif", name: "What if", view: whatif },
  { id: "orders", name: "Orders", view: orders },
];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
const top = /** @type {HTMLElement} */ (document.getElementById("top"));
const notices = /** @type {HTMLElement} */ (document.getElementById("notices"));

/** @type {import("./types").View | null} */
let shown = null;
let shownId = "";
/** @type {import("./types").Operator | null} */
let operator = null;

const link = h("span", { class: "link", role: "status" });
const router = h("span", { class: "router" });
const account = h("span", { class: "account" });
const links = new Map();
const stale = h("p", { class: "notice" }, "The router was upgraded: this page is of another build, and may show some things wrong. ",
  h("button", { type: "button", onclick: () => location.reload() }, "Load the new page"));

function frame() {
  const theme = h("button", { class: "quiet", type: "button", onclick: turnTheme }, "Theme");
  put(top, h("a", { class: "brand", href: "#/fleet" }, h("img", { src: "web/icon.svg", alt: "", width: 26, height: 26 }), "Cleave"), router, h("span", { class: "space" }), link, account, theme);
  put(nav, h("ul", {}, VIEWS.map(({ id, name }) => {
    const item = h("li", {}, h("a", { href: `#/${id}` }, name));
    links.set(id, item);
    return item;
  })));
  const kept = localStorage.getItem("cleave-theme");
  if (kept) document.documentElement.dataset.theme = kept;
}

function turnTheme() {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("cleave-theme", theme);
}

/** Shows the view that the address names. */
function route() {
  const [id, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const home = state.fleet?.compared.length ? "compare" : "fleet";
  const found = VIEWS.find((it) => it.id === (id || home)) ?? VIEWS.find((it) => it.id === "fleet");
  if (!found) return;
  for (const it of VIEWS) {
    const item = links.get(it.id);
    item.hidden = it.only !== undefined && !it.only();
    mark(item.firstChild, "aria-current", it === found ? "page" : null);
  }
  const isAnother = found.id !== shownId;
  if (isAnother) {
    shown?.leave?.();
    put(main);
    window.scrollTo(0, 0);
  }
  shown = found.view;
  shownId = found.id;
  main.dataset.view = found.id;
  document.title = `${found.name} · Cleave`;
  found.view.draw(main, rest.join("/"));
  if (isAnother) links.get(found.id).firstChild.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function status() {
  const words = { connecting: "connecting", live: "live", lost: "connection lost, trying again", locked: "locked" };
  say(link, words[state.link]);
  link.dataset.link = state.link;
  const { fleet: told, now } = state;
  if (told && now) {
    const how = now.draining ? "draining" : now.ready ? "ready" : "no replica is up";
    say(router, `${told.router ? `router ${told.router.slice(0, 8)} · ` : ""}${how} · ${told.version}`);
    router.dataset.how = now.draining ? "draining" : now.ready ? "ready" : "down";
  }
  if (!state.stale) stale.remove();
  else if (!stale.isConnected) notices.append(stale);
}

/** Asks for the token, and for nothing else. @param {string} [wrong] */
function login(wrong) {
  stop();
  shown?.leave?.();
  shown = null;
  shownId = "";
  document.body.classList.add("locked");
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    setToken(field.value);
    void enter(true);
  };
  put(main, h("form", { class: "login card", onsubmit: submit },
    h("h1", {}, "This router asks for a token"),
    h("p", { class: "note" }, "One of admin.tokens in its configuration. It is kept for this tab only, and sent to this router only."),
    // Keeps of passwords look for a name.
    h("input", { type: "text", name: "username", autocomplete: "username", value: "cleave", hidden: true }),
    h("label", { for: "token" }, "Admin token"), field,
    wrong ? h("p", { class: "error", role: "alert" }, wrong) : null,
    h("button", { class: "primary", type: "submit" }, "Log in")));
  field.focus();
}

/** Begins, with the token there is. @param {boolean} [asked] */
async function enter(asked = false) {
  try {
    operator = await read("me");
    setOperator(operator);
    document.body.classList.remove("locked");
    const leave = () => { setToken(null); location.reload(); };
    put(account, operator?.needs_token ? [h("span", {}, `${operator.name}${operator.may_order ? "" : ", read only"}`), h("button", { class: "quiet", type: "button", onclick: leave }, "Log out")] : null);
    start();
    if (!shown) wait();
  } catch (error) {
    if (error instanceof NeedsToken) {
      const had = token() !== null;
      setToken(null);
      login(asked || had ? "The router does not know this token." : undefined);
    } else {
      wait(error instanceof Error ? error.message : String(error));
      setTimeout(() => void enter(asked), 2000);
    }
  }
}

/** Shown until the first figures are there. @param {string} [why] */
function wait(why) {
  put(main, h("div", { class: "waiting" }, h("div", { class: "pulse", "aria-hidden": "true" }), h("p", {}, why ? `The router cannot be reached (${why}). Trying again.` : "Waiting for the first figures.")));
}

listen((kind) => {
  if (kind === "link") {
    status();
    if (state.link === "locked") return login("The router does not know this token any more.");
  }
  if (kind === "now" || kind === "fleet") status();
  if (!shown || kind === "fleet") {
    if (state.fleet && state.now && (!shown || kind === "fleet")) route();
    return;
  }
  shown.update?.(kind);
});
window.addEventListener("hashchange", () => { if (state.fleet && state.now && state.link !== "locked") route(); });
let resizing = 0;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => shown?.update?.("past"), 150); });
frame();
status();
void enter();
