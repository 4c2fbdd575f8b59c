"""What calls would have cost by the prices that a policy declares. For reports alone: no limit depends on a price, and what is unpriced stays unpriced.

A sum has a price only where every call in it has one: a model with a price, and a usage that is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from gateway.reports.call_rows import Row

MILLION = Decimal(1_000_000)
PLACES = Decimal("0.000001")


def declared(policy: str) -> dict[str, Row]:
    """The models of a policy's canonical form that have a price."""
    models = cast("dict[str, Row]", json.loads(policy).get("models", {}))
    return {name: model for name, model in models.items() if "price_currency" in model}


def priced(group: Mapping[str, object], price: Row | None) -> Row | None:
    """Of one model's calls; None where it is unpriced, or a part of its usage is not known or still runs."""
    usage = cast("dict[str, dict[str, int]]", group["usage"])
    tokens, unknown = usage["input_tokens"], usage["input_tokens"]["unknown"] + usage["output_tokens"]["unknown"]
    if price is None or unknown or group["open"]:
        return None
    amount = tokens["sum"] * Decimal(str(price["price_input"])) + usage["output_tokens"]["sum"] * Decimal(str(price["price_output"]))
    return {"currency": price["price_currency"], "amount": str((amount / MILLION).quantize(PLACES))}


def summed(prices: list[Row | None]) -> Row | None:
    """None where one has none, or two are in different currencies."""
    known = [price for price in prices if price is not None]
    if not known or len(known) < len(prices) or len({price["currency"] for price in known}) > 1:
        return None
    return {"currency": known[0]["currency"], "amount": str(sum(Decimal(str(price["amount"])) for price in known))}
