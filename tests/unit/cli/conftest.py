"""A real control plane on a real Unix socket over a real ledger file; only engines are missing: calls are written into the books by the test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import click
import pytest
from click.testing import CliRunner, Result

from gateway.accounting.commands import Command, Reserve, Settle
from gateway.accounting.limit import Account, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.cli.root import root
from gateway.control.api import control_application
from gateway.control.listening import ControlListener
from gateway.control.services import ControlServices
from gateway.control.shelf import PolicyShelf
from gateway.ledger.clock import LedgerClock, system_ms
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.policy.declaration import GatewayLimits
from gateway.runs.in_flight import InFlight
from gateway.runs.runs import Runs

T = TypeVar("T")

PILOT = """
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
output_tokens = 4096

[campaign]
runs = 3
"""
DATA_ADDRESS = "http://127.0.0.1:8080"


class House:
    """A gateway without its data plane, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shift_ms = 0
        """How far the machine's clock is set ahead."""
        self.data_address = DATA_ADDRESS
        self.ledger_path = folder / "gateway.ledger"
        self.policies = folder / "policies"
        self.policies.mkdir()
        (self.policies / "pilot.toml").write_text(PILOT)
        self._sockets = Path(tempfile.mkdtemp(prefix="gw-"))
        self.socket = self._sockets / "control"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.ask(self._start())

    def ask(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self.ledger = Ledger.open(self.ledger_path, clock=LedgerClock(system_ms=lambda: system_ms() + self.shift_ms))
        self.runs = Runs(self.ledger, GatewayLimits(), in_flight=InFlight())
        services = ControlServices(
            runs=self.runs,
            ledger=self.ledger,
            reader=lambda: LedgerReader(self.ledger_path),
            shelf=PolicyShelf(self.policies, lambda loaded: None),
            gate_view=dict,
            upstream_view=list,
            not_ready=list,
            render_metrics=lambda: b"",
            data_address=lambda: self.data_address,
        )
        self._listener = ControlListener(control_application(services), self.socket)
        await self._listener.start()

    def post(self, command: Command) -> None:
        async def posted() -> None:
            await self.ledger.post(command)

        self.ask(posted())

    def call(self, campaign: str, run: str, call_id: str, usage: Usage, source: Source = Source.REPORTED, outcome: Outcome = Outcome.COMPLETED) -> None:
        """A call that was sent and settled; what is not known of it is charged as 100 in, 50 out."""
        accounts = tuple(Account(scope=Scope.RUN, subject=f"{campaign}/{run}", quantity=quantity) for quantity in (Quantity.REQUESTS, Quantity.OUTPUT_TOKENS))
        self.post(
            Reserve(
                call_id=call_id,
                at_ms=self.ledger.now_ms(),
                campaign=campaign,
                run=run,
                lane="foreground",
                key_id="key-0",
                model="small",
                upstream="engine",
                dialect="openai.chat",
                stream=True,
                accounts=accounts,
                amounts=Amounts(requests=1, input_tokens=100, output_tokens=50, concurrent=1),
                prompt_source="bound",
                ceiling=50,
                ceiling_from="call.output_tokens",
            )
        )
        known = (100 if usage.input_tokens is None else usage.input_tokens, 50 if usage.output_tokens is None else usage.output_tokens)
        charge = Amounts(requests=1, input_tokens=known[0], output_tokens=known[1])
        self.post(Settle(call_id=call_id, at_ms=self.ledger.now_ms(), outcome=outcome, source=source, usage=usage, charge=charge))

    def stop(self) -> None:
        self.ask(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        shutil.rmtree(self._sockets)

    async def _stop(self) -> None:
        await self._listener.stop()
        await self.runs.finish()
        await self.ledger.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.stop()


Gateway = Callable[..., Result]


@pytest.fixture
def gateway(house: House) -> Gateway:
    """`gateway("run", "list")` as a person at a pipe would type it, with this house's socket."""

    def typed(*arguments: str) -> Result:
        return CliRunner().invoke(root, list(arguments), env={"GATEWAY_SOCKET": str(house.socket)})

    return typed


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """The same where no gateway runs, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_SOCKET", raising=False)
    return lambda *arguments: CliRunner().invoke(root, list(arguments))


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree by its words, groups left out."""

    def below(words: tuple[str, ...], command: click.Command) -> list[tuple[tuple[str, ...], click.Command]]:
        if isinstance(command, click.Group):
            return [found for name, each in command.commands.items() for found in below((*words, name), each)]
        return [(words, command)]

    return below((), root)
