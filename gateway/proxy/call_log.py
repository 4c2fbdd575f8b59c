"""One line of the log for each call that was admitted, once its end is durable, and for each that was refused.

The rule: names, numbers and ids, as they stand in the ledger. No key, no prompt, no answer, no header, and nothing that an agent made up: also not
the name of a field that was refused.
"""

from __future__ import annotations

import logging
from typing import Final

from gateway.accounting.commands import Settle, Void
from gateway.accounting.contents import known_of
from gateway.logs import log, tell
from gateway.proxy.calls import Route
from gateway.proxy.under_way import UnderWay
from gateway.upstream.call import Refusal

LOGGED: Final = ("input_tokens", "output_tokens", "cached_tokens", "tool_calls")
"""Of a usage; the rest stands in the ledger alone."""


def log_ended(reservation: UnderWay, command: Settle | Void) -> None:
    """`command`: what closed it."""
    if not log.isEnabledFor(logging.INFO):
        return
    call, admission = reservation.call, reservation.admission
    identity = call.identity
    fields: dict[str, object] = {
        "call": call.call_id,
        "run": f"{identity.campaign.campaign}/{identity.run.run}",
        "lane": identity.lane,
        "model": call.request.model,
        "upstream": admission.upstream,
        "dialect": call.dialect.name,
        "stream": call.request.stream,
        "waited_ms": admission.waited_ms,
        "ceiling": admission.output,
    }
    if admission.clamped_by is not None:
        fields["clamped_by"] = admission.clamped_by
    if isinstance(command, Void):
        tell("voided", {**fields, "reason": command.reason})
        return
    times = command.details.get("times_ms")
    fields["outcome"], fields["source"], fields["status"] = str(command.outcome), str(command.source), reservation.status
    known = known_of(command.usage)
    fields |= {name: known[name] for name in LOGGED if name in known}
    fields["charged_input"], fields["charged_output"] = command.charge.input_tokens, command.charge.output_tokens
    if isinstance(times, dict):
        for name, value in times.items():
            if name in ("first_byte", "end"):
                fields[f"{name}_ms"] = value
    if command.flags:
        fields["flags"] = list(command.flags)
    tell("settled", fields)


def log_refused(refusal: Refusal, route: Route, call_id: str) -> None:
    identity = route.identity
    fields: dict[str, object] = {
        "call": call_id,
        "run": f"{identity.campaign.campaign}/{identity.run.run}",
        "lane": identity.lane,
        "code": refusal.code,
        "final": refusal.final,
    }
    if refusal.waited_ms:
        fields["waited_ms"] = refusal.waited_ms
    if (limit := refusal.shortfall) is not None:
        fields |= {"limit": limit.name, "limit_ceiling": limit.ceiling, "limit_settled": limit.settled, "limit_reserved": limit.reserved, "asked": limit.asked}
    tell("refused", fields)
