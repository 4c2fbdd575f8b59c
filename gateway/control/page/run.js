// One run: its limits, its calls in time, what they used, how they ended, and what its receipt says.

import { h, show } from "./dom.js";
import { ask, follow, link, named, NotSo } from "./live.js";
import { budgets, timeline, times, tokens } from "./charts.js";
import { callName, empty, facts, meters, note, panel, pill, queue, refusals, table, tree, wall } from "./parts.js";
import { clock, duration, moment, number, plural, words } from "./words.js";

const AGAIN_MS = 2_000;
const DAY_MS = 86_400_000;
const [campaign, run] = named(2);
const query = `?${new URLSearchParams({ campaign, run })}`;
const main = document.getElementById("main");
const place = h("div", { class: "place" });
let now, then, asked = "", busy = false;

document.title = `${campaign}/${run} · model-gateway`;
document.getElementById("place").append(h("li", { "aria-current": "page" }, `${campaign}/${run}`));
main.append(place);

function seen(snapshot) {
  now = snapshot;
  const state = JSON.stringify([snapshot.limits, snapshot.state, snapshot.in_flight, snapshot.results]);
  if (state !== asked || !then) renew(state);
  draw();
}

/** What the ledger has of it: only where something changed, and not more often than a person can read. */
async function renew(state) {
  if (busy) return;
  busy = true;
  const began = performance.now();
  try {
    then = await ask(`v1/campaigns/${encodeURIComponent(campaign)}/runs/${encodeURIComponent(run)}/history`);
    asked = state;
    draw();
  } catch (error) {
    if (!(error instanceof NotSo)) return;
    show(place, h("h1", {}, `${campaign}/${run}`), note(error.message));
  } finally {
    setTimeout(() => (busy = false), Math.max(AGAIN_MS, 10 * (performance.now() - began)));
  }
}

function draw() {
  if (!now) return;
  const nowMs = now.now_ms;
  const of = (scope) => now.limits.filter((limit) => limit.scope === scope);
  const groups = [["Of this run", of("run")], ["Of its campaign", of("campaign")], ["Of the whole gateway", of("gateway")]].filter(([, limits]) => limits.length);
  show(
    place,
    h("h1", {}, h("span", { class: "soft" }, `${campaign}/`), run, " ", pill(now.state), (now.overdue ?? []).map((name) => pill(`past ${name}`))),
    facts([["task", now.task], ["label", now.label], ["opened", moment(now.opened_at_ms)], ["in flight", number(now.in_flight)], ["declared", now.results ? declared(now.results) : "nothing yet"]]),
    panel("limits", "Limits", groups.length || now.deadlines.length ? [groups.map(([name, limits]) => h("div", { class: "group", "data-key": name }, h("h3", {}, name), meters(limits, nowMs))), now.deadlines.length ? h("div", { class: "group" }, h("h3", {}, "Time"), h("div", { class: "meters" }, now.deadlines.map((each) => wall(each, nowMs)))) : ""] : empty("No limit is over this run.")),
    now.waiting.length ? panel("queue", `Waiting: ${plural(now.waiting.length, "call")}`, queue({ count: now.waiting.length, calls: now.waiting })) : "",
    then ? story(nowMs) : empty("reading the ledger"),
  );
}

const declared = ({ outcomes = {}, ...results }) => Object.entries({ ...results, ...outcomes }).map(([name, value]) => h("span", { class: "said" }, h("span", { class: "soft" }, `${words(name)} `), String(value)));

