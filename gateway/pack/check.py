#!/usr/bin/env python3
"""Checks the pack that this file lies in: Python 3.10 or later, nothing else, no network.

    python3 check.py [--against RECEIPTS.json]

Sums of files, every hash of every chain, each receipt, and every call, run and aggregate made again from the chains. Ends with 0 and one line where all
fits; with 1 and what does not fit, where; with 2 where it was asked wrongly.
"""

import csv
import hashlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True  # it would lie in the pack
sys.path.insert(0, str(Path(__file__).resolve().parent))  # which -I leaves out
remake: Any = None
"""`check_rows.py`, once its sum is seen to be right."""

Row = dict[str, Any]
Kept = dict[tuple[str, int], str]

FIRST, RUNS = "chains/campaign.jsonl", "chains/runs/"
FILES = {"README.md", "SHA256SUMS", "aggregates.csv", "aggregates.json", "calls.csv", "calls.jsonl", FIRST, "check.py", "check_rows.py", "heads.json"}
EVENTS, SAID = {"halt", "resume", "close_campaign", "fingerprint"}, {"as_of", "campaign", "format", "gateway_version"}
FILES |= {"protocol.json", "receipts.json", "reconciliation.json", "refusals.jsonl", "runs.csv", "runs.json"}


class Wrong(Exception):
    pass


def ask(fits: object, words: str) -> None:
    if not fits:
        raise Wrong(words)


# -- files


def files(folder: Path) -> set[str]:
    listed = {}
    ask((folder / "SHA256SUMS").is_file(), "SHA256SUMS: missing")
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        ask(len(digest) == 64 and name, "SHA256SUMS: can't be read: " + line)
        listed[name] = digest
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    for name in sorted(set(listed) - there):
        raise Wrong(name + ": missing")
    for name in sorted(there - set(listed) - {"SHA256SUMS"}):
        raise Wrong(name + ": unexpected, SHA256SUMS does not know it")
    for name in sorted(FILES - there):
        raise Wrong(name + ": missing, also in SHA256SUMS")
    for name in sorted(there - FILES):
        ask(name.startswith(RUNS) and name.endswith(".jsonl"), name + ": unexpected, a pack has no such file")
    for name, digest in sorted(listed.items()):
        ask(not (folder / name).is_symlink(), name + ": a link, not a file")
        hashed = hashlib.sha256()
        with (folder / name).open("rb") as file:
            while block := file.read(1 << 20):
                hashed.update(block)
        ask(hashed.hexdigest() == digest, name + ": changed, its sum is another")
    return there


