// Requests to the router that served this page, by paths relative to it, so that it works behind a prefix. The token is kept
// for this tab only, and is sent in a header, never in an address.

const KEY = "cleave-token";

/** Said where the router wants a token, or another one. */
export class NeedsToken extends Error {}

export function token() {
  return sessionStorage.getItem(KEY);
}

/** @param {string | null} value */
export function setToken(value) {
  if (value === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

/** @param {Record<string, string>} [more] */
function headers(more = {}) {
  const own = token();
  return own ? { ...more, authorization: `Bearer ${own}` } : more;
}

/**
 * @param {string} path
 * @param {RequestInit} [init]
 */
export async function open(path, init = {}) {
  const answer = await fetch(new URL(path, document.baseURI), {
    ...init,
    headers: headers(/** @type {Record<string, string>} */ (init.headers ?? {})),
    cache: "no-store",
    credentials: "same-origin",
  });
  if (answer.status === 401) throw new NeedsToken("the router asks for a token");
  return answer;
}

/**
 * Reads JSON; an answer that is none becomes an error that says why.
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function read(path) {
  const answer = await open(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the router answered ${answer.status}`);
  return answer.json();
}

/**
 * Gives an order.
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<string>} what the router says to it
 */
export async function order(path, body) {
  const answer = await open(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: body === undefined ? "" : JSON.stringify(body),
  });
  const said = (await answer.text()).trim();
  if (!answer.ok) throw new Error(said || `the router answered ${answer.status}`);
  return said;
}

/**
 * Reads a part of an address; one that is no text is taken as it stands.
 * @param {string} part
 */
export function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * A path from parts that may hold anything.
 * @param {...string} parts
 */
export function path(...parts) {
  return parts.map(encodeURIComponent).join("/");
}
