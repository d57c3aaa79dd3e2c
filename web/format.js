// Figures as people read them: few digits, always with a unit.

/** @param {number | null | undefined} it */
const known = (it) => it !== null && it !== undefined && Number.isFinite(it);

/**
 * Three digits that count.
 * @param {number | null | undefined} it
 */
export function digits(it) {
  if (!known(it)) return "–";
  const figure = /** @type {number} */ (it);
  const size = Math.abs(figure);
  if (size >= 1e9) return (figure / 1e9).toFixed(size >= 1e10 ? 0 : 1) + " G";
  if (size >= 1e6) return (figure / 1e6).toFixed(size >= 1e7 ? 0 : 1) + " M";
  if (size >= 1e4) return (figure / 1e3).toFixed(size >= 1e5 ? 0 : 1) + " k";
  if (size >= 100 || Number.isInteger(figure)) return figure.toFixed(0);
  return size >= 10 ? figure.toFixed(1) : figure.toFixed(2);
}

/** @param {number | null | undefined} it */
export function whole(it) {
  return known(it) ? Math.round(/** @type {number} */ (it)).toLocaleString("en") : "–";
}

/**
 * @param {number | null | undefined} ms
 * @returns {string}
 */
export function time(ms) {
  if (!known(ms)) return "–";
  const it = /** @type {number} */ (ms);
  if (it < 0) return "−" + time(-it);
  if (it < 10) return `${Number(it.toFixed(1))} ms`;
  if (it < 1000) return it.toFixed(0) + " ms";
  if (it < 60_000) return `${Number((it / 1000).toPrecision(3))} s`;
  const [large, small] = it < 3_600_000 ? ["min", "s"] : ["h", "min"];
  const unit = large === "min" ? 1000 : 60_000;
  const all = Math.round(it / unit);
  return `${Math.floor(all / 60)} ${large}${all % 60 ? ` ${all % 60} ${small}` : ""}`;
}

/** @param {number | null | undefined} seconds */
export function ago(seconds) {
  if (!known(seconds)) return "–";
  const it = /** @type {number} */ (seconds);
  if (it < 1) return "now";
  if (it < 60) return `${Math.floor(it)} s ago`;
  if (it < 3600) return `${Math.floor(it / 60)} min ago`;
  if (it < 86_400) return `${Math.floor(it / 3600)} h ago`;
  return `${Math.floor(it / 86_400)} d ago`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  if (!known(share)) return "–";
  const it = /** @type {number} */ (share) * 100;
  return `${it.toFixed(it > 0 && it < 10 ? 1 : 0)} %`;
}

/** @param {number | null | undefined} it */
export function bytes(it) {
  if (!known(it)) return "–";
  let size = /** @type {number} */ (it);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024 || unit === "GiB") return `${size < 10 && unit !== "B" ? size.toFixed(1) : size.toFixed(0)} ${unit}`;
    size /= 1024;
  }
  return "";
}

/**
 * The time of day.
 * @param {number} ms of Unix time
 * @param {boolean} [seconds]
 */
export function clock(ms, seconds = true) {
  const at = new Date(ms);
  const two = (/** @type {number} */ it) => String(it).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
}

/**
 * A replica without what all have in common.
 * @param {string} url
 */
export function short(url) {
  return url.replace(/^https?:\/\//, "").replace(/\/$/, "");
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function plural(count, one, many = one + "s") {
  return `${whole(count)} ${count === 1 ? one : many}`;
}