def document(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Wrong(f"{name}: can't be read: {error}") from error


# -- chains


def chain(folder: Path, name: str, called: str, first_hash: bytes, kept: Kept) -> Iterator[tuple[Row, str]]:
    """Every entry with its hash; each is held against the one before it, and against what was kept of this chain."""
    previous, number, sequence = first_hash, 0, 0
    with (folder / name).open("rb") as file:
        for place, raw in enumerate(file, 1):
            line, where = raw.rstrip(b"\n"), f"{name}:{place}: "
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise Wrong(f"{where}can't be read: {error}") from error
            ask(entry.get("chain") == called, where + "stands in another chain")
            ask(entry["sequence"] == sequence + 1, f"{where}is number {entry['sequence']} of its chain, after number {sequence}")
            ask(entry["number"] > number, where + "its number does not rise")
            again = json.dumps(entry, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
            ask(again == line, where + "is not in the form that is hashed")
            number, sequence, previous = entry["number"], sequence + 1, hashlib.sha256(previous + line).digest()
            ask(
                kept.pop((called, sequence), previous.hex()) == previous.hex(),
                where + "a receipt or head that was kept names another hash: it was written anew",
            )
            yield entry, previous.hex()


def campaign_chain(folder: Path, protocol: Row, kept: Kept) -> tuple[dict[str, tuple[Row, str]], dict[str, list[Row]], list[Row], Row]:
    """Openings by run with their hash, hashes of receipts that it vouches for, its receipts, its head."""
    called = "campaign:" + protocol["campaign"]
    runs: dict[str, tuple[Row, str]] = {}
    vouched: dict[str, list[Row]] = {}
    lines: dict[str, Row] = {}
    receipts: list[Row] = []
    events: list[Row] = []
    head: Row = {}
    opening: Row = {}
    for entry, hashed in chain(folder, FIRST, called, bytes(32), kept):
        kind = entry["kind"]
        if not opening:
            ask(kind == "open_campaign", FIRST + ":1: is no opening")
            opening = entry
        elif kind == "open_run":
            ask(entry["run"] not in runs, f"{FIRST}: run {entry['run']} is opened twice")
            runs[entry["run"]] = (entry, hashed)
        elif kind == "run_receipt":
            vouched.setdefault(entry["run"], []).append(entry)
            lines[entry["run"]] = entry
        elif kind == "receipt":
            ask(entry["head"] == head, f"{FIRST}: receipt {entry['receipt']} names another head")
            for name, made in remake.campaign_totals({run: of.get("label", "") for run, (of, _) in runs.items()}, lines).items():
                ask(entry[name] == made, f"{FIRST}: receipt {entry['receipt']} has other {name} than its runs' receipts add up to")
            receipts.append({**entry, "hash": hashed})
        elif kind in EVENTS:
            events.append(entry)
        head = {"chain": called, "sequence": entry["sequence"], "hash": hashed}
        ask(entry["number"] <= protocol["as_of"], f"{FIRST}:{entry['sequence']}: is younger than the entry as of which this pack is said to be")
    ask(opening, FIRST + ": is empty")
    made = remake.protocol(opening, events, [of for of, _ in runs.values()])
    for name in sorted({*made, *protocol} - SAID):
        ask(protocol.get(name) == made.get(name), f"protocol.json: its {name} is not that of the campaign's chain")
    ask(hashlib.sha256(opening["policy"].encode()).hexdigest() == opening["policy_hash"], FIRST + ":1: its policy has another hash")
    return runs, vouched, receipts, head


def run_chain(
    folder: Path, run: str, opening: Row, opening_hash: str, vouched: list[Row], kept: Kept
) -> tuple[Row, dict[str, Row], list[Row], list[Row], list[Row]]:
    """(row of the run, its calls' rows, its refusals, its receipts, its head if it has entries)."""
    name = f"{RUNS}{run}.jsonl"
    calls: dict[str, Row] = {}
    refused: dict[str, int] = {}
    seen: Row = {"finals": []}
    refusals: list[Row] = []
    receipts: list[Row] = []
    head: Row = {"chain": f"run:{opening['campaign']}/{run}", "sequence": 0, "hash": opening_hash}
    for entry, hashed in chain(folder, name, head["chain"], bytes.fromhex(opening_hash), kept):
        kind, where = entry["kind"], f"{name}:{entry['sequence']}: "
        if kind == "reserve":
            ask(entry["call"] not in calls and "closing_ms" not in seen, where + "may not be reserved here")
            calls[entry["call"]] = remake.opened(entry, opening.get("label", ""))
        elif kind in remake.ENDS:
            ask(entry["call"] in calls, where + "closes a call that was never reserved")
            remake.close(calls[entry["call"]], entry)
        elif kind in ("refuse", "refusal_summary"):
            refusals.append(entry)
            refused[entry["code"]] = refused.get(entry["code"], 0) + entry.get("count", 1)
            if entry["final"]:
                seen["finals"].append((entry["number"], entry.get("until_ms", entry["at_ms"]), entry.get("limit", {}).get("name", "")))
        elif kind == "declare":
            seen["results"] = entry["results"]
        elif kind == "begin_closing":
            seen["closing_ms"] = entry["at_ms"]
        elif kind == "receipt":
            ask(entry["head"] == head, where + "the receipt names another head")
            ask(entry["totals"] == remake.run_totals(calls, refused), where + "the receipt's totals are not what the chain before it adds up to")
            line = vouched[len(receipts)] if len(receipts) < len(vouched) else {}
            ask(line.get("hash") == hashed, f"{where}the campaign's chain vouches for another receipt {entry['receipt']}")
            ask(line["totals"] == entry["totals"], f"{where}the campaign's chain has other totals of receipt {entry['receipt']}")
            receipts.append({**entry, "hash": hashed})
        head = {"chain": head["chain"], "sequence": entry["sequence"], "hash": hashed}
    ask(len(receipts) == len(vouched), f"{name}: the campaign's chain vouches for {len(vouched)} receipts, here are {len(receipts)}")
    row = remake.run_row(opening, calls, refused, seen, receipts)
    return row, calls, refusals, receipts, [head] if head["sequence"] else []


# -- what is held against what


def same(name: str, here: list[Row], made: list[Row]) -> None:
    ask(len(here) == len(made), f"{name}: has {len(here)} rows, the chains make {len(made)}")
    for place, (one, other) in enumerate(zip(here, made, strict=True), 1):
        keys = sorted(key for key in {**one, **other} if one.get(key) != other.get(key))
        ask(not keys, f"{name}: row {place} differs from the chains in {', '.join(keys)}")


def table(folder: Path, name: str, rows: list[Row]) -> None:
    """Every cell is what its row says, or empty where that is unknown."""
    lines = list(csv.reader(io.StringIO((folder / name).read_text(encoding="utf-8"), newline="")))
    ask(len(lines) == len(rows) + 1, f"{name}: has {len(lines) - 1} rows, the chains make {len(rows)}")
    for place, (cells, row) in enumerate(zip(lines[1:], rows, strict=True), 2):
        for column, here in zip(lines[0], cells, strict=True):
            ask(here == remake.cell(row, column), f"{name}:{place}: {column} is not what the chains say")


def json_lines(folder: Path, name: str) -> list[Row]:
    with (folder / name).open("rb") as file:
        return [json.loads(line) for line in file]


def documents(path: Path) -> Iterator[object]:
    """One JSON document, or several one after the other, as receipts that were appended are."""
    text = path.read_text(encoding="utf-8").lstrip()
    while text:
        found, end = json.JSONDecoder().raw_decode(text)
        yield found
        text = text[end:].lstrip()


def anchors(kept: object) -> Iterator[tuple[str, int, str]]:
    if isinstance(kept, list):
        for inner in kept:
            yield from anchors(inner)
    elif isinstance(kept, dict):
        if all(isinstance(kept.get(name), kind) for name, kind in (("chain", str), ("sequence", int), ("hash", str))):
            yield kept["chain"], kept["sequence"], kept["hash"].lower()
        for inner in kept.values():
            yield from anchors(inner)


def check(folder: Path, kept: Kept) -> tuple[int, int]:
    global remake
    there = files(folder)
    remake = importlib.import_module("check_rows")
    protocol = document(folder, "protocol.json")
    ask(protocol.get("format") == "gateway-pack-1", "protocol.json: is not of the form gateway-pack-1")
    runs, vouched, receipts, head = campaign_chain(folder, protocol, kept)
    heads, rows = [head], list[Row]()
    calls: list[Row] = []
    refusals: list[Row] = []
    for name in sorted(there - FILES):
        ask(name[len(RUNS) : -len(".jsonl")] in runs, name + ": the chain of a run that was never opened")
    for run, (opening, opening_hash) in runs.items():
        ask(f"{RUNS}{run}.jsonl" in there, f"{RUNS}{run}.jsonl: missing, though the run was opened")
        row, its_calls, its_refusals, its_receipts, its_head = run_chain(folder, run, opening, opening_hash, vouched.get(run, []), kept)
        rows.append(row)
        calls += its_calls.values()
        refusals += its_refusals
        receipts += its_receipts
        heads += its_head
    for called, sequence in kept:
        ask(False, f"number {sequence} of chain {called} was kept but is not here: dropped, or younger than this pack")
    sums = list(remake.aggregates(calls))
    for name, made in (("heads", heads), ("receipts", receipts), ("runs", rows), ("aggregates", sums)):
        same(name + ".json", document(folder, name + ".json"), made)
    same("calls.jsonl", json_lines(folder, "calls.jsonl"), calls)
    same("refusals.jsonl", json_lines(folder, "refusals.jsonl"), refusals)
    for name, made in (("calls.csv", calls), ("runs.csv", rows), ("aggregates.csv", sums)):
        table(folder, name, made)
    return len(calls), len(rows)


def main(arguments: list[str]) -> int:
    if arguments and (len(arguments) != 2 or arguments[0] != "--against"):
        print(__doc__)
        return 2
    kept = {}
    if arguments:
        try:
            kept = {anchor[:2]: anchor[2] for found in documents(Path(arguments[1])) for anchor in anchors(found)}
        except (OSError, ValueError) as error:
            print(f"{arguments[1]} can't be read as receipts: {error}")
            return 2
        if not kept:
            print(f"{arguments[1]} holds no receipt and no head: nothing in it names a chain, a sequence and a hash")
            return 2
    held = len(kept)
    try:
        calls, runs = check(Path(__file__).resolve().parent, kept)
    except Wrong as wrong:
        print(f"does not fit: {wrong}")
        return 1
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OSError) as error:
        print(f"does not fit: something in it is not of the form of a pack: {error!r}")
        return 1
    print(f"fits: {calls} calls of {runs} runs, made again from their chains" + (f", and {held} receipts and heads that were kept" if held else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
