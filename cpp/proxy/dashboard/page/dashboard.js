"use strict";
// Reads dashboard/events and shows them. What comes from outside reaches the page as text or as a number of an SVG
// attribute, never as HTML; the page's policy would block the rest.

const $ = (id) => document.getElementById(id);

function make(tag, name, ...inside) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...inside.filter((each) => each !== null));
  return made;
}

function draw(tag, attributes, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  made.append(...inside);
  return made;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

// ---- words and numbers

const BLANK = "\u00a0", DASH = "\u2013";
const whole = (number) => Math.round(number).toLocaleString("en");
const percent = (share) => Math.round(share * 100) + BLANK + "%";
const counted = (number, one, more) => whole(number) + " " + (number === 1 ? one : more);

function short(number) {
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= unit) return (number / unit).toFixed(number < 10 * unit ? 1 : 0) + BLANK + letter;
  }
  return whole(number);
}

// "2.1 to 2.9 billion"
function between(low, high) {
  const [unit, word] = [[1e9, " billion"], [1e6, " million"], [1, ""]].find(([each]) => high >= each) || [1, ""];
  const number = (each) => (unit > 1 ? (each / unit).toFixed(1) : whole(each));
  return `${number(low)} to ${number(high)}${word}`;
}

// "84 / 401 ms"
function pair(first, second) {
  const [number, unit] = time(first).split(BLANK);
  return (unit === time(second).split(BLANK)[1] ? number : time(first)) + " / ";
}

function time(ms) {
  if (ms >= 1000) return (ms / 1000).toFixed(ms < 10000 ? 1 : 0) + BLANK + "s";
  return (ms < 10 ? ms.toFixed(1) : Math.round(ms)) + BLANK + "ms";
}

function lasting(seconds) {
  for (const [unit, one] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
    if (seconds >= unit) return counted(Math.floor(seconds / unit), one, one + "s");
  }
  return counted(Math.max(1, Math.floor(seconds)), "second", "seconds");
}

const clock = (date) => date.toLocaleTimeString("en-GB");

// The shortest part of each URL that tells it from the others.
function shortNames(urls) {
  const parts = urls.map((url) => {
    const found = /^[a-z]+:\/\/(\[[^\]]*\]|[^:/@]*)(:\d+)?(.*)$/.exec(url);
    return found ? {host: found[1], port: found[2] || "", rest: found[3]} : {host: url, port: "", rest: ""};
  });
  const same = (key) => parts.every((part) => part[key] === parts[0][key]);
  const isAddress = (host) => /^[\d.]+$|^\[/.test(host);
  // A domain that all hosts share, but for their first label.
  const domain = (host) => host.slice((host + ".").indexOf("."));
  const oneDomain = parts.length > 1 && parts.every(
    (part) => !isAddress(part.host) && domain(part.host) === domain(parts[0].host));
  const made = parts.map((part) => {
    const host = oneDomain ? part.host.slice(0, part.host.length - domain(part.host).length) : part.host;
    return host + (same("port") ? "" : part.port) + (same("rest") ? "" : part.rest);
  });
  return new Set(made).size === made.length ? made : urls;
}

const REASONS = {
  random: "at random", round_robin: "its turn", least_loaded: "least loaded", power_of_two: "the less loaded of two",
  session_hash: "where its session belongs", body_hash: "where its prompt belongs", failover: "its worker is out",
  overflow: "its worker is full", prefix_hash: "where its prefix belongs", prefix_hit: "holds most of the prompt",
  prefix_miss: "nobody holds the prompt", prefix_spread: "a prefix that is spread", load_balance: "balances load",
  lowest_cost: "lowest cost", sampled: "sampled by cost", kv_aware: "holds most of the prompt", sticky: "its conversation is there",
  sticky_new: "new conversation, least loaded", fallback: "by the fallback policy", pinned: "as it was told",
  holdout: "held out from the policy",
};

function why(receipt) {
  const words = REASONS[receipt.reason] || receipt.reason.replaceAll("_", " ");
  if (receipt.reason !== "lowest_cost" || receipt.predicted_cached_tokens === null) return words;
  if (receipt.foregone_tokens > 0) return "lowest cost, less load";
  return receipt.predicted_cached_tokens > 0 ? "holds most of the prompt" : "new prompt, least loaded";
}

