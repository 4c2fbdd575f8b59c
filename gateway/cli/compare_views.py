"""Campaigns side by side, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.cli.report_views import lasting, of_known
from gateway.cli.screen import Column, Line, Table, View
from gateway.cli.words import UNKNOWN, Kind

Json = Mapping[str, Any]

TOLD: Final = 6
"""Of one campaign, in a row of what differs; with --json all."""
MEDIANS: Final = (
    Column("calls", "CALLS", Kind.NUMBER),
    Column("input_tokens", "INPUT", Kind.NUMBER),
    Column("output_tokens", "OUTPUT", Kind.NUMBER),
    Column("waiting", "WAITING"),
    Column("computing", "COMPUTING"),
    Column("with_unknown_usage", "RUNS WITH\nUNKNOWN USAGE", Kind.NUMBER),
)
PAIRS: Final = (
    Column("outcome", "OUTCOME"),
    Column("first", "FIRST"),
    Column("second", "SECOND"),
    Column("both", "BOTH", Kind.NUMBER),
    Column("only_first", "ONLY\nFIRST", Kind.NUMBER),
    Column("only_second", "ONLY\nSECOND", Kind.NUMBER),
    Column("neither", "NEITHER", Kind.NUMBER),
    Column("unknown", "NOT\nKNOWN", Kind.NUMBER),
    Column("missing", "MISSING", Kind.NUMBER),
)


def compare_views(document: Json) -> list[View]:
    campaigns = document["campaigns"]
    names = list(campaigns[0]["outcomes"]) if campaigns else []
    reached = tuple(Column(name, name.upper()) for name in names)
    runs = (Column("campaign", "CAMPAIGN"), Column("opened", "RUNS", Kind.NUMBER), Column("missing", "MISSING", Kind.OPTIONAL_NUMBER))
    rows = [_summary(each, names) for each in campaigns]
    return [
        Table(title="Campaigns", columns=(*runs, *reached), rows=rows),
        Line(),
        Table(title="A run's medians, failed runs included", columns=(Column("campaign", "CAMPAIGN"), *MEDIANS), rows=rows),
        Line(),
        Table(title="Pairs", columns=PAIRS, rows=[_pair(pair, name) for pair in document["pairs"] for name in names], empty="No outcome was declared."),
        Line(),
        _runs_table(document, names),
        Line(),
        _different(document),
        Line(),
        Line(document["note"]),
    ]


def _different(document: Json) -> Table:
    """Of what differs, what each campaign has and not all have."""
    columns = (Column("what", "DIFFERENT"), *(Column(str(place), each["campaign"]) for place, each in enumerate(document["campaigns"])))
    rows: list[dict[str, Any]] = []
    for what in document["different"]:
        sides = [_told(each["made_of"][what]) for each in document["campaigns"]]
        shared = set.intersection(*map(set, sides))
        own = [[one for one in side if one not in shared] for side in sides]
        shown = {str(place): [*side[:TOLD], *(["…"] if len(side) > TOLD else [])] for place, side in enumerate(own)}
        rows.append({"what": what, **shown})
    return Table(title="Different", columns=columns, rows=rows, empty="Different: nothing that the ledger sees.")


def _told(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} {inner}" for name, of in sorted(value.items()) for inner in _told(of)]
    return [str(one) or "(none)" for one in value] if isinstance(value, list) else [str(value)]


def _summary(each: Json, names: list[str]) -> dict[str, Any]:
    runs, medians = each["runs"], each["medians"]
    row = {"campaign": each["campaign"], "opened": runs["opened"], "missing": len(runs["missing"]) if "missing" in runs else runs.get("missing_count")}
    row |= {name: of_known(each["outcomes"][name]) for name in names}
    if medians:
        row |= medians | {"waiting": lasting(medians["waiting_ms"]), "computing": lasting(medians["computing_ms"])}
    return row


def _pair(pair: Json, name: str) -> dict[str, Any]:
    return {"outcome": name, "first": pair["first"], "second": pair["second"], **pair[name]}


def _runs_table(document: Json, names: list[str]) -> Table:
    keys = tuple(Column(f"key{place}", name.upper()) for place, name in enumerate(document["pair_by"]))
    sides: list[Column] = []
    for place, each in enumerate(document["campaigns"]):
        named = each["campaign"]
        sides += [Column(f"{place}.{name}", f"{named}\n{name.upper()}") for name in names]
        sides += [Column(f"{place}.calls", f"{named}\nCALLS", Kind.OPTIONAL_NUMBER), Column(f"{place}.tokens", f"{named}\nIN + OUT BY LANE")]
        sides += [Column(f"{place}.times", f"{named}\nWAITING, COMPUTING")]
    return Table(title="Run by run", columns=(*keys, *sides), rows=[_row(row, names) for row in document["rows"]], empty="No runs.")


def _row(row: Json, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {f"key{place}": part for place, part in enumerate(row["key"])}
    for place, side in enumerate(row["sides"]):
        if side.get("missing"):
            found |= {f"{place}.{name}": "missing" for name in (*names, "tokens")}
            continue
        lanes = side["lanes"]
        found |= {f"{place}.{name}": {True: "yes", False: "no", None: "not known"}[row["outcomes"][name][place]] for name in names}
        found[f"{place}.calls"] = sum(lane["calls"] for lane in lanes.values())
        found[f"{place}.tokens"] = ", ".join(f"{name} {_tokens(lane)}" for name, lane in lanes.items()) or "no calls"
        found[f"{place}.times"] = f"{lasting(side['waiting_ms'])}, {lasting(side['computing_ms'])}"
    return found


def _tokens(lane: Json) -> str:
    return f"{lane.get('input_tokens', UNKNOWN)} + {lane.get('output_tokens', UNKNOWN)}" + (f" ({lane['unknown']} not known)" if lane["unknown"] else "")
