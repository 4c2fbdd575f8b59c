"""What stands on record about calls, read from the ledger's file beside the gateway that writes it."""

from __future__ import annotations

from typing import Any

from gateway.ledger.reading import LedgerReader
from tests.support.gateway_process import GatewayProcess
from tests.support.waiting import eventually


def calls(gateway: GatewayProcess) -> list[dict[str, Any]]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls())


def closed_call(gateway: GatewayProcess, *, timeout_s: float = 10.0) -> dict[str, Any]:
    """The only call, once it is closed."""

    def closed() -> bool:
        return [row["status"] == "reserved" for row in calls(gateway)] == [False]

    eventually(closed, "the only call is closed", timeout_s=timeout_s)
    return calls(gateway)[0]


def ending(row: dict[str, Any]) -> tuple[str, str]:
    return row["outcome"], row["source"]


def usage(row: dict[str, Any]) -> tuple[int | None, int | None]:
    return row["input_tokens"], row["output_tokens"]


def charge(row: dict[str, Any]) -> tuple[int, int]:
    return row["charged_input_tokens"], row["charged_output_tokens"]


def reserved(gateway: GatewayProcess) -> int:
    """Over all accounts: 0 once nothing is held."""
    return _number(gateway, "SELECT coalesce(sum(reserved), 0) AS number FROM accounts")


def entries(gateway: GatewayProcess, kind: str, *, named: str = "") -> int:
    """How many stand in the journal; events by their name."""
    where = "kind = :kind AND (:named = '' OR json_extract(body, '$.name') = :named)"
    return _number(gateway, f"SELECT count(*) AS number FROM journal WHERE {where}", kind=kind, named=named)


def fits(gateway: GatewayProcess) -> bool:
    with LedgerReader(gateway.ledger) as reader:
        verification = reader.verify()
    assert verification.fits, verification
    return True


def _number(gateway: GatewayProcess, sql: str, **values: object) -> int:
    with LedgerReader(gateway.ledger) as reader:
        return int(str(reader.query(sql, **values)[0]["number"]))
