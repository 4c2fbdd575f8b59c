// Calls in time, tokens a call, and budgets as they rose: drawn, with words for those who do not see them, and always a table beside.

import { h, svg } from "./dom.js";
import { clock, duration, moment, number, plural, words } from "./words.js";

const [LEFT, RIGHT, TOP, AXIS, ROW, BAR] = [6, 6, 6, 24, 18, 12];
/** In the screen's own dots, so that letters keep their size. */
const width = () => Math.max(300, Math.min(1_000, innerWidth - 60));
const ticks = () => (width() < 600 ? 2 : 4);
const SEEN_WELL = ["completed", "length", undefined];

export const times = (call, nowMs) => {
  const admitted = call.admitted_ms;
  const ended = call.took_ms === undefined ? nowMs : admitted + call.took_ms;
  const first = call.first_byte_ms === undefined || call.stream === false ? undefined : Math.min(ended, admitted + call.first_byte_ms);
  return { arrived: admitted - (call.waited_ms ?? 0), admitted, first, ended, running: call.status === "reserved" };
};

const frame = (calls, nowMs) => {
  const all = calls.map((call) => times(call, nowMs));
  const from = Math.min(...all.map((at) => at.arrived));
  const to = Math.max(...all.map((at) => at.ended), from + 1);
  return { all, from, to, x: (ms) => LEFT + ((width() - LEFT - RIGHT) * (ms - from)) / (to - from) };
};

function axis({ from, to, x }, height) {
  return Array.from({ length: ticks() + 1 }, (_, at) => {
    const ms = from + ((to - from) * at) / ticks();
    const anchor = at === 0 ? "start" : at === ticks() ? "end" : "middle";
    return [svg("line", { class: "tick", x1: x(ms), x2: x(ms), y1: TOP, y2: height - AXIS + 4 }), svg("text", { class: "tick", x: x(ms), y: height - 7, "text-anchor": anchor }, clock(ms))];
  });
}

const drawing = (title, told, height, inner) => h("div", { class: "drawing" }, svg("svg", { role: "img", viewBox: `0 0 ${width()} ${height}`, "aria-label": `${title}. ${told}` }, inner));

const key = (...pairs) => h("p", { class: "key", "aria-hidden": "true" }, pairs.map(([kind, name]) => h("span", {}, h("i", { class: kind }), name)));

/** `calls` with their `row`: those that ran side by side stand one below the other. */
export function timeline(title, calls, nowMs) {
  const scale = frame(calls, nowMs);
  const height = TOP + (Math.max(...calls.map((call) => call.row ?? 0)) + 1) * ROW + AXIS;
  const told = `${plural(calls.length, "call")} from ${moment(scale.from)} to ${moment(scale.to)}. Each is a row of the table below.`;
  const drawn = calls.map((call, at) => bar(call, scale.all[at], scale.x));
  return h("div", {}, key(["wait", "waiting"], ["prefill", "prefill, to the first byte"], ["decode", "decoding"], ["whole", "in one piece"], ["bad", "! cut or failed"], ["run", "still runs"]), drawing(title, told, height, [axis(scale, height), drawn]));
}

function bar(call, at, x) {
  const y = TOP + (call.row ?? 0) * ROW;
  const piece = (kind, from, to) => (to > from ? svg("rect", { class: kind, x: x(from).toFixed(1), y, width: Math.max(1, x(to) - x(from)).toFixed(1), height: BAR }) : "");
  const bad = !at.running && !SEEN_WELL.includes(call.outcome) && call.status !== "voided";
  const told = [`${call.call}: ${words(call.outcome ?? (at.running ? "running" : call.status))}`, call.waited_ms ? `waited ${duration(call.waited_ms)}` : "", at.first ? `first byte after ${duration(at.first - at.admitted)}` : "", `${duration(at.ended - at.admitted)} in all`].filter(Boolean).join("; ");
  const parts = at.running ? [piece("running", at.admitted, at.ended)] : at.first === undefined ? [piece("whole", at.admitted, at.ended)] : [piece("prefill", at.admitted, at.first), piece("decode", at.first, at.ended)];
  return svg(
    "g",
    { "data-key": call.call, class: bad ? "failed" : "" },
    svg("title", {}, told),
    at.admitted > at.arrived ? svg("line", { class: "wait", x1: x(at.arrived).toFixed(1), x2: x(at.admitted).toFixed(1), y1: y + BAR / 2, y2: y + BAR / 2 }) : "",
    parts,
    bad ? svg("text", { class: "mark", x: (x(at.ended) + 3).toFixed(1), y: y + BAR - 1 }, "!") : "",
  );
}

