// XXH3 with 64 bits, as routers hash the names of sessions; written after the specification of the algorithm (xxHash, Yann
// Collet, BSD 2-Clause). It is here so that the name of a session does not leave the browser.

const MASK = (1n << 64n) - 1n;
const P32_1 = 0x9e3779b1n, P32_2 = 0x85ebca77n, P32_3 = 0xc2b2ae3dn;
const P64_1 = 0x9e3779b185ebca87n, P64_2 = 0xc2b2ae3d27d4eb4fn, P64_3 = 0x165667b19e3779f9n, P64_4 = 0x85ebca77c2b2ae63n, P64_5 = 0x27d4eb2f165667c5n;
const MX1 = 0x165667919e3779f9n, MX2 = 0x9fb21c651e98df25n;
const SECRET = bytesOf(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c" +
  "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364" +
  "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
);

/** @param {string} hex */
function bytesOf(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16));
}

/** @param {Uint8Array} of @param {number} at */
const u32 = (of, at) => BigInt(new DataView(of.buffer, of.byteOffset).getUint32(at, true));
/** @param {Uint8Array} of @param {number} at */
const u64 = (of, at) => new DataView(of.buffer, of.byteOffset).getBigUint64(at, true);
/** @param {bigint} a @param {bigint} b */
const mul = (a, b) => (a * b) & MASK;
/** @param {bigint} a @param {bigint} b */
const add = (a, b) => (a + b) & MASK;
/** @param {bigint} a @param {bigint} b */
const sub = (a, b) => (a - b) & MASK;
/** @param {bigint} a @param {bigint} b */
function fold(a, b) {
  const product = a * b;
  return (product & MASK) ^ (product >> 64n);
}
/** @param {bigint} it */
function swap64(it) {
  let out = 0n;
  for (let byte = 0n; byte < 64n; byte += 8n) out = (out << 8n) | ((it >> byte) & 0xffn);
  return out;
}
/** @param {bigint} it @param {bigint} by */
const rotl = (it, by) => ((it << by) | (it >> (64n - by))) & MASK;
/** @param {bigint} it */
function avalanche(it) {
  it ^= it >> 37n;
  it = mul(it, MX1);
  return it ^ (it >> 32n);
}
/** @param {bigint} it */
function avalanche64(it) {
  it ^= it >> 33n;
  it = mul(it, P64_2);
  it ^= it >> 29n;
  it = mul(it, P64_3);
  return it ^ (it >> 32n);
}
/** @param {Uint8Array} data @param {number} at @param {number} secret @param {bigint} seed */
const mix16 = (data, at, secret, seed) => fold(u64(data, at) ^ add(u64(SECRET, secret), seed), u64(data, at + 8) ^ sub(u64(SECRET, secret + 8), seed));

/** @param {Uint8Array} data @param {bigint} seed */
function upTo16(data, seed) {
  const length = data.length, size = BigInt(length);
  if (length > 8) {
    const low = (u64(SECRET, 24) ^ u64(SECRET, 32)), high = (u64(SECRET, 40) ^ u64(SECRET, 48));
    const one = u64(data, 0) ^ add(low, seed), other = u64(data, length - 8) ^ sub(high, seed);
    return avalanche(add(add(size, swap64(one)), add(other, fold(one, other))));
  }
  if (length >= 4) {
    const swapped = ((seed & 0xffn) << 24n) | ((seed & 0xff00n) << 8n) | ((seed >> 8n) & 0xff00n) | ((seed >> 24n) & 0xffn);
    const own = (seed ^ (swapped << 32n)) & MASK;
    let it = add(u32(data, length - 4), u32(data, 0) << 32n) ^ sub(u64(SECRET, 8) ^ u64(SECRET, 16), own);
    it ^= rotl(it, 49n) ^ rotl(it, 24n);
    it = mul(it, MX2);
    it ^= add(it >> 35n, size);
    it = mul(it, MX2);
    return it ^ (it >> 28n);
  }
  if (length > 0) {
    const [first, middle, last] = [data[0], data[length >> 1], data[length - 1]].map(BigInt);
    const all = (first << 16n) | (middle << 24n) | last | (size << 8n);
    return avalanche64(all ^ add(u32(SECRET, 0) ^ u32(SECRET, 4), seed));
  }
  return avalanche64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64));
}

