"""Correcting what a call used: a new entry that names its evidence; what stood before stays where it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from aiohttp import web

from gateway.accounting.commands import Adjust
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Usage
from gateway.control.bodies import CorrectCallBody, read
from gateway.control.problems import Problem
from gateway.control.services import SERVICES, ControlServices
from gateway.control.views import answer
from gateway.ledger.reading import Row
from gateway.ledger.state import RunStanding

USAGE = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")


async def correct_call(request: web.Request) -> web.Response:
    """Charged as corrected. Where its run is closed, its next receipt follows."""
    services = request.app[SERVICES]
    call_id = request.match_info["call"]
    body = await read(request, CorrectCallBody)
    before = await asyncio.to_thread(_call, services, call_id)
    usage = _corrected(before, body.given())
    charge = Amounts(requests=1, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0, tool_calls=usage.tool_calls or 0)
    charge = _known_charge(before, usage, charge)
    adjust = Adjust(call_id=call_id, at_ms=services.ledger.now_ms(), usage=usage, charge=charge, reason=body.why, evidence=body.evidence)
    posting = await services.ledger.post(adjust)
    campaign, run = str(before["campaign"]), str(before["run"])
    if services.runs.run(campaign, run).state is RunStanding.CLOSED:
        await services.runs.close_run(campaign, run)  # which writes the receipt that is due; whoever corrected asks for it next
    after = await asyncio.to_thread(_call, services, call_id)
    return answer({"before": before, "after": after, "entry": posting.entries[0].number if posting.entries else None})


def _call(services: ControlServices, call_id: str) -> Row:
    with services.reader() as reader:
        rows = reader.query("SELECT * FROM calls WHERE call_id = :call", call=call_id)
    if not rows:
        raise Problem(404, "not_found", f"There is no call {call_id!r}.", "None was sent under this id.", "`gateway run show` and the table `calls` list them.")
    if rows[0]["status"] == "voided":
        raise Problem(409, "rejected", f"Call {call_id!r} is not corrected.", "Nothing of it was sent.", "Correct a call that was.")
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


def _known_charge(before: Row, usage: Usage, charge: Amounts) -> Amounts:
    """A number that is still unknown goes on being charged as it was."""
    if usage.input_tokens is None:
        charge = replace(charge, input_tokens=cast(int, before["charged_input_tokens"]))
    if usage.output_tokens is None:
        charge = replace(charge, output_tokens=cast(int, before["charged_output_tokens"]))
    return charge