/** Input and output of each call, as columns in their order. */
export function tokens(calls) {
  const known = calls.filter((call) => call.usage);
  const height = 130;
  const floor = height - 20;
  const most = Math.max(1, ...known.map((call) => (call.usage.input_tokens ?? 0) + (call.usage.output_tokens ?? 0)));
  const step = (width() - LEFT - RIGHT) / Math.max(8, calls.length);
  const tall = (amount) => ((floor - TOP - 12) * (amount ?? 0)) / most;
  const columns = calls.map((call, at) => {
    const { input_tokens: taken, output_tokens: made } = call.usage ?? {};
    const [x, thick] = [LEFT + at * step, Math.max(1, Math.min(step - 2, 40))];
    const told = `${call.call}: input ${number(taken)}, output ${number(made)}`;
    if (taken === undefined && made === undefined) return svg("g", { "data-key": call.call }, svg("title", {}, told), svg("text", { class: "tick", x: x + thick / 2, y: floor - 3, "text-anchor": "middle" }, "?"));
    return svg("g", { "data-key": call.call }, svg("title", {}, told), svg("rect", { class: "prefill", x: x.toFixed(1), width: thick.toFixed(1), y: (floor - tall(taken)).toFixed(1), height: tall(taken).toFixed(1) }), svg("rect", { class: "decode", x: x.toFixed(1), width: thick.toFixed(1), y: (floor - tall(taken) - tall(made)).toFixed(1), height: tall(made).toFixed(1) }));
  });
  const told = `Up to ${number(most)} tokens a call. The numbers are in the table below.`;
  const base = [svg("line", { class: "tick", x1: LEFT, x2: width() - RIGHT, y1: floor, y2: floor }), svg("text", { class: "tick", x: width() - RIGHT, y: TOP + 8, "text-anchor": "end" }, `${number(most)} tokens`), svg("text", { class: "tick", x: LEFT, y: height - 6 }, calls.length < 8 ? "in their order" : "first call"), calls.length < 8 ? "" : svg("text", { class: "tick", x: width() - RIGHT, y: height - 6, "text-anchor": "end" }, "latest")];
  return h("div", {}, key(["prefill", "input"], ["decode", "output"], ["", "? unknown"]), drawing("Tokens of each call", told, height, [base, columns]));
}

/** Each limit as the share of its ceiling that was settled, over time; what was reserved stands above it, fainter. */
export function budgets(series, nowMs) {
  const height = 170;
  const points = series.flatMap((one) => one.points.map(([at]) => at));
  const [from, to] = [Math.min(...points), Math.max(nowMs, ...points)];
  const x = (ms) => LEFT + ((width() - LEFT - 46) * (ms - from)) / Math.max(1, to - from);
  const y = (share) => TOP + (height - TOP - AXIS) * (1 - Math.min(1, share));
  const rules = [0, 0.5, 1].map((share) => [svg("line", { class: "tick", x1: LEFT, x2: width() - 46, y1: y(share), y2: y(share) }), svg("text", { class: "tick", x: width() - 40, y: y(share) + 4 }, `${100 * share} %`)]);
  const ends = [svg("text", { class: "tick", x: LEFT, y: height - 7 }, clock(from)), svg("text", { class: "tick", x: width() - 46, y: height - 7, "text-anchor": "end" }, clock(to))];
  const lines = series.map((one, at) => {
    const share = (amount) => (one.ceiling ? amount / one.ceiling : 1);
    const path = (pick) => one.points.map(([ms, ...both], place) => `${place ? `H${x(ms).toFixed(1)}V` : `M${x(ms).toFixed(1)} `}${y(share(pick(both))).toFixed(1)}`).join("") + `H${x(to).toFixed(1)}`;
    return svg("g", { class: `line-${at % 5}`, "data-key": one.name }, svg("title", {}, one.name), svg("path", { class: "held", d: path(([settled, reserved]) => settled + reserved) }), svg("path", { d: path(([settled]) => settled) }));
  });
  const last = series.map((one) => `${one.name}: ${number(one.points.at(-1)[1])} of ${number(one.ceiling)}`).join("; ");
  const names = h("p", { class: "key" }, series.map((one, at) => h("span", {}, h("i", { class: `line-${at % 5}` }), one.name, h("span", { class: "soft" }, ` of ${number(one.ceiling)}`))), h("span", { class: "soft" }, "thin: with what is reserved"));
  return h("div", {}, names, drawing("What was charged to each limit of the run, as a share of it", `${last}.`, height, [rules, ends, lines]));
}
