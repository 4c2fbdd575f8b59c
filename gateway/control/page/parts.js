// What the pages share: limits as bars, tables, facts, pills.

import { h } from "./dom.js";
import { callLink, runLink } from "./live.js";
import { duration, moment, number, plural, short, soon, words } from "./words.js";

const LOW = 0.9;
const MARKS = { low: " ▲", out: " ■" };
const GOOD = ["open", "healthy", "completed", "settled", "equal", "ok"];
const WARN = ["halted", "closing", "unknown", "length", "reserved", "starting", "degraded", "draining", "client_cancelled", "clamped"];

const kindOf = (word) => (GOOD.includes(word) ? "good" : WARN.includes(word) ? "warn" : word === "closed" ? "soft" : "bad");

export const pill = (word, kind = kindOf(word)) => h("span", { class: `pill ${kind}` }, words(word));

export const panel = (id, title, ...inner) => h("section", { "data-key": id, id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...inner);

export const empty = (text) => h("p", { class: "empty" }, text);

/** `rows`: arrays of cells. A head that begins with # is of numbers, one with = of what needs room. `keys` name rows that may move. */
export function table(caption, heads, rows, { keys = [], empty: none = "none" } = {}) {
  if (!rows.length) return empty(none);
  const kinds = heads.map((head) => ({ "#": "n", "=": "wide" })[head[0]]);
  const names = heads.map((head) => head.replace(/^[#=]/, ""));
  const head = h("tr", {}, names.map((name, at) => h("th", { scope: "col", class: kinds[at] }, name)));
  const body = rows.map((row, place) => h("tr", { "data-key": keys[place] }, row.map((cell, at) => h("td", { class: kinds[at], "data-head": names[at] }, cell))));
  return h("div", { class: heads.length <= 4 && !kinds.includes("wide") ? "scroll few" : "scroll", role: "region", "aria-label": caption, tabindex: 0 }, h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)));
}

/** Pairs of a name and what it is; those that are absent are left out. */
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const runName = (campaign, run) => h("a", { href: runLink(campaign, run), class: "run" }, h("span", { class: "soft" }, `${campaign}/`), run);
export const callName = (call) => (call ? h("a", { href: callLink(call), class: "id", title: call, "aria-label": `call ${call}` }, short(call)) : "–");

/** A long name, with places where a line may break. */
const parted = (name) => name.split(/(?<=[._])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));

/** One limit: what is settled, what is reserved, what is left, and when it renews. */
export function meter(limit, nowMs, prefix = "", brief = false) {
  const { ceiling, settled, reserved, left } = limit;
  const share = (part) => `${ceiling ? Math.min(100, (100 * part) / ceiling) : 100}%`;
  const state = left === 0 ? "out" : settled + reserved >= LOW * ceiling ? "low" : "";
  const resets = limit.resets_at_ms ? `resets in ${duration(Math.max(0, limit.resets_at_ms - nowMs))} (${soon(limit.resets_at_ms)})` : "";
  const told = `${limit.name}: ${number(settled)} settled, ${number(reserved)} reserved, ${number(left)} left of ${number(ceiling)}`;
  const name = h("span", { class: "name", title: limit.origin ?? limit.name }, parted(limit.name.startsWith(prefix) ? limit.name.slice(prefix.length) : limit.name));
  const rest = h("span", {}, h("b", {}, number(left)), " left", MARKS[state]);
  return h(
    "div",
    { class: `meter ${state}`, "data-key": limit.name, title: brief && told },
    h("p", { class: "meter-head" }, name, brief ? "" : rest),
    h("div", { class: "bar", role: "img", "aria-label": told }, h("i", { class: "settled", css: { width: share(settled) } }), h("i", { class: "reserved", css: { width: share(Math.min(reserved, Math.max(0, ceiling - settled))) } })),
    brief ? h("p", { class: "meter-rest" }, rest, h("span", { class: "soft" }, ` of ${number(ceiling)}`)) : h("p", { class: "meter-foot" }, `${number(settled)} settled${reserved ? ` + ${number(reserved)} reserved` : ""} of ${number(ceiling)}`),
    resets && h("p", { class: "meter-foot", title: moment(limit.resets_at_ms) }, resets),
  );
}

/** What the parts of a bar are. */
export const meterKey = () => h("p", { class: "key soft", "aria-hidden": "true" }, h("span", {}, h("i", { class: "settled" }), "settled"), h("span", {}, h("i", { class: "reserved" }), "reserved"), h("span", {}, h("i", { class: "free" }), "left"), h("span", {}, "▲ little left"), h("span", {}, "■ nothing left"));

export const meters = (limits, nowMs, prefix) => h("div", { class: "meters" }, limits.map((limit) => meter(limit, nowMs, prefix)));

/** A clock that runs: a run's wall, a campaign's span. */
export function wall(deadline, nowMs, brief = false) {
  const left = Math.max(0, deadline.ends_at_ms - nowMs);
  const passed = Math.min(1, (nowMs - deadline.started_at_ms) / Math.max(1, deadline.ends_at_ms - deadline.started_at_ms));
  const told = left ? `${duration(left)} left of ${duration(deadline.ceiling * 1_000)}` : `over since ${duration(nowMs - deadline.ends_at_ms)}`;
  const rest = h("span", {}, h("b", {}, left ? duration(left) : "over"), left ? " left" : MARKS.out);
  return h(
    "div",
    { title: brief && told, class: `meter ${left ? (passed > LOW ? "low" : "") : "out"}`, "data-key": deadline.name },
    h("p", { class: "meter-head" }, h("span", { class: "name", title: deadline.origin ?? deadline.name }, parted(deadline.name.replace(/^run\./, ""))), brief ? "" : rest),
    h("div", { class: "bar", role: "img", "aria-label": `${deadline.name}: ${told}` }, h("i", { class: "settled", css: { width: `${100 * passed}%` } })),
    brief ? h("p", { class: "meter-rest" }, rest) : h("p", { class: "meter-foot" }, `of ${duration(deadline.ceiling * 1_000)}, ends ${soon(deadline.ends_at_ms)}`),
  );
}

/** A limit that stood in the way, with its numbers at that moment. */
export function numbers(limit) {
  if (!limit) return "–";
  const rest = ["settled", "reserved", "asked"].filter((name) => typeof limit[name] === "number").map((name) => `${name} ${number(limit[name])}`);
  return [h("span", { class: "name" }, limit.name), limit.ceiling === undefined ? "" : ` = ${number(limit.ceiling)}`, rest.length ? h("span", { class: "soft" }, ` (${rest.join(", ")})`) : ""];
}

const FOR = { slot: "a slot, or its turn", halted: "the end of its campaign's halt", count: "the count of its prompt", engine: "an engine that takes calls" };
const waitsFor = (call) => (call.reason === "limit" ? numbers(call.limit) : call.reason === "home" ? `${call.home}, which knows its prompt` : FOR[call.reason] ?? words(call.reason ?? "unknown"));

export function queue(waiting) {
  const calls = waiting.calls ?? [];
  const rows = calls.map((call) => [callName(call.call), runName(call.campaign, call.run), call.lane, call.engine, number(call.position), duration(call.waited_ms), waitsFor(call)]);
  const caption = calls.length < waiting.count ? `The first ${calls.length} of ${number(waiting.count)} that wait` : "Who waits, and for what";
  return table(caption, ["Call", "Run", "Lane", "Engine", "#Ahead", "#For", "=Waits for"], rows, { keys: calls.map((call) => call.call), empty: "Nobody waits." });
}

export function refusals(rows, withRun) {
  const heads = ["At", ...(withRun ? ["Run"] : []), "Lane", "=Why", "=Limit", "#Times", "Call"];
  const cells = rows.map((row) => [
    moment(row.at_ms),
    ...(withRun ? [runName(row.campaign, row.run)] : []),
    row.lane ?? "–",
    [h("b", {}, words(row.code)), row.why ? `: ${row.why}` : "", row.field ? ` (field ${row.field})` : "", row.final ? "" : h("span", { class: "soft" }, " · may try again")],
    numbers(row.limit),
    number(row.count ?? 1),
    callName(row.call),
  ]);
  return table("The latest first", heads, cells, { empty: "Nothing was refused." });
}

/** Whatever an entry holds, as nested lists of names and values. */
export function tree(value) {
  if (Array.isArray(value)) {
    if (!value.length) return "none";
    return value.every((one) => typeof one !== "object") ? value.join(", ") : h("ol", { class: "tree" }, value.map((one) => h("li", {}, tree(one))));
  }
  if (value && typeof value === "object") return h("dl", { class: "tree" }, Object.entries(value).map(([name, inner]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, name.endsWith("_ms") && inner > 1e11 ? moment(inner) : tree(inner)))));
  return typeof value === "number" ? number(value) : value === true ? "yes" : value === false ? "no" : String(value);
}

export const note = (text, kind = "bad") => h("p", { class: `note ${kind}`, role: "alert" }, text);
export { plural };