const ROUTES = {"/v1/chat/completions": "chat", "/v1/completions": "completion", "/v1/messages": "messages", "/v1/responses": "responses"};

// ---- what is known

const SECONDS = 600, ROWS = 50, DECISIONS = 10;
const known = {hello: null, points: [], workers: new Map(), names: new Map(), tick: null, receipts: [], skipping: 1, holdout: null};
const view = {filter: "", isPaused: false, open: null, lostSince: null, message: ""};

const onEvent = {
  hello(hello) {
    known.hello = hello;
    known.points = hello.history;
    known.receipts = [];
    known.holdout = null;
    if (hello.holdout) loadHoldout();
  },
  fleet(fleet) {
    known.workers = new Map(fleet.workers.map((row) => [row.id, row]));
    const urls = fleet.workers.map((row) => row.url), names = shortNames(urls);
    known.names = new Map(urls.map((url, i) => [url, names[i]]));
  },
  receipt(receipt) {
    known.receipts.unshift(receipt);
    if (known.receipts.length > 4 * DECISIONS) known.receipts.pop();
  },
  tick(tick) {
    for (const row of tick.workers) known.workers.set(row.id, row);
    known.tick = tick;
    const last = known.points.at(-1);
    if (!last || last[0] !== tick.point[0]) known.points.push(tick.point);
    while (known.points.length > SECONDS) known.points.shift();
    const {shown, skipped} = tick.receipts;
    if (shown > 0) known.skipping = Math.round((shown + skipped) / shown);
    view.lostSince = null;
    view.message = "";
    render();
  },
};

const nameOf = (url) => known.names.get(url) || url || "a worker that is gone";

// ---- the sentence

function showSentence() {
  const {tick, hello} = known, [, , , , cached] = known.points.at(-1), facts = tick.facts;
  const worst = tick.conditions[0], rest = tick.conditions.slice(1);
  const failures = facts.failed > 0
    ? `${whole(facts.failed)} of ${counted(facts.requests, "request", "requests")} of the last 10 minutes failed.`
    : "No failure in the last 10 minutes.";
  if (worst) {
    const end = tick.sentence.indexOf(". ") + 1 || tick.sentence.length;
    showHeadline(tick.sentence.slice(0, end), tick.sentence.slice(end));
    const lines = [`For ${lasting(tick.point[0] - worst.since)}. ${failures}`, ...rest.slice(0, 3).map((each) => each.text)];
    if (rest.length > 3) lines.push(`${whole(rest.length - 3)} more are in /admin/status.`);
    showUnder(lines);
  } else if (known.workers.size === 0) {
    showHeadline("", "The router has no workers yet.");
    showUnder([]);
  } else {
    const isIdle = facts.requests === 0 && known.receipts.length === 0;
    const more = isIdle ? " No request yet." : cached === null ? "" : ` ${percent(cached)} of prompt tokens come from cache.`;
    showHeadline("", tick.sentence + more);
    const [, , , , , , waiting] = tick.point;
    const waits = waiting > 0 ? counted(waiting, "request waits", "requests wait") + "." : "Nobody waits.";
    const adds = facts.overhead_us === null ? "" : ` The router adds ${whole(facts.overhead_us)}${BLANK}\u00b5s to a request.`;
    showUnder([`${waits}${adds} ${failures}`]);
  }
  document.title = (worst ? `(${tick.conditions.length}) ` : "") + "vllm-router";
  const up = Math.max(0, tick.point[0] - hello.started);
  say($("who"), [hello.version, hello.router || location.host, "policy " + hello.policy, "up " + lasting(up)].join(" \u00b7 "));
}

function showHeadline(bad, rest) {
  const heading = $("sentence");
  if (heading.textContent === bad + rest && Boolean(bad) === Boolean(heading.querySelector("em"))) return;
  heading.replaceChildren(...(bad ? [make("em", "", bad), rest] : [rest]));
}

function showUnder(lines) {
  const under = $("under");
  while (under.children.length > lines.length) under.lastChild.remove();
  lines.forEach((line, i) => say(under.children[i] || under.appendChild(make("p")), line));
}

// ---- charts

const WIDTH = 600, HEIGHT = 56;

