"""Calls, runs and sums of a pack, made again from its chains: the arithmetic of `check.py`, which lies beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Rows = dict[str, Row]
Counts = dict[str, int]

USAGE = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")
CHARGE = ("requests", "input_tokens", "output_tokens", "tool_calls")
ENDS = {"settle": "settled", "void": "voided", "expire": "expired", "adjust": "adjusted"}
OPENED = ("lane", "key", "model", "upstream", "dialect", "stream", "ceiling", "ceiling_from", "clamped", "waited_ms", "prompt_source", "reserved")
CLOSED = ("outcome", "source", "counted_by", "flags", "usage", "charge", "reason", "evidence")


def opened(entry: Row, label: str) -> Row:
    row = {name: entry[name] for name in ("call", "campaign", "run", *OPENED) if name in entry}
    row.update(label=label, admitted_ms=entry["at_ms"], number=entry["number"], status="reserved")
    if "details" in entry:
        row["asked"] = entry["details"]
    return row


def close(row: Row, entry: Row) -> None:
    if "closing_number" in row:
        was: Row = {name: row.pop(name) for name in ("source", "usage", "charge", "reason", "evidence") if name in row}
        row.setdefault("was", []).append({**was, "number": row["closing_number"]})
    row.update({name: entry[name] for name in CLOSED if name in entry})
    row.update(status=ENDS[entry["kind"]], closing_number=entry["number"])
    if entry["kind"] != "adjust":
        row["ended_ms"] = entry["at_ms"]
    if "details" in entry:
        row["seen"] = entry["details"]


def sent(calls: Iterable[Row]) -> list[Row]:
    return [row for row in calls if row["status"] != "voided"]


def totals(calls: list[Row]) -> Row:
    """Of calls that were sent. What is unknown is counted, never summed."""
    closed = [row for row in calls if "source" in row]
    usage = {}
    for column in USAGE:
        known = [row["usage"][column] for row in closed if column in row["usage"]]
        usage[column] = {"sum": sum(known), "unknown": len(closed) - len(known)}
    charge = {column: sum(row["charge"].get(column, 0) for row in closed) for column in CHARGE}
    if not charge["tool_calls"]:
        del charge["tool_calls"]
    sources: dict[str, Counts] = {}
    outcomes: Counts = {}
    over: Counts = {}
    for row in closed:
        of = sources.setdefault(row["source"], {"calls": 0, "input_tokens": 0, "output_tokens": 0})
        for column, amount in (("calls", 1), *((name, row["usage"].get(name, 0)) for name in USAGE[:2])):
            of[column] += amount
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
        above = {name: row["charge"].get(name, 0) - row["reserved"].get(name, 0) for name in USAGE[:2]}
        above = {name: amount for name, amount in above.items() if amount > 0}
        for name, amount in (("calls", 1), *above.items()) if above else ():
            over[name] = over.get(name, 0) + amount
    found = {"calls": len(calls), "usage": usage, "charge": charge, "sources": sources, "outcomes": outcomes}
    return {**found, "overshoot": over} if over else found


def run_totals(calls: Rows, refused: Counts) -> Row:
    rows = sent(calls.values())
    return {**totals(rows), "voided": len(calls) - len(rows), "refused": refused}


def run_row(opening: Row, calls: Rows, refused: Counts, seen: Row, receipts: list[Row]) -> Row:
    rows = sent(calls.values())
    row = {"run": opening["run"], "label": opening.get("label", ""), "opened_ms": opening["at_ms"], "number": opening["number"]}
    row.update({name: opening[name] for name in ("task", "policy_hash", "limits_hash") if name in opening})
    made = opening.get("details", {})
    row.update({"repeat": made["repeat"]} if "repeat" in made else {})
    row.update({"pins": dict(made["pins"])} if "pins" in made else {})
    row["state"] = "open" if "closing_ms" not in seen else "closed" if receipts else "closing"
    row.update({name: seen[name] for name in ("closing_ms", "results") if seen.get(name)})
    row.update(totals=run_totals(calls, refused), unsettled=sum("source" not in call for call in rows))
    last = max(rows, key=lambda call: call["number"], default=None)
    for number, at_ms, name in seen["finals"]:
        if name and (last is None or (number > last["number"] and at_ms >= last["admitted_ms"])):
            row["stopped_by"] = name
            break
    if receipts:
        row["receipt"] = {name: receipts[-1][name] for name in ("receipt", "hash", "number")}
        row.update({"conflicts": receipts[-1]["conflicts"]} if receipts[-1]["conflicts"] else {})
    return row


def aggregates(calls: list[Row]) -> Iterator[Row]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for call in sent(calls):
        for by in ("label", "lane", "model", "run"):
            groups.setdefault((by, call[by], call["label"]), []).append(call)
    for (by, value, label), found in sorted(groups.items()):
        still = sum("source" not in call for call in found)
        yield {"by": by, "value": value, "label": label, "open": still, **totals(found)}


def protocol(opening: Row, events: list[Row], runs: list[Row]) -> Row:
    made = {"opened_ms": opening["at_ms"], "limits_hashes": sorted({run["limits_hash"] for run in runs if "limits_hash" in run})}
    made.update({name: opening[name] for name in ("policy", "policy_name", "policy_hash", "planned_runs") if name in opening})
    made["events"] = [{name: event[name] for name in ("kind", "at_ms", "reason", "upstream", "details") if name in event} for event in events]
    plan = opening.get("details", {}).get("plan")
    return {**made, "plan": plan} if plan else made


def campaign_totals(labels: dict[str, str], lines: Rows) -> Row:
    """What a receipt of the campaign says of its runs, by the last line of each. `labels`: by run."""
    sums: Rows = {}
    for run, line in lines.items():
        of = sums.setdefault(labels[run], {"label": labels[run], "runs": 0, "totals": {}})
        of["runs"] += 1
        of["totals"] = added(of["totals"], line["totals"])
    runs = [{"run": run, "receipt": line["receipt"], "hash": line["hash"]} for run, line in sorted(lines.items())]
    return {"opened_runs": len(labels), "runs": runs, "labels": [of for _, of in sorted(sums.items())]}


def added(one: Row, other: Row) -> Row:
    """Numbers of the same name, at every depth."""
    found = dict(one)
    for name, value in other.items():
        found[name] = added(found.get(name, {}), value) if isinstance(value, dict) else found.get(name, 0) + value
    return found


def cell(row: Any, column: str) -> str:
    while isinstance(row, dict) and column not in row:  # a name may have a dot of its own
        part, _, column = column.partition(".")
        row = row.get(part) if column else None
    row = row[column] if isinstance(row, dict) else None
    if isinstance(row, str):
        return "'" + row if row[:1] in ("=", "+", "-", "@", "\t", "\r") else row
    return "" if row is None else str(row).lower() if isinstance(row, bool) else " ".join(map(str, row)) if isinstance(row, list) else str(row)
