"""One admitted call on its way: what is held for it, how it is going, and in the end its terms. Plain state; who changes it is reservation.py."""

from __future__ import annotations

import time

from gateway.accounting.settling import ENDED, Ending, Terms
from gateway.accounting.usage import Reading
from gateway.errors import EngineFailure
from gateway.metering.meter import Meter
from gateway.proxy.calls import Call
from gateway.proxy.relay import Relay
from gateway.runs.in_flight import Handle
from gateway.services import Services
from gateway.upstream.answer import Answer
from gateway.upstream.at_work import Open
from gateway.upstream.call import Admission
from gateway.upstream.cancelling import Left


class UnderWay:
    def __init__(self, call: Call, services: Services, admission: Admission, sent: bytes, handle: Handle) -> None:
        self.call = call
        self.services = services
        self.admission = admission
        self.sent = sent
        self.handle = handle
        self.admitted_at = time.monotonic()
        self.status = 0
        self.meter: Meter | None = None
        self.relay: Relay | None = None
        self.ending: Ending = ENDED
        self.failure: EngineFailure | None = None
        self.answer: Answer | None = None
        self.sent_at = self.engine_done_at = self.admitted_at
        self.unsent = False
        """It is known that nothing was sent, for nothing was begun."""
        self.reading: Reading | None = None
        """What the meter read, once it was asked to settle."""
        self.terms: Terms | None = None
        """None until it is settled; also where nothing was sent (void)."""
        self.not_delivered = False
        """The settlement could not be written: the answer may not look finished."""

    @property
    def pieces(self) -> int:
        """Of work, for the engine."""
        return max(1, self.call.request.choices * self.call.request.prompts)

    def open(self) -> Open:
        """While its answer is awaited: what the engine may be at work on for it."""
        relay = self.relay
        begun = relay is not None and relay.first_content_at is not None and not relay.terminal
        return Open(ceiling=self.admission.output // self.pieces, pieces=self.pieces, begun=begun)

    def left(self) -> Left:
        handle = self.handle
        ceiling = self.admission.output // self.pieces
        return Left(call_id=handle.call_id, campaign=handle.campaign, run=handle.run, ceiling=ceiling, pieces=self.pieces)