// A scale that ends a little above the largest value.
function topOf(largest, least) {
  const wanted = Math.max(largest * 1.1, least);
  const unit = 10 ** Math.floor(Math.log10(wanted));
  return unit * [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= wanted * 0.9999);
}

// Pieces of the curve between gaps, where nothing was measured.
function piecesOf(index, top) {
  const pieces = [], end = known.points.at(-1)[0];
  let piece = null;
  for (const point of known.points) {
    const value = point[index], x = WIDTH - (end - point[0]);
    if (value === null) {
      piece = null;
    } else if (x >= 0) {
      if (piece === null) pieces.push(piece = []);
      piece.push([x.toFixed(1), (HEIGHT - 1 - Math.min(1, value / top) * (HEIGHT - 2)).toFixed(1)]);
    }
  }
  return pieces;
}

const curveOf = (pieces) => pieces.map((piece) => "M" + piece.map((at) => at.join(" ")).join("L") + "h.1").join("");
const areaOf = (pieces) => pieces.map(
  (piece) => `M${piece[0][0]} ${HEIGHT}L${piece.map((at) => at.join(" ")).join("L")}V${HEIGHT}Z`).join("");

class Tile {
  constructor(title, first, second, isDashed) {
    this.index = first;
    this.secondIndex = second;
    this.area = draw("path", {class: "area"});
    this.curve = draw("path", {class: "curve"});
    this.second = draw("path", {class: "curve second" + (isDashed ? " dashed" : "")});
    const chart = draw("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title + ", the last 10 minutes"},
      draw("path", {class: "ground", d: `M0 ${HEIGHT}H${WIDTH}`}), this.area, this.second, this.curve);
    this.number = make("span");
    this.unit = make("small");
    this.top = make("span");
    this.feet = [make("span"), make("span")];
    $("tiles").append(make("div", "tile", make("h2", "", title), make("div", "big", this.number, this.unit),
      make("div", "chart", chart, this.top), make("div", "feet", ...this.feet)));
  }

  show({number, unit, top, topText, feet}) {
    say(this.number, number);
    say(this.unit, unit);
    say(this.top, topText);
    this.feet.forEach((foot, i) => say(foot, feet[i] || ""));
    const pieces = piecesOf(this.index, top);
    this.curve.setAttribute("d", curveOf(pieces));
    this.area.setAttribute("d", areaOf(pieces));
    if (this.secondIndex) this.second.setAttribute("d", curveOf(piecesOf(this.secondIndex, top)));
  }
}

const largestOf = (index) => known.points.reduce((largest, point) => Math.max(largest, point[index] || 0), 0);
// The numbers of a point: time, requests, p50, p95, cached, expected, waiting.
const tiles = [
  new Tile("Requests", 1), new Tile("Time to first token", 3, 2), new Tile("Prompt from cache", 4, 5, true),
  new Tile("Waiting for a worker", 6),
];

function showTiles() {
  const [, requests, p50, p95, cached, expected, waiting] = known.points.at(-1), {facts} = known.tick;
  const most = topOf(largestOf(1), 1);
  tiles[0].show({
    number: requests >= 10 ? whole(requests) : requests.toFixed(1), unit: "/s", top: most, topText: whole(most) + "/s",
    feet: [`${whole(facts.failed)} failed` + (facts.retried ? `, ${whole(facts.retried)} retried` : ""), `${whole(facts.in_flight)} in flight`],
  });
  const longest = topOf(largestOf(3), 10);
  const [number, unit] = p95 === null ? [DASH, "no stream lately"] : time(p95).split(BLANK);
  tiles[1].show({
    number, unit: p95 === null ? unit : unit + " p95", top: longest, topText: time(longest),
    feet: [p50 === null ? "" : "p50 " + time(p50), facts.p99_ms === null ? "" : "p99 " + time(facts.p99_ms)],
  });
  tiles[2].show({
    number: cached === null ? DASH : String(Math.round(cached * 100)), unit: cached === null ? "" : "% of tokens", top: 1, topText: "100" + BLANK + "%",
    feet: !known.hello.receipts ? ["receipts are off (--receipts)"]
      : facts.reporting === 0 ? ["vLLM tells it with --enable-prompt-tokens-details"]
      : [expected === null ? "" : "expected " + percent(expected), facts.reporting === null ? "" : `engines report ${percent(facts.reporting)}`],
  });
  const queue = topOf(largestOf(6), 8);
  tiles[3].show({
    number: whole(waiting), unit: waiting === 1 ? "request" : "requests", top: queue, topText: whole(queue),
    feet: [known.hello.queue_limit ? "limit " + whole(known.hello.queue_limit) : "no queue",
      facts.longest_wait_ms === null ? "nobody waited" : "longest below " + time(facts.longest_wait_ms)],
  });
}

