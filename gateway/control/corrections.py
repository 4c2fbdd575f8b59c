"""Correcting what a call used: a new entry that names its evidence; what stood before stays where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from aiohttp import web

from gateway.accounting.commands import Adjust
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Usage
from gateway.control.bodies import CorrectCallBody, read
from gateway.control.problems import Problem
from gateway.control.services import SERVICES, ControlServices
from gateway.control.views import answer
from gateway.ledger.reading import CHARGES, Row
from gateway.ledger.state import RunStanding

NOT_TO_CORRECT: Final[Mapping[object, tuple[str, str]]] = {
    "voided": ("Nothing of it was sent.", "Correct a call that was."),
    "reserved": ("It is not settled yet.", "Correct it once it has ended."),
}
"""Status to cause and mend."""
USAGE = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")


async def correct_call(request: web.Request) -> web.Response:
    """Charged as corrected. Where its run is closed, its next receipt follows."""
    services = request.app[SERVICES]
    call_id = request.match_info["call"]
    body = await read(request, CorrectCallBody)
    found = await asyncio.to_thread(_call, services, call_id)
    run = services.runs.run(str(found["campaign"]), str(found["run"]))
    async with run.lock:  # of two corrections at once the second goes on from the first
        before = await asyncio.to_thread(_call, services, call_id)
        usage, charge = _corrected(before, body.given()), _charged(before, body.given())
        adjust = Adjust(call_id=call_id, at_ms=services.ledger.now_ms(), usage=usage, charge=charge, reason=body.why, evidence=body.evidence)
        posting = await services.ledger.post(adjust)
    if run.state is RunStanding.CLOSED:
        await services.runs.close_run(run.campaign, run.run)  # which writes the receipt that is due; whoever corrected asks for it next
    after = await asyncio.to_thread(_call, services, call_id)
    return answer({"before": before, "after": after, "entry": posting.entries[0].number if posting.entries else None})


def _call(services: ControlServices, call_id: str) -> Row:
    with services.reader() as reader:
        rows = reader.query("SELECT * FROM calls WHERE call_id = :call", call=call_id)
    if not rows:
        raise Problem(404, "not_found", f"There is no call {call_id!r}.", "None was sent under this id.", "`gateway run show` and the table `calls` list them.")
    if rows[0]["status"] in NOT_TO_CORRECT:
        raise Problem(409, "conflict", f"Call {call_id!r} is not corrected.", *NOT_TO_CORRECT[rows[0]["status"]])
    return rows[0]


def _corrected(before: Row, given: dict[str, int]) -> Usage:
    """What is not given stays as it stands; a part may not be larger than its whole."""
    standing = {name: cast("int | None", before[name]) for name in USAGE}
    usage = replace(Usage(**standing), **given)
    wholes = {"cached_tokens": usage.input_tokens, "cache_write_tokens": usage.input_tokens, "reasoning_tokens": usage.output_tokens}
    for part, whole in wholes.items():
        value = getattr(usage, part)
        if value is not None and whole is not None and value > whole:
            raise Problem(400, "invalid", f"{part} of {value} can't stand.", f"It is a part of {whole}.", "Give both as they were.")
    return usage


def _charged(before: Row, given: dict[str, int]) -> Amounts:
    """As corrected. What is not given goes on being charged as it was, which may be more than is known of it, or nothing."""
    standing = {name: cast(int, before[f"charged_{name}"]) for name in CHARGES}
    return Amounts(**standing | {name: given[name] for name in CHARGES if name in given})
