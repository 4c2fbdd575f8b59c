// Everything at a glance.

import { h, show } from "./dom.js";
import { follow, link } from "./live.js";
import { empty, facts, meter, meterKey, meters, note, panel, pill, queue, refusals, runName, table, wall } from "./parts.js";
import { duration, moment, number, plural } from "./words.js";

const main = document.getElementById("main");
const filter = () => h("p", { class: "filter" }, h("label", { for: "filter" }, "Only runs with "), h("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false", placeholder: "name, label or task" }));
const places = {};
let last;

for (const id of ["state", "engines", "days", "queue", "runs", "campaigns", "refusals"]) places[id] = h("div", { class: `place ${id}` });
main.append(h("h1", { class: "unseen" }, "What runs, what waits, what is left"), ...Object.values(places));

main.addEventListener("input", () => last && draw(last));

function draw(seen) {
  last = seen;
  const nowMs = seen.clock.now_ms;
  show(places.state, state(seen));
  show(places.engines, panel("engines", "Engines", seen.upstreams.length ? h("ul", { class: "cards" }, seen.upstreams.map(engine)) : empty("No engine is declared.")));
  show(places.days, panel("days", "Day budgets", days(seen, nowMs)));
  show(places.queue, panel("queue", `Queue: ${seen.waiting.count ? plural(seen.waiting.count, "call waits", "calls wait") : "empty"}`, queue(seen.waiting)));
  show(places.runs, runs(seen, nowMs));
  show(places.campaigns, panel("campaigns", "Campaigns and lanes", seen.campaigns.length ? seen.campaigns.map((campaign) => one(campaign, seen, nowMs)) : empty("No campaign was opened.")));
  show(places.refusals, panel("refusals", "Refused lately", refusals(seen.refusals, true)));
}

function state(seen) {
  const { clock } = seen;
  const busy = seen.upstreams.reduce((sum, each) => sum + (each.busy ?? 0), 0);
  const slots = seen.upstreams.reduce((sum, each) => sum + (each.slots ?? 0), 0);
  return [
    ...seen.not_ready.map((reason) => note(`Not ready: ${reason}`)),
    ...(clock.certain ? [] : [note(`The clock is uncertain: ${clock.doubt}. If it is right: gateway ledger clock --accept`)]),
    h(
      "ul",
      { class: "tiles", "aria-label": "The gateway" },
      tile(seen.ready ? "ready" : "not ready", "gateway", seen.ready ? "good" : "bad"),
      tile(number(seen.runs.length + seen.runs_not_shown), "open runs"),
      tile(number(seen.in_flight - seen.waiting.count), "calls running"),
      tile(number(seen.waiting.count), "calls waiting", seen.waiting.count ? "warn" : ""),
      tile(`${number(busy)} of ${number(slots)}`, "slots busy"),
      tile(clock.certain ? "certain" : "in doubt", `clock, drift ${duration(Math.abs(clock.drift_ms))}`, clock.certain ? "" : "bad"),
      tile(h("span", { class: "path" }, seen.ledger.split("/").pop()), h("span", { title: seen.ledger }, "ledger")),
    ),
  ];
}

const STANDS = { serves: ["serves", "good"], tried: ["tried: one call at a time", "warn"], open: ["circuit open", "bad"], unhealthy: ["unhealthy", "bad"], drained: ["drained", "warn"] };

const tile = (value, name, kind = "") => h("li", { class: kind }, h("b", {}, value), h("span", {}, name));

function engine(each) {
  const slots = Array.from({ length: Math.min(each.slots, 64) }, (_, at) => h("i", { class: at < each.busy ? "busy" : "" }));
  const told = `${number(each.busy)} of ${plural(each.slots, "slot")} busy`;
  return h(
    "li",
    { class: "card", "data-key": each.upstream },
    h("p", { class: "card-head" }, h("b", {}, each.upstream), h("span", { class: "soft" }, each.engine), pill(...(STANDS[each.standing] ?? [each.health]))),
    h("p", { class: "slots" }, h("span", { role: "img", "aria-label": told }, slots), h("span", {}, told)),
    each.standing && each.health !== "healthy" && each.health !== each.standing ? h("p", { class: "soft" }, `health: ${each.health}`) : "",
    each.reason && h("p", { class: "reason" }, each.reason),
    each.wrong_health_path && h("p", { class: "reason" }, "Its health path is not one of this kind of engine's."),
    Object.entries(each.mismatch ?? {}).map(([model, found]) => h("p", { class: "reason", "data-key": model }, `${model} is answered by ${found}.`)),
    each.cap_ignored && h("p", { class: "reason" }, "It ran past a ceiling that it was sent."),
    h("p", { class: "soft" }, each.models.join(", ")),
  );
}