// ---- workers

// The states of GET /admin/status: the word that is shown, its kind, and where it stands.
const STATES = {
  unhealthy: ["down", "bad", 0], ejected: ["ejected", "bad", 1], hangs: ["hangs", "bad", 2], rejects: ["rejects", "bad", 3],
  responds_404: ["responds 404", "bad", 3], fails: ["fails", "bad", 3], slow: ["slow", "warn", 4], draining: ["draining", "warn", 5],
  serves: ["serves", "good", 6],
};
const SERVES = 6;
const SHAPES = {
  good: "M5 0a5 5 0 1 1-.01 0z", warn: "M0 1h10L5 10z", bad: "M1.5 0 5 3.5 8.5 0 10 1.5 6.5 5 10 8.5 8.5 10 5 6.5 1.5 10 0 8.5 3.5 5 0 1.5z",
};

// A bar whose fill is one share of its width, in front of another.
function makeBar(hasSecond) {
  const first = draw("rect", {height: 8}), second = hasSecond ? draw("rect", {class: "wanted", height: 8}) : null;
  const bar = make("span", "bar", draw("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"}, ...[second, first].filter(Boolean)));
  const width = (share) => (100 * Math.max(0, Math.min(1, share || 0))).toFixed(1);
  bar.set = (share, wanted) => {
    first.setAttribute("width", width(share));
    if (second) second.setAttribute("width", width(wanted));
    return bar;
  };
  return bar;
}

class WorkerRow {
  constructor() {
    this.name = make("b");
    this.reason = make("small");
    this.shape = draw("path", {});
    this.word = make("span");
    this.bar = makeBar();
    this.cells = [0, 1, 2, 3, 4].map(() => make("span"));
    const [open, queued, times, cached, errors] = this.cells;
    this.p50 = make("span", "quiet");
    this.p95 = make("span");
    times.append(this.p50, this.p95);
    this.row = make("tr", "", make("td", "worker", this.name, this.reason),
      make("td", "", make("span", "state", draw("svg", {viewBox: "0 0 10 10", "aria-hidden": "true"}, this.shape), this.word)),
      make("td", "", this.bar, open), make("td", "", queued), make("td", "", times), make("td", "", cached), make("td", "", errors));
  }

  show(worker, reason, busiest) {
    const [word, ofState] = STATES[worker.state] || [worker.state, "warn"];
    const kind = ofState === "good" && reason ? "warn" : ofState;
    const [open, queued, , cached, errors] = this.cells;
    this.row.className = kind;
    say(this.name, nameOf(worker.url) + (worker.stage ? ` (${worker.stage})` : ""));
    this.name.title = worker.url;
    this.reason.hidden = !reason;
    say(this.reason, reason);
    this.shape.setAttribute("d", SHAPES[kind]);
    say(this.word, word);
    this.bar.set(worker.open / busiest);
    say(open, whole(worker.open));
    const number = (cell, text, isQuiet) => { say(cell, text).className = isQuiet ? "quiet" : ""; };
    number(queued, short(worker.queued), worker.queued === 0);
    say(this.p50, worker.p50_ms === null ? "" : pair(worker.p50_ms, worker.p95_ms));
    number(this.p95, worker.p95_ms === null ? DASH : time(worker.p95_ms), worker.p95_ms === null);
    this.p95.closest("td").className = worker.p95_ms === null ? "none" : "";
    number(cached, worker.cached === null ? DASH : percent(worker.cached), worker.cached === null);
    cached.parentNode.className = worker.cached === null ? "none" : "";
    number(errors, whole(worker.errors), worker.errors === 0);
  }
}

