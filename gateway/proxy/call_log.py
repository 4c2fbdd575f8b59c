"""One line of the log for each call that was admitted, once its end is durable, and for each that was refused.

The rule: names, numbers and ids, as they stand in the ledger. No key, no prompt, no answer, no header, and nothing that an agent made up: also not
the name of a field that was refused.
"""

from __future__ import annotations

import logging

from gateway.accounting.commands import Settle, Void
from gateway.logs import log
from gateway.proxy.calls import Route
from gateway.proxy.under_way import UnderWay
from gateway.upstream.call import Refusal


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
        log.info("voided", extra={"fields": {**fields, "reason": command.reason}})
        return
    usage, times = command.usage, command.details.get("times_ms")
    fields |= {"outcome": str(command.outcome), "source": str(command.source), "status": reservation.status}
    known = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cached_tokens": usage.cached_tokens, "tool_calls": usage.tool_calls}
    fields |= {name: value for name, value in known.items() if value is not None}
    fields |= {"charged_input": command.charge.input_tokens, "charged_output": command.charge.output_tokens}
    if isinstance(times, dict):
        fields |= {f"{name}_ms": value for name, value in times.items() if name in ("first_byte", "end")}
    if command.flags:
        fields["flags"] = list(command.flags)
    log.info("settled", extra={"fields": fields})


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
    log.info("refused", extra={"fields": fields})
