// What the report shows, drawn with the page's own code (`web/dom.js`, `web/plot.js`), which stands above this in the file that
// is written. Data becomes text, never markup.

const byId = (id) => document.getElementById(id);
const digits = (it) => {
  if (it === null || it === undefined || !isFinite(it)) return "–";
  const size = Math.abs(it);
  return size >= 100 ? it.toFixed(0) : size >= 10 ? it.toFixed(1) : size >= 1 ? it.toFixed(2) : size >= 0.1 ? it.toFixed(3) : size > 0 ? it.toFixed(4) : "0";
};
const percent = (it) => (it * 100).toFixed(1) + "%";
const within = (it, show) => show(it.mean) + (it.half_width === null ? "" : ` ±${show(it.half_width)}`);
const plain = (it) => (it === 0 ? "0" : Math.abs(it) >= 1000 ? it.toLocaleString("en") : String(Number(it.toPrecision(3))));

const names = data.policies.map((it) => it.summary.policy);
const hue = (name) => `var(--c${(names.indexOf(name) % 7) + 1})`;
const focus = new Set(names.slice(0, 5));

// What the page says first.
put(byId("sub"), `${data.parameters.workload} · seed ${data.seed} · cleave ${data.version}`);
const best = data.policies[0].summary;
const worst = data.policies[data.policies.length - 1].summary;
const { over: axis, knees, good, compared_at: fleet, remarks } = data.axis;
const knee = (name) => knees.find((it) => it[0] === name)?.[1];
/** What of a sweep: how far each policy goes before the promise breaks, the best first. */
function kneesSaid() {
  const sizes = axis === "replicas";
  const tried = data.points.map((it) => it[axis]);
  const rank = (name) => (knee(name) ?? (sizes ? Infinity : 0)) * (sizes ? 1 : -1);
  return [...names].sort((a, b) => rank(a) - rank(b)).slice(0, 4).map((name) => {
    const promise = `${percent(good)} of requests within ${data.parameters.slo}`;
    if (knee(name) === undefined) return [sizes ? `more than ${Math.max(...tried)}` : `less than ${plain(Math.min(...tried))}×`, `${name}: nothing that was tried keeps the promise (${promise})`];
    const fewest = knee(name) === Math.min(...tried) ? " or fewer" : "";
    return [sizes ? `${knee(name)} replicas${fewest}` : `${plain(knee(name))}×`, sizes ? `keep the promise under ${name}: ${promise}` : `the rate, up to which ${name} keeps the promise: ${promise}`];
  });
}
/** What of a comparison: the best, and how it stands to what one line and one cache for all would do. */
function comparisonSaid() {
  const pooled = best.good_per_s.mean / Math.max(1e-12, data.bounds.pooled.good_per_s);
  // That line is served in the order of arrival: past its knee all wait, and few promises are kept.
  const beyond = pooled > 1.005 ? ", which has more than it can serve here and keeps few promises" : "";
  const hits = best.hit.mean / Math.max(1e-12, data.bounds.pooled_hit);
  return [
    [best.policy, `keeps the promise most often: ${percent(best.good_share.mean)} (${data.parameters.slo})`],
    [pooled > 1.005 ? `${digits(pooled)}×` : percent(pooled), `the goodput of one line and one cache for all${beyond}`],
    [hits > 1.005 ? `${digits(hits)}×` : percent(hits), `the hits of one cache for all (${percent(data.bounds.pooled_hit)}; endless: ${percent(data.bounds.infinite_hit)})`],
    [digits(worst.ttft_mean_s.mean / Math.max(1e-9, best.ttft_mean_s.mean)) + "×", `mean time to first token of the last in the list, ${worst.policy}`],
  ];
}
put(byId("facts"), (good === null ? comparisonSaid() : kneesSaid()).map(([figure, words]) => h("div", { class: "fact" }, h("b", {}, figure), h("span", {}, words))));
if (good !== null) put(byId("title"), axis === "replicas" ? "How many replicas keep the promise" : "How much load keeps the promise");
if (fleet !== null) put(byId("comparison"), `Comparison with ${fleet} replicas`);
byId("remarks").hidden = !remarks.length;
put(byId("remarks"), h("h2", {}, "Read with care"), h("ul", {}, remarks.map((it) => h("li", {}, it))));
put(byId("parameters"), Object.entries(data.parameters).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// The table.
const COLUMNS = [
  ["good", "Served", (it) => it.summary.good_share, percent, -1, (b) => b.pooled.good_share],
  ["good/s", "Served", (it) => it.summary.good_per_s, digits, -1, (b) => b.pooled.good_per_s],
  ["mean", "First token, s", (it) => it.summary.ttft_mean_s, digits, 1, (b) => b.pooled.ttft_s.mean],
  ["p50", "First token, s", (it) => it.summary.ttft_p50_s, digits, 1, (b) => b.pooled.ttft_s.p50],
  ["p90", "First token, s", (it) => it.summary.ttft_p90_s, digits, 1, (b) => b.pooled.ttft_s.p90],
  ["p99", "First token, s", (it) => it.summary.ttft_p99_s, digits, 1, (b) => b.pooled.ttft_s.p99],
  ["mean", "Per token, s", (it) => it.summary.tpot_mean_s, digits, 1, (b) => b.pooled.tpot_s.mean],
  ["p99", "Per token, s", (it) => it.summary.tpot_p99_s, digits, 1, (b) => b.pooled.tpot_s.p99],
  ["p50", "Whole answer, s", (it) => it.summary.end_to_end_p50_s, digits, 1, (b) => b.pooled.end_to_end_s.p50],
  ["p99", "Whole answer, s", (it) => it.summary.end_to_end_p99_s, digits, 1, (b) => b.pooled.end_to_end_s.p99],
  ["hit", "Cache", (it) => it.summary.hit, percent, -1, (b) => b.pooled_hit],
  ["elsewhere", "Computed again", (it) => it.summary.again_elsewhere, percent, 1, null],
  ["evicted", "Computed again", (it) => it.summary.again_evicted, percent, 1, null],
  ["max/mean", "Load", (it) => it.summary.load_max_over_mean, digits, 1, null],
  ["moved", "Sessions", (it) => it.summary.sessions_moved, digits, 1, null],
  ["index", "Fairness", (it) => it.summary.fairness, digits, -1, null],
];
let sorted = 0;
function drawTable() {
  const groups = [];
  for (const [, group] of COLUMNS) {
    if (groups.length && groups[groups.length - 1][0] === group) groups[groups.length - 1][1] += 1;
    else groups.push([group, 1]);
  }
  const [, , value, , way] = COLUMNS[sorted];
  const rows = [...data.policies].sort((a, b) => way * (value(a).mean - value(b).mean) || names.indexOf(a.summary.policy) - names.indexOf(b.summary.policy));
  const sort = (at) => () => { sorted = at; draw(); };
  const turn = (name) => () => { focus.has(name) ? focus.delete(name) : focus.add(name); draw(); };
  const head = [
    h("tr", {}, h("td", { class: "group" }), groups.map(([name, span]) => h("th", { class: "group", colspan: span, scope: "colgroup" }, name))),
    h("tr", {}, h("th", { scope: "col" }, "policy"), COLUMNS.map(([name], at) => h("th", { scope: "col", class: at === sorted && "sorted", "aria-sort": at === sorted && (way > 0 ? "ascending" : "descending") }, h("button", { type: "button", onclick: sort(at) }, name)))),
  ];
  const body = rows.map((it) => {
    const name = it.summary.policy;
    const cells = COLUMNS.map(([title, , figure, show]) => {
      const isBar = title === "good" || title === "hit";
      return h("td", { class: isBar && "bar", vars: isBar ? { "--w": `${(figure(it).mean * 100).toFixed(1)}%` } : {} }, within(figure(it), show));
    });
    const dot = h("button", { type: "button", class: "dot", "aria-pressed": String(focus.has(name)), "aria-label": `draw ${name} in colour`, vars: focus.has(name) ? { "--dot": hue(name) } : {}, onclick: turn(name) });
    return h("tr", {}, h("td", {}, dot, name), cells);
  });
  const bound = h("tr", { class: "bound" }, h("td", {}, "one line, one cache"), COLUMNS.map(([, , , show, , limit]) => h("td", {}, limit ? show(limit(data.bounds)) : "")));
  put(byId("table"), h("thead", {}, head), h("tbody", {}, body, bound));
}

// Classes, tenants and bystanders of faults, where there are any.
const grid = (head, rows, words = -1) => h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((it) => h("th", { scope: "col" }, it)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((it, at) => h("td", { class: at === words && "words" }, it)))))));
function drawGroups() {
  const shown = (it) => (it === null ? "–" : within(it, percent));
  const who = (kind, groups, note) => {
    const rows = data.policies.flatMap((it) => groups(it.summary).map((group) => [
      it.summary.policy, group.name, within(group.requests, digits), within(group.good_share, percent),
      within(group.served_mu_per_min, digits), within(group.ttft_p50_s, digits), within(group.ttft_p99_s, digits),
      within(group.wait_p99_s, digits), shown(group.deadlines_met), within(group.refused, digits),
      Object.entries(group.refused_by).map(([reason, count]) => `${reason} ${count}`).join(", "),
    ]));
    return [h("h2", {}, kind), h("p", { class: "note" }, note), grid(["policy", kind.toLowerCase(), "requests", "good", "MU/min served", "TTFT p50, s", "p99", "wait p99, s", "deadlines met", "refused", "for"], rows, 10)];
  };
  const parts = [];
  const most = (groups) => Math.max(...data.policies.map((it) => groups(it.summary).length));
  if (most((it) => it.classes) > 1) parts.push(who("Classes", (it) => it.classes, "What each class of requests got."));
  if (most((it) => it.tenants) > 1) {
    const heaviest = (it) => [...it.tenants].sort((a, b) => b.served_mu_per_min.mean - a.served_mu_per_min.mean).slice(0, 12);
    parts.push(who("Tenants", heaviest, "The twelve that were served most; all of them are in the JSON."));
  }
  const struck = data.policies.map((it) => it.summary).filter((it) => it.blast_radius !== null);
  if (struck.length) {
    const rows = struck.map((it) => [it.policy, within(it.blast_radius, percent), within(it.others.requests, digits), within(it.others_calm.good_share, percent), within(it.others.good_share, percent), within(it.others_calm.ttft_p99_s, digits), within(it.others.ttft_p99_s, digits)]);
    parts.push([h("h2", {}, "What the faults did to others"), h("p", { class: "note" }, "Requests that came after the first fault and did not cause it, held against the same runs without faults."), grid(["policy", "blast radius", "others", "good without", "good with", "TTFT p99 without, s", "with"], rows)]);
  }
  byId("groups").hidden = !parts.length;
  put(byId("groups"), parts);
}