// What is wrong with a worker, without its name, which stands beside it.
function reasonOf(worker) {
  if (worker.state === "draining") return worker.open ? counted(worker.open, "request", "requests") + " left" : "no requests left";
  const condition = known.tick.conditions.find((each) => each.worker === worker.url);
  if (!condition) return "";
  const text = condition.text.startsWith(worker.url + " ") ? condition.text.slice(worker.url.length + 1) : condition.text;
  const end = text.indexOf(". ");
  return (end < 0 ? text : text.slice(0, end)).replace(/\.$/, "");
}

const rows = [];

function sortedWorkers() {
  const all = [...known.workers.values()].map((worker, place) => {
    const reason = reasonOf(worker), rank = (STATES[worker.state] || [0, 0, 4])[2];
    return {worker, place, reason, rank: rank === SERVES && reason ? 4 : rank};
  });
  return all.sort((a, b) => a.rank - b.rank || a.place - b.place);
}

function showWorkers() {
  const all = sortedWorkers(), filter = view.filter.toLowerCase();
  let shown = all;
  if (filter) {
    shown = all.filter(({worker}) => `${worker.url} ${nameOf(worker.url)} ${(STATES[worker.state] || [worker.state])[0]}`.toLowerCase().includes(filter));
  } else if (all.length > ROWS) {
    const trouble = all.filter((each) => each.rank < SERVES);
    const busy = all.filter((each) => each.rank === SERVES).sort((a, b) => b.worker.open - a.worker.open || a.place - b.place);
    shown = [...trouble, ...busy.slice(0, ROWS)];
  }
  const busiest = Math.max(1, ...all.map(({worker}) => worker.open));
  const body = $("workers").tBodies[0];
  while (rows.length > shown.length) rows.pop().row.remove();
  while (rows.length < shown.length) {
    rows.push(new WorkerRow());
    body.append(rows.at(-1).row);
  }
  shown.forEach(({worker, reason}, i) => rows[i].show(worker, reason, busiest));
  const serving = all.filter(({worker}) => worker.state === "serves" || worker.state === "slow").length;
  const part = shown.length < all.length ? `${shown.length} of ${all.length} shown` : "trouble first";
  say($("workers-note"), `${serving} serving \u00b7 ${part} \u00b7 of the last minute`);
}

function workersAsCsv() {
  const quoted = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet would run what begins like a formula.
    const plain = /^[=+@\-\t\r]/.test(text) ? "'" + text : text;
    return /[",\n\r]/.test(plain) ? '"' + plain.replaceAll('"', '""') + '"' : plain;
  };
  const columns = ["url", "state", "open", "queued", "p50_ms", "p95_ms", "cached", "attempts", "errors"];
  const lines = sortedWorkers().map(({worker}) => columns.map((column) => quoted(worker[column])).join(","));
  return [columns.join(","), ...lines].join("\r\n") + "\r\n";
}

// Where the page came without TLS, browsers have no clipboard but that of a selection.
async function copyCsv() {
  const text = workersAsCsv();
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  $("csv").textContent = "Copied";
  setTimeout(() => { $("csv").textContent = "Copy as CSV"; }, 1500);
}

// ---- what the policy saves

async function loadHoldout() {
  try {
    const response = await fetch("admin/holdout", {headers: credentials(), cache: "no-store"});
    known.holdout = response.ok ? await response.json() : null;
    render();
  } catch {
    // The events say that the connection is lost.
  }
}

setInterval(() => { if (known.hello && known.hello.holdout && view.lostSince === null) loadHoldout(); }, 60000);