/** @param {Uint8Array} data @param {bigint} seed */
function upTo240(data, seed) {
  const length = data.length;
  let it = mul(BigInt(length), P64_1);
  if (length <= 128) {
    for (let at = Math.floor((length - 1) / 32); at >= 0; at -= 1) {
      it = add(it, mix16(data, 16 * at, 32 * at, seed));
      it = add(it, mix16(data, length - 16 * (at + 1), 32 * at + 16, seed));
    }
    return avalanche(it);
  }
  for (let at = 0; at < 8; at += 1) it = add(it, mix16(data, 16 * at, 16 * at, seed));
  it = avalanche(it);
  for (let at = 8; at < Math.floor(length / 16); at += 1) it = add(it, mix16(data, 16 * at, 16 * (at - 8) + 3, seed));
  return avalanche(add(it, mix16(data, length - 16, 136 - 17, seed)));
}

/** @param {Uint8Array} data @param {bigint} seed */
function long(data, seed) {
  const secret = new Uint8Array(192), view = new DataView(secret.buffer);
  for (let at = 0; at < 192; at += 16) {
    view.setBigUint64(at, add(u64(SECRET, at), seed), true);
    view.setBigUint64(at + 8, sub(u64(SECRET, at + 8), seed), true);
  }
  const lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1];
  const stripe = (/** @type {number} */ at, /** @type {number} */ from) => {
    for (let lane = 0; lane < 8; lane += 1) {
      const value = u64(data, at + 8 * lane), key = value ^ u64(secret, from + 8 * lane);
      lanes[lane ^ 1] = add(lanes[lane ^ 1], value);
      lanes[lane] = add(lanes[lane], mul(key & 0xffffffffn, key >> 32n));
    }
  };
  const perBlock = (192 - 64) / 8, block = 64 * perBlock;
  const blocks = Math.floor((data.length - 1) / block);
  for (let at = 0; at < blocks; at += 1) {
    for (let one = 0; one < perBlock; one += 1) stripe(at * block + 64 * one, 8 * one);
    for (let lane = 0; lane < 8; lane += 1) {
      const it = (lanes[lane] ^ (lanes[lane] >> 47n)) ^ u64(secret, 128 + 8 * lane);
      lanes[lane] = mul(it, P32_1);
    }
  }
  const rest = Math.floor((data.length - 1 - block * blocks) / 64);
  for (let one = 0; one < rest; one += 1) stripe(blocks * block + 64 * one, 8 * one);
  stripe(data.length - 64, 192 - 64 - 7);
  let it = mul(BigInt(data.length), P64_1);
  for (let pair = 0; pair < 4; pair += 1) it = add(it, fold(lanes[2 * pair] ^ u64(secret, 11 + 16 * pair), lanes[2 * pair + 1] ^ u64(secret, 11 + 16 * pair + 8)));
  return avalanche(it);
}

/**
 * @param {string | Uint8Array} text
 * @param {bigint} [seed]
 */
export function xxh3(text, seed = 0n) {
  const data = typeof text === "string" ? new TextEncoder().encode(text) : text;
  return data.length <= 16 ? upTo16(data, seed) : data.length <= 240 ? upTo240(data, seed) : long(data, seed);
}

/**
 * The place of a session in the key space, as sixteen digits.
 * @param {string} seed of its workload, sixteen digits
 * @param {string} session
 */
export function sessionKey(seed, session) {
  const workload = BigInt(`0x${seed}`);
  // A name that cannot be echoed is known by its digest.
  const isPlain = /^[\x21-\x7e]{1,256}$/.test(session);
  const hex = (/** @type {bigint} */ it) => it.toString(16).padStart(16, "0");
  const name = isPlain ? session : `h-${hex(xxh3(session, 1n))}${hex(xxh3(session, 2n))}`;
  return hex((workload & ~0xffffffffn) | (xxh3(name, workload) >> 32n));
}
