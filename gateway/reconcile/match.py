"""One row of the report: calls and rows that belong together, by what, what differs, and which class that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.reconcile.classes import Class, explained
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal
from gateway.reconcile.record import DispatchRecord

LedgerItem = LedgerCall | LedgerRefusal


class By(StrEnum):
    """What made call and row one, strongest first."""

    RESPONSE_ID = "response_id"
    ITEM_ID = "item_id"
    TOOL_CALL_ID = "tool_call_id"
    REQUEST_ID = "request_id"
    SESSION_ID = "session_id"
    """An id that the agent sent with this one call alone."""
    USAGE_AND_ORDER = "usage_and_order"
    ORDER = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    field: str
    ledger: int | str
    record: int | str

    def __str__(self) -> str:
        return f"{self.field}: ledger {self.ledger}, record {self.record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    name: Class
    items: tuple[LedgerItem, ...] = ()
    """Of the ledger: one, or all that fit where the class is `ambiguous`."""
    records: tuple[DispatchRecord, ...] = ()
    by: By | None = None
    differences: tuple[Difference, ...] = ()
    why: str = ""

    @property
    def explained(self) -> bool:
        return explained(self.name)

    @property
    def call(self) -> LedgerCall | None:
        return next((item for item in self.items if isinstance(item, LedgerCall)), None)

    @property
    def run_name(self) -> str:
        return self.items[0].run_name if self.items else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A call or refusal and the row that tells of it, before it is said what they come to."""

    item: LedgerItem
    record: DispatchRecord
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Rows and calls that fit each other in more than one way."""

    items: Sequence[LedgerItem]
    records: Sequence[DispatchRecord]
    why: str