// An estimate with its interval on a scale; `nothing`: where there is no difference.
function whisker(title, {at, low, high, nothing, isLog, value, isSure, left, right}) {
  const place = isLog ? Math.log : (number) => number;
  const ends = [low, high, nothing].map(place), room = (Math.max(...ends) - Math.min(...ends)) * 0.2 || 1;
  const from = Math.min(...ends) - room, to = Math.max(...ends) + room;
  const x = (number) => (4 + 292 * (place(number) - from) / (to - from)).toFixed(1);
  const chart = draw("svg", {class: "whisker", viewBox: "0 0 300 26", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${left}, ${right}`},
    draw("path", {class: "nothing", d: `M${x(nothing)} 0V26`}), draw("path", {class: "interval", d: `M${x(low)} 13H${x(high)}`}),
    draw("path", {class: "estimate", d: `M${x(at)} 13h.01`}));
  return make("div", isSure ? "" : "unsure", make("div", "ends", make("span", "", title), make("b", "", isSure ? value : "no conclusion yet")), chart,
    make("div", "ends small", make("span", "", left), make("span", "", right)));
}

const signed = (number) => (number > 0 ? "+" : number < 0 ? "\u2212" : "") + Math.abs(Math.round(number));
const needed = (each) => each.conclusive || !each.holdout_needed ? "" : `, about ${whole(each.holdout_needed)} needed`;

function holdoutParts(page) {
  const {cached_share: share, ttft_ratio: times, failure_ratio: failures, saved_prompt_tokens_per_day: saved} = page;
  const held = whole(page.conversations.holdout);
  const intro = make("p");
  if (saved && saved[0] > 0) intro.append(make("b", "", between(saved[0], saved[1]) + " tokens a day"), "of prompts need no prefill, ");
  intro.append(`${saved && saved[0] > 0 ? "compared" : "Compared"} with ${page.baseline}, which gets ${page.percent}${BLANK}% of conversations: ${held} so far. Intervals hold however often you look.`);
  if (page.stopped) intro.append(` It stopped by itself: ${page.stopped}.`);
  const parts = [intro];
  if (share) {
    const [low, high] = share.interval.map((each) => each * 100), at = share.difference * 100;
    parts.push(whisker("From cache", {at, low, high, nothing: 0, value: signed(at) + " points", isSure: share.conclusive,
      left: `${percent(share.policy)} instead of ${percent(share.holdout)}`, right: `${signed(low)} to ${signed(high)}${needed(share)}`}));
  }
  if (times) {
    const [low, high] = times.interval, change = (times.estimate - 1) * 100, word = change <= 0 ? "shorter" : "longer";
    parts.push(whisker("Time to first token", {at: times.estimate, low, high, nothing: 1, isLog: true, value: signed(change) + BLANK + "%", isSure: times.conclusive,
      left: `${Math.abs(Math.round(change))}${BLANK}% ${word} so far`, right: `${signed((low - 1) * 100)} to ${signed((high - 1) * 100)}${BLANK}%${needed(times)}`}));
  }
  if (failures && failures.estimate !== null && failures.interval.every((end) => end > 0)) {
    const [low, high] = failures.interval, times = (number) => number.toFixed(1) + "\u00d7";
    parts.push(whisker("Failures", {at: failures.estimate, low, high, nothing: 1, isLog: true, value: times(failures.estimate), isSure: failures.conclusive,
      left: times(failures.estimate) + " as many without it", right: `${times(low)} to ${times(high)}`}));
  }
  if (parts.length === 1) parts.push(make("div", "quiet", "The first numbers come with 100 conversations that were held out."));
  return parts;
}

let shownHoldout;

function showHoldout() {
  if (shownHoldout === known.holdout) return;
  shownHoldout = known.holdout;
  if (known.holdout) {
    say($("saved-note"), "dotted line: no difference");
    $("saved").replaceChildren(...holdoutParts(known.holdout));
  } else {
    say($("saved-note"), "");
    $("saved").replaceChildren(make("p", "", "Not measured. Started with ", make("code", "", "--holdout-percent 1"),
      ", the router sends one conversation in a hundred to the least loaded worker, and shows here what the policy saves the others."));
  }
}

// ---- decisions

function sentenceOf(receipt) {
  const worker = nameOf(receipt.worker), {predicted_cached_tokens: predicted, reported_cached_tokens: reported, prompt_tokens: prompt} = receipt;
  if (predicted === null) {
    const held = reported === null ? "" : ` It reported ${counted(reported, "token", "tokens")} of the prompt as cached.`;
    return `${receipt.policy} chose ${worker}: ${why(receipt)}. It compares no prompts, so nothing was expected.${held}`;
  }
  const of = prompt === null ? "of the prompt" : `of the prompt's ${whole(prompt)} tokens`;
  const came = reported === null ? "; its engine reported nothing." : `, and reported ${whole(reported)}.`;
  let text = `${worker} was expected to hold ${whole(predicted)} ${of}${came}`;
  const best = receipt.best_match, load = receipt.load;
  if (receipt.foregone_tokens > 0 && best.worker) {
    const busy = load.best_open > load.open ? `, but has ${counted(load.best_open, "request", "requests")} open` : "";
    text += ` ${nameOf(best.worker)} holds ${whole(receipt.foregone_tokens)} more${busy}.`;
  }
  return text;
}

function candidatesOf(receipt) {
  if (!receipt.candidates) return make("p", "quiet", "Candidates are kept of some decisions only (--receipt-detail-every).");
  const head = make("tr", "", ...["Candidate", "Open", "Holds", "Cost"].map((title) => make("th", "", title)));
  const body = receipt.candidates.map((each) => {
    const isChosen = each.worker === receipt.worker;
    const cells = [nameOf(each.worker) + (isChosen ? " (chosen)" : ""), whole(each.open), each.cached_tokens === null ? DASH : whole(each.cached_tokens),
      each.cost === undefined ? DASH : each.cost.toFixed(1)];
    return make("tr", isChosen ? "chosen" : "", ...cells.map((cell) => make("td", "", cell)));
  });
  return make("table", "candidates", make("thead", "", head), make("tbody", "", ...body));
}

function detailsOf(receipt) {
  const facts = [
    ["request", receipt.request_id], ["model", receipt.model || "not known"],
    ["decided in", receipt.decision_us === null ? "not known" : `${whole(receipt.decision_us)}${BLANK}\u00b5s` + (receipt.queue_ms > 0 ? `, queued for ${time(receipt.queue_ms)}` : ", nothing queued")],
    ["attempts", whole(receipt.attempts)], ["ended", `${receipt.end.replaceAll("_", " ")}, ${receipt.status || "no status"}`],
  ];
  const list = make("dl");
  for (const [name, value] of facts) list.append(make("dt", "", name), make("dd", "", value));
  return make("div", "receipt", make("div", "", make("p", "", sentenceOf(receipt)), list), candidatesOf(receipt));
}

function decisionRow(receipt) {
  const {predicted_cached_tokens: predicted, reported_cached_tokens: reported, prompt_tokens: prompt} = receipt;
  const size = prompt || Math.max(predicted || 0, reported || 0) || 1;
  const hit = reported === null ? "not reported" : predicted === null ? whole(reported) : `${whole(reported)} of ${whole(predicted)}`;
  const kind = ROUTES[receipt.route] || receipt.route;
  const row = make("button", "decision", make("span", "when", clock(new Date(receipt.ts))),
    make("span", "what", receipt.model ? `${receipt.model} \u00b7 ${kind}` : kind), make("span", "whom", nameOf(receipt.worker)), make("span", "why", why(receipt)),
    make("span", "hit" + (reported === null ? " quiet" : ""), makeBar(true).set(reported / size, predicted / size), hit),
    make("span", "first", receipt.ttft_ms === null ? DASH : time(receipt.ttft_ms)));
  row.type = "button";
  row.setAttribute("aria-expanded", String(view.open === receipt));
  row.addEventListener("click", () => {
    view.open = view.open === receipt ? null : receipt;
    showDecisions(true);
  });
  return row;
}

let shownDecisions = [];
const canHover = matchMedia("(hover: hover)");

// The list stands still while somebody reads it.
function isRead() {
  const list = $("decisions");
  return view.open !== null || list.querySelector(":focus-visible") !== null || (canHover.matches && list.matches(":hover"));
}

function showDecisions(isOurs) {
  const list = $("decisions");
  const note = known.skipping > 1 ? `one in ${whole(known.skipping)} is shown \u00b7 ` : "";
  say($("decisions-note"), note + (isRead() ? "stands still while you read" : "select one to see why"));
  const hasFocus = isOurs ? [...list.children].indexOf(document.activeElement) : -1;
  if (!isOurs) {
    const next = known.receipts.slice(0, DECISIONS);
    const isSame = next.length === shownDecisions.length && next.every((each, i) => each === shownDecisions[i]);
    if (list.children.length && (isSame || (isRead() && shownDecisions.length))) return;
    shownDecisions = next;
  }
  if (!shownDecisions.length) {
    const text = known.hello.receipts ? "No request yet." : "Receipts are off; the router keeps them with --receipts 8192, the default.";
    list.replaceChildren(make("p", "", text));
    return;
  }
  const focused = hasFocus < 0 ? null : document.activeElement.receipt;
  list.replaceChildren(...shownDecisions.flatMap((receipt) => {
    const row = decisionRow(receipt);
    row.receipt = receipt;
    return view.open === receipt ? [row, detailsOf(receipt)] : [row];
  }));
  if (focused) [...list.children].find((row) => row.receipt === focused)?.focus();
}

// ---- all of it

function render() {
  document.body.classList.toggle("lost", view.lostSince !== null);
  if (view.message) showHeadline("", view.message);
  else if (view.lostSince !== null) showHeadline(`Not connected since ${clock(view.lostSince)}.`, "");
  if (view.message || view.lostSince !== null) {
    showUnder(view.lostSince !== null && known.tick ? ["What is shown below is from then. The page connects again by itself."] : []);
    say($("live"), "not connected");
    document.title = "vllm-router: not connected";
    return;
  }
  say($("live"), view.isPaused ? "paused" : "live, every second");
  if (view.isPaused || document.hidden || !known.tick) return;
  $("ask").hidden = true;
  $("all").hidden = false;
  say($("span"), "charts: last 10 minutes");
  showSentence();
  showTiles();
  showWorkers();
  showHoldout();
  showDecisions();
}

function pause() {
  view.isPaused = !view.isPaused;
  $("pause").textContent = view.isPaused ? "Resume" : "Pause";
  render();
}

$("pause").addEventListener("click", pause);
$("csv").addEventListener("click", copyCsv);
$("filter").addEventListener("input", () => {
  view.filter = $("filter").value.trim();
  if (known.tick) showWorkers();
});
document.addEventListener("visibilitychange", render);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape" && event.target === $("filter")) {
    $("filter").value = view.filter = "";
    $("filter").blur();
    render();
  }
  if (event.target instanceof HTMLInputElement) return;
  if (event.key === "p") pause();
  if (event.key === "/") {
    event.preventDefault();
    $("filter").focus();
  }
});