function days(seen, nowMs) {
  const windowed = (limits) => (limits ?? []).filter((limit) => limit.resets_at_ms);
  const groups = [...seen.campaigns.filter((campaign) => campaign.state !== "closed").map((campaign) => [campaign.campaign, windowed(campaign.limits)]), ["whole gateway", windowed(seen.limits)]].filter(([, limits]) => limits.length);
  if (!groups.length) return empty("No limit is by the day.");
  return groups.map(([name, limits]) => h("div", { class: "group", "data-key": name }, h("h3", {}, name), meters(limits, nowMs)));
}

function runs(seen, nowMs) {
  const wanted = (document.getElementById("filter")?.value ?? "").trim().toLowerCase();
  const shown = seen.runs
    .filter((run) => !wanted || [run.campaign, run.run, run.label, run.task].some((text) => text?.toLowerCase().includes(wanted)))
    .sort((one, other) => one.campaign.localeCompare(other.campaign) || one.run.localeCompare(other.run, "en", { numeric: true }));
  const waiting = new Map();
  for (const call of seen.waiting.calls ?? []) waiting.set(`${call.campaign}/${call.run}`, (waiting.get(`${call.campaign}/${call.run}`) ?? 0) + 1);
  const rows = shown.map((run) => liveRun(run, waiting.get(`${run.campaign}/${run.run}`) ?? 0, nowMs));
  const title = `Open runs: ${wanted ? `${shown.length} of ` : ""}${number(seen.runs.length)}`;
  return panel(
    "runs",
    title,
    h("div", { class: "over" }, seen.runs.length > 6 || wanted ? filter() : "", rows.length ? meterKey() : ""),
    rows.length ? h("ul", { class: "runs" }, rows) : empty(wanted ? "No open run is called so." : "No run is open. A driver opens one with: gateway run open CAMPAIGN"),
    seen.runs_not_shown > 0 && h("p", { class: "soft" }, `${plural(seen.runs_not_shown, "more run is", "more runs are")} open; those with calls are shown first.`),
  );
}

function liveRun(run, waits, nowMs) {
  const working = run.in_flight - waits;
  return h(
    "li",
    { class: "live", "data-key": `${run.campaign}/${run.run}` },
    h(
      "div",
      { class: "who" },
      h("p", {}, runName(run.campaign, run.run), run.state === "open" ? "" : pill(run.state), run.overdue ? pill("overdue") : ""),
      h("p", { class: "soft" }, [run.label, run.task].filter(Boolean).join(" · ") || `open ${duration(nowMs - run.opened_at_ms)}`),
      h("p", { class: run.in_flight ? "calls" : "soft" }, run.in_flight ? [working ? `${number(working)} running` : "", working && waits ? ", " : "", waits ? h("span", { class: "waits" }, `${number(waits)} waiting`) : ""] : "idle"),
    ),
    run.limits.length || run.deadlines.length
      ? h("div", { class: "meters" }, run.limits.map((limit) => meter(limit, nowMs, "run.", true)), run.deadlines.map((deadline) => wall(deadline, nowMs, true)))
      : h("p", { class: "soft" }, "no limit of its own"),
  );
}

function one(campaign, seen, nowMs) {
  const counts = Object.entries(campaign.runs).filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`).join(", ") || "none yet";
  const waits = (lane) => (seen.waiting.calls ?? []).filter((call) => call.campaign === campaign.campaign && call.lane === lane).length;
  const limits = (campaign.limits ?? []).filter((limit) => !limit.resets_at_ms);
  const lanes = (campaign.lanes ?? []).map((lane) => [lane.lane, lane.models.join(", "), number(Math.max(0, lane.in_flight - waits(lane.lane))), number(waits(lane.lane))]);
  return h(
    "article",
    { class: "campaign", "data-key": campaign.campaign, "aria-label": `Campaign ${campaign.campaign}` },
    h("h3", {}, campaign.campaign, " ", pill(campaign.state), campaign.over ? pill("over") : ""),
    facts([
      ["policy", [campaign.policy, h("span", { class: "id soft", title: campaign.policy_hash }, ` ${campaign.policy_hash.replace("sha256:", "").slice(0, 8)}`)]],
      ["runs", `${counts}${campaign.planned === undefined ? "" : ` of ${number(campaign.planned)} planned`}`],
      ["reason", campaign.reason],
      ["ends", campaign.span_ends_at_ms && moment(campaign.span_ends_at_ms)],
      ["problem", campaign.policy_problem],
    ]),
    campaign.state !== "closed" && lanes.length ? table(`Lanes of ${campaign.campaign}`, ["Lane", "Models", "#Running", "#Waiting"], lanes) : "",
    campaign.state !== "closed" && limits.length ? meters(limits, nowMs, "campaign.") : "",
  );
}

follow("", draw, link);
