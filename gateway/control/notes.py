"""What is put on record of a reconciliation: counts by class and the report's digest, as an event of the run or the campaign. It changes no account."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from gateway.accounting.commands import Event
from gateway.control.bodies import Body, Text, Tokens, read
from gateway.control.reading import from_ledger
from gateway.control.services import SERVICES
from gateway.control.views import answer
from gateway.reports.history import RECONCILED

CLASSES_MAX = 64

ClassName = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]


class ReconciledBody(Body):
    run: Text = ""
    """Empty: the whole campaign was reconciled."""
    as_of: Tokens
    classes: dict[ClassName, Tokens] = Field(max_length=CLASSES_MAX)
    unexplained: Tokens
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


async def note_reconciled(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    campaign = request.match_info["campaign"]
    body = await read(request, ReconciledBody)
    services.runs.run(campaign, body.run) if body.run else services.runs.campaign(campaign)
    await from_ledger(request, lambda reader: reader.check_as_of(body.as_of))
    details = {"as_of": body.as_of, "classes": body.classes, "unexplained": body.unexplained, "sha256": body.sha256}
    event = Event(campaign=campaign, run=body.run, call_id="", name=RECONCILED, at_ms=services.ledger.now_ms(), details=details)
    posting = await services.ledger.post(event)
    services.reconciled(campaign, body.run, body.classes, body.unexplained)
    return answer({"entry": posting.entries[0].number})