// ---- the connection

const KEY = "vllm-router admin key", SILENCE_MS = 20000;

function credentials() {
  const key = sessionStorage.getItem(KEY);
  return key ? {Authorization: "Bearer " + key} : {};
}

const pauseFor = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// Resolves when the form was sent.
function askForKey() {
  const wasWrong = sessionStorage.getItem(KEY) !== null;
  view.message = wasWrong ? "This is no key of an admin." : "This router asks for an admin's key.";
  render();
  $("all").hidden = true;
  $("ask").hidden = false;
  $("key").value = "";
  $("key").focus();
  return new Promise((resolve) => {
    $("ask").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, $("key").value.trim());
      view.message = "";
      resolve();
    };
  });
}

// Why there are no events; the text of an error of the router.
class Rejection extends Error {}

async function readEvents() {
  const abort = new AbortController();
  let timer;
  const stillThere = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE_MS);
  };
  stillThere();
  try {
    const response = await fetch("dashboard/events", {headers: credentials(), cache: "no-store", signal: abort.signal});
    if (response.status === 401) return await askForKey();
    if (!response.ok) {
      const said = await response.json().catch(() => null);
      throw new Rejection(said?.error?.message || `The router responds with ${response.status}.`);
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      stillThere();
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) take(event);
    }
  } finally {
    clearTimeout(timer);
  }
}

function take(event) {
  const found = /^event: (\w+)\ndata: (.*)$/s.exec(event);  // else a comment
  if (found && Object.hasOwn(onEvent, found[1])) onEvent[found[1]](JSON.parse(found[2]));
}

async function run() {
  for (let failures = 0; ; ++failures) {
    const before = known.tick;
    try {
      await readEvents();
    } catch (error) {
      view.message = error instanceof Rejection ? error.message : "";
    }
    if (known.tick !== before) failures = 0;
    if (!$("ask").hidden && !view.message) continue;  // with the key
    if (view.lostSince === null) view.lostSince = new Date();
    render();
    await pauseFor(Math.min(5000, 500 * 2 ** failures));
  }
}

run();
