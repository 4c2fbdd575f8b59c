"""What a pack says of itself: what it holds, how to check it, what that proves and what not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from gateway.accounting.tally import Content

LISTED_MAX = 20
TEXT = """# Campaign {campaign}

{summary}

| label | calls | input tokens | output tokens | requests charged | input charged | output charged |
|---|--:|--:|--:|--:|--:|--:|
{sums}

Usage is what the calls used, as far as it is known; an unknown number is not in a sum, and how many are unknown stands beside it. Charge is what counted
against the limits. The two are never added to each other, and no sum covers two labels.

## Check it

    python3 check.py

Python 3.10 or later and nothing else, no network. It makes every call, run and sum again from the chains, compares, and names the first file that is
missing, changed or unexpected, or the first entry that does not fit. Who kept a receipt or a head holds the pack against it: `python3 check.py --against FILE`.

**What it proves**: to anyone who kept a receipt or a head of this campaign, that nothing before it was changed, left out or added since; not that what the
operator wrote down was true to begin with. This page and `reconciliation.json` follow from no chain: only `SHA256SUMS` holds them.

{heads}

## Files

| file | what |
|---|---|
| `protocol.json` | the policy that the campaign was served under, whole, and its hash; engines, halts, dates; as of which entry of the ledger |
| `calls.jsonl`, `calls.csv` | one row a call: asked, sent, what came of it; what stood there before a correction (`was`) |
| `refusals.jsonl` | what was not admitted, and by which limit |
| `runs.json`, `runs.csv` | one row a run: results as declared, what the gateway saw beside them, conflicts, receipt |
| `aggregates.json`, `aggregates.csv` | sums by label, lane, model and run |
| `chains/` | every entry, a line each, in the form that is hashed: SHA-256 over the 32 bytes of the entry before and the line |
| `receipts.json`, `heads.json` | receipts as they were given out; the end of each chain |
| `reconciliation.json` | the calls held against the agents' own records, where there were any |
| `SHA256SUMS`, `check.py`, `check_rows.py` | sums of all files; the check and its arithmetic |

A key of a run stands here only as SHA-256 of a secret of 256 random bits. There is no prompt and no answer in it. Where
each limit was set stands as the path that the operator's policy file had.
"""


def readme(protocol: Content, runs: list[dict[str, object]], aggregates: list[dict[str, object]], heads: list[dict[str, object]]) -> str:
    states = [cast(str, run["state"]) for run in runs]
    opened = datetime.fromtimestamp(cast(int, protocol["opened_ms"]) / 1000, UTC).isoformat(timespec="seconds")
    summary = (
        f"Opened {opened} under policy `{protocol['policy_name']}`, hash `{protocol['policy_hash']}`. {len(runs)} runs: {states.count('closed')} closed, "
        f"{states.count('closing')} closing, {states.count('open')} open. As of entry {protocol['as_of']} of the ledger."
    )
    summary += _missing(protocol, {cast(str, run["run"]) for run in runs})
    campaign_head, open_runs = heads[0], [head for head, run in zip(heads[1:], _with_entries(runs, heads), strict=False) if run]
    text = f"The campaign's head is number {campaign_head['sequence']}, `{campaign_head['hash']}`."
    if open_runs:
        text += " Runs that it does not cover, by heads of their own: " + ", ".join(f"`{head['chain']}`" for head in open_runs) + "."
    return TEXT.format(
        campaign=protocol["campaign"], summary=summary, sums="\n".join(map(_sum, (row for row in aggregates if row["by"] == "label"))), heads=text
    )


def _missing(protocol: Content, opened: set[str]) -> str:
    """By name where the plan has names: a run that nobody planned stands for none that did not happen."""
    plan = cast("list[list[object]]", protocol.get("plan", []))
    planned = len(plan) if plan else cast("int | None", protocol.get("planned_runs"))
    if planned is None:
        return ""
    named = [f"`{row[0]}`" for row in plan if row[0] not in opened]
    missing = len(named) if plan else max(0, planned - len(opened))
    listed = f" ({', '.join(named[:LISTED_MAX])}{', …' if missing > LISTED_MAX else ''})" if named else ""
    return f" {planned} runs were planned; {missing} did not happen{listed}, and are missing, neither a failure nor a zero."


def _with_entries(runs: list[dict[str, object]], heads: list[dict[str, object]]) -> list[bool]:
    """Of each run's head: whether the campaign's does not cover it, since it has no receipt or something after it."""
    receipts = {f"/{run['run']}": cast("dict[str, object]", run.get("receipt", {})) for run in runs}
    return [receipts["/" + cast(str, head["chain"]).partition("/")[2]].get("hash") != head["hash"] for head in heads[1:]]


def _sum(row: Content) -> str:
    usage, charge = cast("dict[str, dict[str, int]]", row["usage"]), cast("dict[str, int]", row["charge"])
    known = [_known(usage[column]) for column in ("input_tokens", "output_tokens")]
    charged = [f"{charge.get(column, 0):,}" for column in ("requests", "input_tokens", "output_tokens")]
    label = cast(str, row["value"]).replace("\\", "\\\\").replace("|", "\\|")
    return " | ".join(["| " + (label or "(none)"), f"{row['calls']:,}", *known, *charged]) + " |"


def _known(of: dict[str, int]) -> str:
    return f"{of['sum']:,}" + (f" (+ {of['unknown']:,} unknown)" if of["unknown"] else "")
