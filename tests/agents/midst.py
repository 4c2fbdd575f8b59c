"""What a call that was cut had delivered, out of the ledger: whether it was cut amid what the scenario says."""

from __future__ import annotations

from typing import Any

from gateway.accounting.chain import decode
from gateway.ledger.reading import LedgerReader

KINDS = {"cut-text": "text", "cut-reasoning": "reasoning", "cut-tool-call": "tool_arguments"}


def delivered(ledger: LedgerReader, call_id: str, campaign: str = "agents", run: str = "r1") -> dict[str, int]:
    """Bytes by kind."""
    for entry in ledger.chain(f"run:{campaign}/{run}"):
        if entry.kind == "settle" and entry.call_id == call_id:
            body: dict[str, Any] = decode(entry.body)
            return dict(body["details"]["delivered_bytes"])
    return {}


def is_amid(scenario: str, sent: dict[str, int]) -> bool:
    """Something of that kind, and of no other."""
    kind = KINDS[scenario]
    return sent.get(kind, 0) > 0 and not any(size for name, size in sent.items() if name != kind)
