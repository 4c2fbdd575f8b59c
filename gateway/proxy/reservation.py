"""From admission to settlement. A reservation always closes, before the agent can know that its answer has ended.

Void only on evidence that nothing was sent; else settled by its meter, whatever happened. Its end is shielded from cancellation: an agent that leaves, even
twice, takes nothing with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from types import TracebackType

from gateway.accounting.settling import Ending, How
from gateway.accounting.usage import Outcome
from gateway.errors import EngineFailure
from gateway.logs import log
from gateway.metering.framing import BadAnswer
from gateway.metering.meter import meter_of
from gateway.proxy.agent_side import AgentGone, AgentSide
from gateway.proxy.answer_headers import answer_headers, left_headers, put_on_record, warning_headers
from gateway.proxy.calls import Call
from gateway.proxy.ceiling_watch import CapIgnored, CeilingWatch
from gateway.proxy.delivered import CountWhileItRuns
from gateway.proxy.fault_points import reach, reach_once_written
from gateway.proxy.relay import Relay
from gateway.proxy.reserving import Reserving
from gateway.proxy.settlement import drained_too_long, settle, settle_at_once
from gateway.proxy.ticket import ticket_of
from gateway.proxy.under_way import UnderWay
from gateway.runs.in_flight import Handle
from gateway.services import Services
from gateway.upstream.answer import Answer
from gateway.upstream.call import Admission
from gateway.upstream.circuit import FAILED_STATUS
from gateway.upstream.forward import RELAYED_HEADERS


class Reservation(UnderWay):
    """Sends the call, and sees to it that it closes."""

    def __init__(self, call: Call, services: Services, admission: Admission, sent: bytes, handle: Handle) -> None:
        super().__init__(call, services, admission, sent, handle)
        self._unfinished: asyncio.Task[None] | None = None
        self.warning: Mapping[str, str] = {}
        """What its answer tells of limits that are nearly spent."""

    async def forward_and_relay(self, agent: AgentSide) -> None:
        """Sends the call and passes its answer on. Raises EngineFailure, BadAnswer, CapIgnored, AgentGone."""
        call, cancelling = self.call, self.services.cancelling
        self.sent_at = time.monotonic()
        cancelling.opened(call.upstream.name, self)
        try:
            written = reach_once_written("sent")
            async with call.upstream.send(call.path, self.sent, call.forwarded_headers, call.call_id, on_written=written) as answer:
                await self._answered(answer, agent).carry(answer)
            reach("terminal_held")
        except BaseException as error:
            if self._leaves_work(error):
                cancelling.left(call.upstream, self.left())
            raise
        finally:
            self.engine_done_at = time.monotonic()
            cancelling.closed(call.upstream.name, self)

    def _answered(self, answer: Answer, agent: AgentSide) -> Relay:
        call, bounds = self.call, self.services.settings.bounds
        self.answer, self.status = answer, answer.status
        if answer.status < FAILED_STATUS:
            self.services.engines.answered(call.upstream.name)
        self.sent = b""
        call.let_go(self.admission.prompt_exact)
        self.meter = meter_of(
            call.dialect.reader(call.request, call.engine.kind),
            status=answer.status,
            content_type=answer.content_type,
            content_encoding=answer.content_encoding,
            max_event_bytes=bounds.max_event_bytes,
            max_response_bytes=bounds.max_response_bytes,
        )
        self.meter.see_head(answer.headers)
        relayed = {shown: answer.headers[name] for name, shown in RELAYED_HEADERS.items() if name in answer.headers}
        agent.prepare(answer.status, {**relayed, **answer_headers(call, self.admission)})
        agent.told_late = left_headers(call, self.admission, self.services)
        counting, sizes = CountWhileItRuns(call, self.services), self.services.event_sizes
        watch = CeilingWatch(self.admission.output, self.meter, counting, sizes, call.upstream.name, call.request.model)
        self.relay = Relay(self.meter, agent, watch)
        return self.relay

    async def attached(self, work: Coroutine[None, None, None]) -> None:
        """The agent waits for it: when it leaves, or the gateway cuts, the engine is left at once. Never raises but cancellation."""
        task = asyncio.current_task()
        assert task is not None
        if self._cut_unsent(work):
            return
        watching = [True]

        def cancel(_outcome: Outcome) -> None:
            if watching[0]:
                task.cancel()

        self.handle.on_cut(cancel)
        try:
            await work
        except asyncio.CancelledError:
            if self.handle.cut is None or task.uncancel() > 0:
                self._left()
                raise
            if not self._has_its_end():
                self.ending = Ending(how=How.CUT, cut=self.handle.cut)
        except AgentGone:
            self._left()
        except (EngineFailure, BadAnswer, CapIgnored) as error:
            self._failed(error)
        finally:
            watching[0] = False
            work.close()

    async def detached(self, work: Coroutine[None, None, None]) -> None:
        """The engine would not stop for an agent that leaves, so its answer is read to the end all the same: then it is known what the call used."""
        if self._cut_unsent(work):
            return
        loop = asyncio.get_running_loop()
        task = self._unfinished = loop.create_task(work)
        over: asyncio.Future[Outcome | None] = loop.create_future()

        def ended(outcome: Outcome | None) -> None:
            if not over.done():
                over.set_result(outcome)

        task.add_done_callback(lambda _: ended(None))
        self.handle.on_cut(ended)
        try:
            cut = await over
        except asyncio.CancelledError:
            self._left()
            raise
        if not task.done():
            self.ending = Ending(how=How.CUT, cut=cut)
            return
        self._unfinished = None
        self._ended_with(task)

    def _cut_unsent(self, work: Coroutine[None, None, None]) -> bool:
        """Cut while its reservation was written: nothing is sent any more."""
        if self.handle.cut is None:
            return False
        work.close()
        self.unsent = True
        self.ending = Ending(how=How.CUT, cut=self.handle.cut)
        return True

    def _ended_with(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if isinstance(error, AgentGone):
            self._left()
        elif isinstance(error, EngineFailure | BadAnswer | CapIgnored):
            self._failed(error)
        elif error is not None:
            raise error

    def _leaves_work(self, error: BaseException) -> bool:
        """The connection was closed by us, before the end of the answer: the engine is to stop, and whether it does is not known."""
        if self._has_its_end() or (isinstance(error, EngineFailure) and (error.kind != "timeout" or error.phase == "connect")):
            return False
        return self._unfinished is None or not isinstance(error, asyncio.CancelledError)  # one that was drained for too long is on record as that

    def _left(self) -> None:
        """After the terminal event it had, or will find, a complete answer."""
        if not self._has_its_end():
            self.ending = Ending(how=How.CLIENT_LEFT)

    def _has_its_end(self) -> bool:
        return self.relay is not None and self.relay.terminal

    def _failed(self, error: EngineFailure | BadAnswer | CapIgnored) -> None:
        if isinstance(error, CapIgnored):
            self.ending = Ending(how=How.CUT, cut=Outcome.CAP_CUT)
            return
        self.failure = error if isinstance(error, EngineFailure) else EngineFailure("died", "", str(error))
        if not self._has_its_end():
            self.ending = Ending(how=How.FAILED, failure=self.failure.kind)

    async def close(self) -> None:
        """Settled, durably, when this returns; or handed to the background, where the engine is still at work for nobody."""
        if self._unfinished is not None:
            self.services.drains.spawn(self._drain(self._unfinished))
            return
        closing = settle_at_once(self)
        await (asyncio.shield(self.services.background.spawn(settle(self))) if closing is None else closing)

    async def _drain(self, work: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(self.services.settings.bounds.drain_seconds):
                await asyncio.wait({work})
        except (TimeoutError, asyncio.CancelledError):
            work.cancel()
            await asyncio.wait({work})
        error = None if work.cancelled() else work.exception()
        if work.cancelled():
            await drained_too_long(self)
        elif error is None or isinstance(error, EngineFailure):  # one that failed has nothing more to read either
            self.failure = error
            self.ending = Ending(how=self.ending.how, cut=self.ending.cut, drained=True)
        elif not isinstance(error, BadAnswer | CapIgnored | AgentGone):
            log.error("a call failed inside the gateway", exc_info=error, extra={"fields": {"call": self.call.call_id}})
        await asyncio.shield(self.services.background.spawn(settle(self)))


class Admitted:
    """`async with Admitted(call, services) as reservation`: waits for slot and room. Raises Refused; cancelled while it waits, nothing happened."""

    __slots__ = ("_call", "_reservation", "_services")

    def __init__(self, call: Call, services: Services) -> None:
        self._call = call
        self._services = services

    async def __aenter__(self) -> Reservation:
        call, services, identity = self._call, self._services, self._call.identity
        handle = services.runs.in_flight.enter(call.call_id, identity.campaign.campaign, identity.run.run, identity.key_id)
        reserving = Reserving(call, services)
        try:
            admission = await services.gate.admit(ticket_of(call, services), reserving.command)
        except BaseException:
            identity.run.first_calls.unsent(call.call_id)
            identity.run.telling.unwarn(each.limit.account.key for each in reserving.warned)
            handle.end()
            raise
        self._reservation = reservation = Reservation(call, services, admission, reserving.sent, handle)
        reservation.warning = warning_headers(call, reserving.warned)
        put_on_record(call, reserving.warned, services)
        services.metrics.in_flight_now += 1
        if admission.at_home is not None:
            services.metrics.affinity.labels("home" if admission.at_home else "away").inc()
        reach("reserved")
        return reservation

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._reservation.close()
