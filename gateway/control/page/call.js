// One call: all that its entries say of why it went as it did.

import { h, show } from "./dom.js";
import { ask, link, named } from "./live.js";
import { timeline } from "./charts.js";
import { facts, note, panel, pill, runName, table, tree } from "./parts.js";
import { duration, moment, number, words } from "./words.js";

const AGAIN_MS = 2_000;
const ROLES = { limit: "refused it", waited_on: "it waited for", then_waited_on: "and then for", clamped_by: "clamped it", cut_by: "cut it" };
const [call] = named(1);
const main = document.getElementById("main");
const place = h("div", { class: "place" });

document.title = `${call} · model-gateway`;
main.append(place);

async function look() {
  try {
    const found = await ask(`v1/calls/${encodeURIComponent(call)}`);
    draw(found);
    const runs = found.status === "reserved";
    link(runs ? "still runs" : "ended", runs ? "warn" : "soft");
    if (runs) setTimeout(look, AGAIN_MS);
  } catch (error) {
    link("not found", "bad");
    show(place, h("h1", {}, call), note(error.message));
  }
}

function draw(found) {
  const entry = (...kinds) => found.entries.findLast((each) => kinds.includes(each.kind));
  const [reserve, settle] = [entry("reserve"), entry("settle", "expire")];
  const charge = entry("settle", "expire", "adjust")?.charge;
  const usage = entry("settle", "adjust")?.usage;
  crumbs(found);
  show(
    place,
    h("h1", {}, "Call ", h("span", { class: "id" }, call), " ", pill(found.outcome ?? found.code ?? found.status)),
    facts([["run", runName(found.campaign, found.run)], ["lane", found.lane], ["model", found.model], ["engine", reserve?.upstream], ["format", reserve?.dialect], ["at", moment(found.at_ms)], ["status", found.status], ["source", found.source], ["entry", reserve?.number && number(reserve.number)]]),
    panel("why", "Why it went so", h("ol", { class: "why" }, found.why.map((line) => h("li", {}, line)))),
    reserve ? panel("time", "In time", inTime(reserve, settle, found)) : "",
    reserve ? panel("amounts", "Reserved, used, charged", amounts(reserve, usage, charge)) : "",
    limits(found),
    panel("entries", "Its entries in the ledger", found.entries.map((each) => h("details", { open: true, "data-key": String(each.number) }, h("summary", {}, h("b", {}, words(each.kind)), ` · entry ${number(each.number)} · ${moment(each.at_ms)}`), tree(rest(each))))),
  );
}

const rest = ({ kind, number: _entry, at_ms: _at, ...others }) => others;

function crumbs(found) {
  show(document.getElementById("place"), h("li", {}, h("a", { href: "../" }, "model-gateway")), h("li", {}, runName(found.campaign, found.run)), h("li", { "aria-current": "page" }, call));
}

function inTime(reserve, settle, found) {
  const at = settle?.details?.times_ms ?? {};
  const took = at.end ?? (settle ? settle.at_ms - reserve.at_ms : undefined);
  const drawn = { call, stream: reserve.stream, admitted_ms: reserve.at_ms, waited_ms: reserve.waited_ms ?? 0, first_byte_ms: at.first_byte, took_ms: took, status: found.status, outcome: found.outcome };
  const decoding = reserve.stream && took !== undefined && at.first_byte !== undefined ? took - at.first_byte : undefined;
  return [
    took === undefined ? "" : timeline(`Call ${call} in time`, [drawn], reserve.at_ms),
    table("What it spent its time with", ["Part", "#For"], [["waiting", duration(drawn.waited_ms)], [reserve.stream ? "prefill, to the first byte" : "to the first byte", duration(at.first_byte)], ["decoding", reserve.stream ? duration(decoding) : "in one piece"], ["from admission to its end", duration(took)]]),
  ];
}

function amounts(reserve, usage, charge) {
  const names = [...new Set(["requests", "input_tokens", "output_tokens", "tool_calls", ...Object.keys(usage ?? {})])];
  const rows = names.map((name) => [words(name), name in reserve.reserved ? number(reserve.reserved[name]) : "–", name === "requests" ? "–" : usage ? number(usage[name]) : "…", charge && name in charge ? number(charge[name]) : "–"]);
  return table("Usage is what was used, charge what counts against limits", ["Quantity", "#Reserved", "#Used", "#Charged"], rows);
}

function limits(found) {
  const rows = Object.entries(ROLES).flatMap(([key, role]) => [found[key] ?? []].flat().map((limit) => [role, limit.name, ...["ceiling", "settled", "reserved", "asked"].map((name) => number(limit[name])), limit.resets_at_ms ? moment(limit.resets_at_ms) : "–"]));
  return rows.length ? panel("limits", "Limits in its way, with their numbers then", table("As they were written at that moment", ["Limit that", "Name", "#Ceiling", "#Settled", "#Reserved", "#Asked", "Resets"], rows)) : "";
}

look();