function story(nowMs) {
  const { calls } = then;
  const earlier = then.calls_not_shown ? h("p", { class: "soft" }, `The last ${calls.length}; ${plural(then.calls_not_shown, "earlier call")} can be had with gateway export.`) : "";
  return [
    panel("calls", "Calls in time", calls.length ? [earlier, timeline(`Calls of run ${campaign}/${run} in time`, calls, nowMs)] : empty("No call was sent.")),
    calls.length ? panel("tokens", "Tokens per call", tokens(calls)) : "",
    then.series.length ? panel("budget", "Budget over time", budgets(then.series, nowMs)) : "",
    calls.length ? panel("table", "Each call", callTable(calls, nowMs)) : "",
    panel("refusals", "Refused", refusals(then.refusals.toReversed(), false)),
    then.events.length ? panel("events", "On record", table("What else stands in the ledger", ["At", "What", "Call", "=Details"], then.events.map((event) => [moment(event.at_ms), words(event.name), callName(event.about_call), event.details ? tree(event.details) : ""]))) : "",
    reconciliation(),
    receipt(),
  ];
}

function callTable(calls, nowMs) {
  const heads = ["Call", "Lane", "Model", "Engine", "Arrived", "#Waited", "#First byte", "#Decoding", "#Input", "#Cached", "#Output", "#Ceiling", "Outcome", "Source", "Flags"];
  const rows = calls.toReversed().map((call) => {
    const at = times(call, nowMs);
    const usage = call.usage ?? {};
    const open = at.running ? "…" : undefined;
    return [
      callName(call.call),
      call.lane,
      call.model,
      call.upstream,
      h("span", { title: moment(at.arrived), class: "once" }, nowMs - at.arrived < DAY_MS ? clock(at.arrived) : moment(at.arrived)),
      duration(call.waited_ms ?? 0),
      open ?? (call.first_byte_ms === undefined ? "unknown" : duration(call.first_byte_ms)),
      open ?? (at.first === undefined ? (call.stream === false ? "in one piece" : "unknown") : duration(at.ended - at.first)),
      open ?? number(usage.input_tokens),
      open ?? number(usage.cached_tokens),
      open ?? number(usage.output_tokens),
      [number(call.ceiling), call.clamped ? h("span", { class: "soft" }, " clamped") : ""],
      pill(call.outcome ?? (at.running ? "running" : call.status), at.running ? "soft" : undefined),
      call.source ?? (at.running ? "…" : "–"),
      (call.flags ?? []).map(words).join(", "),
    ];
  });
  return table("The latest first; each leads to its explanation", heads, rows, { keys: calls.toReversed().map((call) => call.call) });
}

function reconciliation() {
  const noted = [["Of this run", then.reconciled], ["Of the whole campaign", then.campaign_reconciled]].filter(([, event]) => event);
  if (!noted.length) return panel("reconciliation", "Reconciliation", empty("None was put on record. gateway reconcile --note does it."));
  return panel("reconciliation", "Reconciliation", noted.map(([name, event]) => {
    const { classes, unexplained, as_of: entry, sha256 } = event.details;
    return h("div", { class: "group", "data-key": name }, h("h3", {}, name, " ", unexplained ? pill(`${number(unexplained)} unexplained`, "bad") : pill("nothing unexplained", "good")), facts([["noted", moment(event.at_ms)], ["as of entry", number(entry)], ["report", h("span", { class: "id" }, sha256)]]), table("Rows of the agent's records and the ledger", ["Class", "#Rows"], Object.entries(classes).map(([kind, count]) => [words(kind), number(count)])));
  }));
}

function receipt() {
  if (!then.receipt) return panel("receipt", "Receipt", empty("Written when the run is closed."));
  const { conflicts = [], receipt: totals, hash, number: entry, at_ms: at } = then.receipt;
  return panel("receipt", "Receipt", conflicts.map((conflict) => note(`Conflict: ${typeof conflict === "string" ? conflict : conflict.message ?? JSON.stringify(conflict)}`)), facts([["written", moment(at)], ["entry", number(entry)], ["hash", h("span", { class: "id" }, hash)]]), h("details", {}, h("summary", {}, "All that it says"), tree(totals ?? then.receipt)));
}

follow(query, seen, (text, kind) => {
  link(text, kind);
  if (kind === "bad" && !now) show(place, h("h1", {}, `${campaign}/${run}`), note(text));
});
