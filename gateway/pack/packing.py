"""The whole walk: campaign chain, run by run, sums, receipts, heads. Runs are read one after the other: one run is held at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import cast

from gateway import __version__
from gateway.accounting.chain import decode, encode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.receipt import given_out
from gateway.errors import NotFound
from gateway.pack.folder import AppendedFile, PackFolder
from gateway.pack.readme import readme
from gateway.pack.tables import AGGREGATE_COLUMNS, CALL_COLUMNS, header, line, run_columns
from gateway.reports.aggregates import Aggregates
from gateway.reports.call_rows import Row
from gateway.reports.gathering import Chains, RunChain

FORMAT = "gateway-pack-1"
CHECK = ("check.py", "check_rows.py")
REFUSALS = ("refuse", "refusal_summary")


@dataclass(slots=True)
class Pack:
    """What is gathered on the way."""

    campaign: str
    as_of: int
    openings: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    runs: list[Row] = field(default_factory=list)
    receipts: list[Row] = field(default_factory=list)
    heads: list[Row] = field(default_factory=list)
    aggregates: Aggregates = field(default_factory=Aggregates)
    calls: int = 0


def write_pack(
    ledger: Chains, campaign: str, path: Path, *, as_of: int = 0, reconciliation: object = None, told: Callable[[str, int], None] = lambda run, calls: None
) -> Pack:
    """`ledger` reads one moment. `as_of` 0: all that there is. `told`: each run as it is done, with its calls.

    Raises NotFound where there is no such campaign (then), PackExists.
    """
    pack = Pack(campaign, as_of or ledger.last_number(campaign))
    with PackFolder(path) as folder:
        folder.lines("chains/campaign.jsonl", _campaign(ledger, pack))
        if not pack.events:
            raise NotFound(f"there is no campaign {campaign}" + (f" as of entry {as_of}" if as_of else ""))
        with folder.append("calls.jsonl") as calls, folder.append("calls.csv") as table, folder.append("refusals.jsonl") as refusals:
            table.write(header(CALL_COLUMNS))
            for run, opening in pack.openings.items():
                told(run, _run(ledger, pack, folder, run, opening, calls, table, refusals))
        _sums(pack, folder)
        folder.document("protocol.json", protocol := _protocol(pack))
        folder.document("reconciliation.json", reconciliation or {"records": "none were given"})
        folder.text("README.md", readme(protocol, pack.runs, pack.aggregates.rows(), pack.heads))
        for name in CHECK:
            folder.lines(name, files("gateway.pack").joinpath(name).read_bytes().removesuffix(b"\n").split(b"\n"))
        folder.sum_up()
    return pack


def _campaign(ledger: Chains, pack: Pack) -> Iterator[bytes]:
    for entry in ledger.chain(f"campaign:{pack.campaign}", as_of=pack.as_of):
        content = decode(entry.body)
        if content["kind"] == "open_run":
            pack.openings[cast(str, content["run"])] = content
        elif content["kind"] == "receipt":
            pack.receipts.append(given_out(content, entry.hash))
        if content["kind"] in ("open_campaign", "halt", "resume", "close_campaign", "fingerprint"):
            pack.events.append(content)
        _head(pack, entry)
        yield entry.body


def _run(ledger: Chains, pack: Pack, folder: PackFolder, run: str, opening: Row, calls: AppendedFile, table: AppendedFile, refusals: AppendedFile) -> int:
    chain = RunChain(opening=opening)

    def bodies() -> Iterator[bytes]:
        for entry in ledger.chain(f"run:{pack.campaign}/{run}", as_of=pack.as_of):
            if chain.add(entry)["kind"] in REFUSALS:
                refusals.write(entry.body + b"\n")
            _head(pack, entry)
            yield entry.body

    folder.lines(f"chains/runs/{run}.jsonl", bodies())
    read = chain.read()
    for row in read.calls.values():
        calls.write(encode(row) + b"\n")
        table.write(line(CALL_COLUMNS, row))
    pack.calls += len(read.tally.calls)
    pack.aggregates.add(run, cast(str, read.row["label"]), read.calls, read.tally.calls)
    pack.runs.append(read.row)
    pack.receipts.extend(chain.receipts)
    return len(read.tally.calls)


def _head(pack: Pack, entry: LedgerEntry) -> None:
    head: Row = {"chain": entry.chain, "sequence": entry.sequence, "hash": entry.hash.hex()}
    if pack.heads and pack.heads[-1]["chain"] == entry.chain:
        pack.heads[-1] = head
    else:
        pack.heads.append(head)


def _sums(pack: Pack, folder: PackFolder) -> None:
    aggregates = pack.aggregates.rows()
    folder.document("runs.json", pack.runs)
    columns = run_columns(pack.runs)
    folder.text("runs.csv", header(columns) + "".join(line(columns, row) for row in pack.runs))
    folder.document("aggregates.json", aggregates)
    folder.text("aggregates.csv", header(AGGREGATE_COLUMNS) + "".join(line(AGGREGATE_COLUMNS, row) for row in aggregates))
    folder.document("receipts.json", pack.receipts)
    folder.document("heads.json", pack.heads)


def _protocol(pack: Pack) -> Row:
    opening = pack.events[0]
    plan = cast(Row, opening.get("details", {})).get("plan")
    return {
        "format": FORMAT,
        "gateway_version": __version__,
        "campaign": pack.campaign,
        "as_of": pack.as_of,
        "opened_ms": opening["at_ms"],
        "policy": opening["policy"],
        "policy_name": opening["policy_name"],
        "policy_hash": opening["policy_hash"],
        "limits_hashes": sorted({cast(str, run["limits_hash"]) for run in pack.runs if "limits_hash" in run}),
        "events": [{name: event[name] for name in ("kind", "at_ms", "reason", "upstream", "details") if name in event} for event in pack.events[1:]],
        **({"planned_runs": opening["planned_runs"]} if "planned_runs" in opening else {}),
        **({"plan": plan} if plan else {}),
    }