// Curves.
const SIZE = { width: 640, height: 320, none: "Nothing was measured for this plot." };
const curvesOf = (points) => data.policies.map((it) => {
  const name = it.summary.policy;
  return { name, hue: hue(name), weak: !focus.has(name), points: points(it) };
});
function drawPlots() {
  const floor = 0.01;
  const longest = Math.max(...data.policies.map((it) => it.first.ttft_s.max));
  const share = (it) => `${Math.round(it * 100)}%`;
  plot(byId("cdf"), curvesOf((it) => it.curves.ttft_cdf.filter(([at]) => at >= floor)), { ...SIZE, label: "Time to first token", xName: "seconds (logarithmic)", yName: "share of requests", x: plain, y: share, logX: true, minX: floor, maxX: longest, maxY: 1, tags: true, hover: false });
  const over = (figure) => (it) => data.points.filter((point) => point.policy === it.summary.policy).map((point) => [point[axis], figure(point)]).sort((a, b) => a[0] - b[0]);
  const named = (curves) => curves.map((it) => ({ ...it, name: knee(it.name) === undefined ? it.name : `${it.name}: knee ${plain(knee(it.name))}` }));
  const marks = knees.filter(([name]) => focus.has(name)).map(([name, at]) => ({ at, text: `knee of ${name}: ${plain(at)}` }));
  const xName = axis === "replicas" ? "replicas" : "rate scale";
  const kept = good === null ? [] : [{ at: good, name: `${share(good)} good` }];
  plot(byId("kept"), named(curvesOf(over((it) => it.good_share))), { ...SIZE, label: "Promise kept", xName, yName: "share of good requests", x: plain, y: share, maxY: 1.02, limits: kept, marks, tags: true });
  plot(byId("good"), curvesOf(over((it) => it.good_per_s)), { ...SIZE, label: "Goodput", xName, marks, yName: "good requests per second", x: plain, y: plain, tags: true });
  plot(byId("hit"), curvesOf(over((it) => it.hit)), { ...SIZE, label: "Hit rate", xName, marks, yName: "hit rate", x: plain, y: share, limits: [{ at: data.bounds.pooled_hit, name: "one cache for all" }, { at: data.bounds.infinite_hit, name: "endless cache" }], tags: true });
  const chosen = data.policies.find((it) => it.summary.policy === byId("which").value);
  const rows = chosen.curves.load_ms_per_s;
  const buckets = Math.max(...rows.map((it) => it.length));
  const join = Math.ceil(buckets / 48);
  const width = chosen.curves.load_width_s * join;
  const sums = (row) => Array.from({ length: Math.ceil(buckets / join) }, (_, at) => row.slice(at * join, (at + 1) * join).reduce((a, b) => a + b, 0) / join / 1000);
  const joined = rows.map(sums);
  const total = (row) => row.reduce((a, b) => a + b, 0);
  const heaviest = joined.reduce((a, row, at) => (total(row) > total(joined[a]) ? at : a), 0);
  const mean = joined[0].map((_, at) => total(joined.map((row) => row[at])) / joined.length);
  const timed = (row) => row.map((it, at) => [(at + 0.5) * width, it]);
  const lines = joined.map((row, at) => ({ name: `replica ${at}`, hue: "var(--c2)", weak: at !== heaviest, points: timed(row) }));
  lines.push({ name: "mean", hue: "var(--c1)", weak: false, points: timed(mean) });
  plot(byId("load"), lines, { ...SIZE, label: "Load per replica over time", xName: "seconds since measuring began", yName: "seconds of work per second", x: plain, y: plain, tags: true });
}
put(byId("which"), names.map((name) => h("option", {}, name)));
byId("which").addEventListener("change", drawPlots);
function draw() { drawTable(); drawPlots(); }
drawGroups();
draw();
