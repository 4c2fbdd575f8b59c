"""A control plane as `gateway serve` builds it: the real ledger on a file, the application on a real Unix socket, the client that ships."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gateway.accounting.commands import Reserve, Settle
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.client.control import ControlClient
from gateway.control.api import control_application
from gateway.control.listening import ControlListener
from gateway.control.services import ControlServices
from gateway.control.shelf import PolicyShelf
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.policy.declaration import GatewayLimits
from gateway.runs.in_flight import Handle, InFlight
from gateway.runs.runs import Runs

T = TypeVar("T")

POLICY = """
schema = 1
apis = ["openai.chat"]

[models.small]
counter = "bytes"
overhead_tokens = 10

[lanes.foreground]
[lanes.background]

[call]
output_tokens = 512

[run]
requests = 10

[campaign]
runs = 7
"""


class ControlPlane:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "control" / "gateway.sock"
        self.policies = folder / "policies"
        self.ledger_path = folder / "gateway.ledger"
        self.wakings = 0
        self.why_not_ready: list[str] = []

    async def start(self) -> ControlPlane:
        self.policies.mkdir(exist_ok=True)
        (self.policies / "small.toml").write_text(POLICY)
        self.ledger = Ledger.open(self.ledger_path)
        self.in_flight = InFlight()
        self.runs = Runs(self.ledger, GatewayLimits(), in_flight=self.in_flight, on_change=self._wake)
        self.runs.start()
        self.services = ControlServices(
            runs=self.runs,
            ledger=self.ledger,
            reader=lambda: LedgerReader(self.ledger_path),
            shelf=PolicyShelf(self.policies, lambda _loaded: None),
            data_address=lambda: "http://127.0.0.1:8080",
            gate_view=lambda: {"waiting": 2},
            upstream_view=lambda: [{"upstream": "local", "healthy": True}],
            not_ready=lambda: self.why_not_ready,
            render_metrics=lambda: b"# HELP gateway_calls Calls.\n",
        )
        self.listener = ControlListener(control_application(self.services), self.socket)
        await self.listener.start()
        self.client = ControlClient(self.socket, answer_s=20, call_s=20)
        return self

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await self.listener.stop()
        await self.runs.finish()
        await self.ledger.close()

    async def ask(self, question: Callable[[ControlClient], T]) -> T:
        """The client waits, so it asks from another thread, as another process would."""
        return await asyncio.to_thread(question, self.client)

    async def opened(self, *runs: str, campaign: str = "pilot") -> dict[str, dict[str, object]]:
        await self.ask(lambda client: client.open_campaign(campaign, "small"))
        return {run: await self.ask(lambda client, run=run: client.open_run(campaign, run)) for run in runs}  # type: ignore[misc]

    async def call(self, call_id: str, run: str, key_id: str = "key-x", campaign: str = "pilot") -> Handle:
        """A call as the proxy makes one: entered, then reserved."""
        handle = self.in_flight.enter(call_id, campaign, run, key_id)
        limits = [found.limit for found in self.runs.limits(campaign, run)]
        await self.ledger.post(
            Reserve(
                call_id=call_id,
                at_ms=self.ledger.now_ms(),
                campaign=campaign,
                run=run,
                lane="foreground",
                key_id=key_id,
                model="small",
                upstream="local",
                dialect="openai.chat",
                stream=True,
                accounts=tuple(limit.account for limit in limits),
                amounts=Amounts(requests=1, input_tokens=20, output_tokens=100, concurrent=1),
                prompt_source="bound",
                ceiling=100,
                ceiling_from="asked",
            )
        )
        return handle

    async def settle(self, handle: Handle) -> None:
        """With its own end, or as what cut it."""
        await self.ledger.post(
            Settle(
                call_id=handle.call_id,
                at_ms=self.ledger.now_ms(),
                outcome=handle.cut or Outcome.COMPLETED,
                source=Source.REPORTED,
                usage=Usage(input_tokens=11, output_tokens=7),
                charge=Amounts(requests=1, input_tokens=11, output_tokens=7),
            )
        )
        handle.end()

    def settle_when_cut(self, handle: Handle) -> None:
        handle.on_cut(lambda _outcome: setattr(self, "_settling", asyncio.ensure_future(self.settle(handle))))

    def _wake(self) -> None:
        self.wakings += 1
