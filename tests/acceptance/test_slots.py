"""With one slot and one call at a time a single leak would be the end: for each outcome of a call, and each other way out, nothing is held afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.accounting.usage import Outcome
from tests.acceptance.test_ledger_failures import unwritable
from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.control import OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

ONE = {"concurrent": 1}
LIMITS: Tables = {
    "lanes": {"foreground": {}, "background": {}},
    "run": {**ONE, "requests": 100, "foreground": ONE, "model": {"mock": ONE}},
    "campaign": {**ONE, "output_tokens": 1_000_000},
}
SETTINGS: Tables = {
    "upstreams": {"engine": {"timeouts": {"connect_s": 2, "first_byte_s": 3, "between_chunks_s": 1, "whole_s": 30}}},
    "bounds": {"drain_seconds": 2, "shutdown_seconds": 0},
    "limits": ONE,
}
SLOW = {"gap_ms": 30, "output_tokens": 60}
Way = Callable[["Place", OpenedRun], object]


class Place:
    """One gateway and one engine for all ways that a process survives."""

    def __init__(self, gateway: GatewayProcess, engine: MockProcess) -> None:
        self.gateway, self.engine = gateway, engine

    def ask(self, run: OpenedRun, **body: object) -> RawAnswer:
        return chat_once(self.gateway.port, run.key, **{"max_tokens": 100, **body})

    def begun(self, run: OpenedRun, *, stream: bool = True) -> RawClient:
        """A call that the engine is at work on."""
        before = len(self.engine.calls())
        client = RawClient(self.gateway.port)
        client.chat(run.key, stream=stream, max_tokens=100)
        eventually(lambda: len(self.engine.calls()) > before, "the engine has the call")
        if stream:
            client.read_events(3)
        return client

    def revoke(self, run: OpenedRun) -> None:
        keys = self.gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]
        self.gateway.control.post(f"/v1/keys/{next(key['key_id'] for key in keys if key['lane'] == 'foreground')}/revoke")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("slots")
    policies = {"slots": merged(POLICY, LIMITS), "walled": merged(POLICY, merged(LIMITS, {"run": {"wall_seconds": 1}}))}
    with MockProcess() as engine, GatewayProcess(folder, engine.url, policies=policies, settings=SETTINGS, slots=1) as gateway:
        yield Place(gateway, engine)


def nothing_is_held(gateway: GatewayProcess) -> None:
    def held() -> bool:
        control = gateway.control
        return (control.metric("gateway_in_flight_calls"), record.reserved(gateway), control.get("/v1/status")["upstreams"][0]["busy"]) == (0, 0, 0)

    eventually(held, "gauge, reservations and slots are at nothing", timeout_s=15)


def goes_on(place: Place, run: OpenedRun, lane: str = "background") -> bool:
    """The next call goes at once, on the slot and the account that the last one held."""
    place.engine.script({})
    shown = place.gateway.control.run(run)
    assert shown["in_flight"] == 0
    assert all(limit["reserved"] == 0 for limit in shown["limits"]), shown["limits"]
    answer = chat_once(place.gateway.port, run.keys[lane], max_tokens=2, timeout_s=10)
    assert answer.status == 200
    assert int(answer.headers.get("x-gateway-waited-ms", "0")) < 1000, "it waited for its count at most"
    return True


def answered(script: Tables, **body: object) -> Way:
    def way(place: Place, run: OpenedRun) -> None:
        place.engine.script(script)
        place.ask(run, **body)

    return way


def pooled_connection_was_dead(place: Place, run: OpenedRun) -> None:
    place.engine.script({})
    assert place.ask(run, max_tokens=2).status == 200
    place.engine.script({"die": "reset_before_headers"})
    place.ask(run)


def client_leaves(stream: bool) -> Way:
    def way(place: Place, run: OpenedRun) -> None:
        place.engine.script(SLOW)
        place.begun(run, stream=stream).close()

    return way


def key_is_revoked(stream: bool) -> Way:
    def way(place: Place, run: OpenedRun) -> None:
        place.engine.script(SLOW)
        client = place.begun(run, stream=stream)
        place.revoke(run)
        client.answer()

    return way


def settlement_fails(place: Place, run: OpenedRun) -> None:
    place.engine.script(SLOW)
    client = place.begun(run)
    with unwritable(place.gateway):
        client.answer()
        time.sleep(0.3)
    eventually(lambda: record.reserved(place.gateway) == 0, "it can be written again")


SURVIVED: dict[str, tuple[Outcome, Way]] = {
    "completed": (Outcome.COMPLETED, answered({"output_tokens": 5}, stream=True)),
    "completed whole": (Outcome.COMPLETED, answered({"output_tokens": 5})),
    "length": (Outcome.LENGTH, answered({}, max_tokens=3, stream=True)),
    "ignores its cap": (Outcome.CAP_CUT, answered({"ignore_cap": True, "output_tokens": 400, "usage": "cumulative", "gap_ms": 5}, stream=True, max_tokens=5)),
    "client leaves": (Outcome.CLIENT_CANCELLED, client_leaves(stream=True)),
    "client leaves whole": (Outcome.CLIENT_CANCELLED, client_leaves(stream=False)),
    "client leaves, engine never ends": (Outcome.CLIENT_CANCELLED, lambda place, run: _leaves_for_ever(place, run)),
    "deadline": (Outcome.DEADLINE_CUT, answered(SLOW, stream=True)),
    "deadline whole": (Outcome.DEADLINE_CUT, answered(SLOW)),
    "revoked": (Outcome.CLOSED_CUT, key_is_revoked(stream=True)),
    "revoked whole": (Outcome.CLOSED_CUT, key_is_revoked(stream=False)),
    "refuses": (Outcome.ENGINE_REFUSED, answered({"die": "503"}, stream=True)),
    "fails": (Outcome.ENGINE_ERROR, answered({"die": "500"})),
    "error event": (Outcome.ENGINE_ERROR, answered({"die": "error_event", "die_after": 4}, stream=True)),
    "dies": (Outcome.ENGINE_DIED, answered({"die": "reset", "die_after": 4}, stream=True)),
    "dies whole": (Outcome.ENGINE_DIED, answered({"die": "eof"})),
    "closed": (Outcome.ENGINE_CLOSED, pooled_connection_was_dead),
    "no first byte": (Outcome.ENGINE_TIMEOUT, answered({"die": "hang_before_headers"}, stream=True)),
    "falls silent": (Outcome.ENGINE_TIMEOUT, answered({"die": "hang", "die_after": 4}, stream=True)),
    "falls silent whole": (Outcome.ENGINE_TIMEOUT, answered({"die": "hang"})),
    "not delivered": (Outcome.NOT_DELIVERED, settlement_fails),
}


def _leaves_for_ever(place: Place, run: OpenedRun) -> None:
    """Past `drain_seconds` its connection is closed."""
    place.engine.script({"gap_ms": 500, "output_tokens": 40})
    place.begun(run, stream=False).close()


@pytest.mark.parametrize("name", SURVIVED)
def test_nothing_is_held_after_a_call_however_it_ended(place: Place, name: str) -> None:
    outcome, way = SURVIVED[name]
    policy = "walled" if outcome is Outcome.DEADLINE_CUT else "slots"
    run = place.gateway.opened(f"c-{name.replace(' ', '-').replace(',', '')}", "r", policy=policy)
    way(place, run)
    nothing_is_held(place.gateway)
    last = [row for row in record.calls(place.gateway) if row["campaign"] == run.campaign][-1]
    assert last["outcome"] == outcome
    other = place.gateway.opened(run.campaign, "r2", policy=policy) if outcome is Outcome.DEADLINE_CUT else run
    assert goes_on(place, other)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_nothing_is_held_after_a_process_that_ended_with_a_call(gateways: GatewayMaker, mock_process: MockProcess, end: str, stream: bool) -> None:
    place = Place(gateways(mock_process.url, policy=LIMITS, settings=SETTINGS, slots=1), mock_process)
    mock_process.script({"gap_ms": 30, "output_tokens": 1000})
    run = place.gateway.opened()
    client = place.begun(run, stream=stream)
    getattr(place.gateway, end)()
    client.close()
    place.gateway.start()
    assert record.closed_call(place.gateway)["outcome"] == ENDED[end]
    nothing_is_held(place.gateway)
    assert goes_on(place, run)


ENDED = {"stop": Outcome.SHUTDOWN_CUT, "kill": Outcome.LOST}


def test_no_outcome_is_left_out() -> None:
    assert {outcome for outcome, _ in SURVIVED.values()} | set(ENDED.values()) == set(Outcome)


def test_nothing_is_held_after_a_call_that_never_was(place: Place) -> None:
    """Refused by the guard, for its prompt, for its model; left while it waited, at once, and while it was written."""
    run = place.gateway.opened("c-never", "r", policy="slots")
    place.engine.script(SLOW)
    bad: tuple[dict[str, Any], ...] = ({"model": "other"}, {"n": -1}, {"messages": "none"}, {"max_tokens": "many"})
    assert all(place.ask(run, **body).status in (400, 404) for body in bad)
    holder = place.begun(run)
    for _ in range(10):
        with RawClient(place.gateway.port) as waiting:
            waiting.chat(run.key, stream=True)
            eventually(lambda: place.gateway.control.get("/v1/status")["waiting"]["count"] == 1, "it waits")
        eventually(lambda: place.gateway.control.get("/v1/status")["waiting"]["count"] == 0, "it has left")
    holder.answer()
    for number in range(20):
        client = RawClient(place.gateway.port)
        client.chat(run.key, stream=True, max_tokens=2)
        time.sleep(number / 2000)
        client.reset()
    nothing_is_held(place.gateway)
    assert goes_on(place, run)


def test_nothing_is_held_after_an_engine_that_cannot_be_reached(gateways: GatewayMaker) -> None:
    with MockProcess() as engine:
        port = int(engine.url.rpartition(":")[2])
        place = Place(gateways(engine.url, policy=LIMITS, settings=SETTINGS, slots=1), engine)
        run = place.gateway.opened()
        assert place.ask(run, max_tokens=2).status == 200, "the model's overhead is known from here on"
    assert place.ask(run, stream=True).status == 502
    assert {place.ask(run, stream=stream).status for stream in (True, False)} <= {502, 503}
    assert record.entries(place.gateway, "void") >= 1
    nothing_is_held(place.gateway)
    with MockProcess(port=port) as again:
        eventually(lambda: chat_once(place.gateway.port, run.key, max_tokens=2).status == 200, "the engine is back", every_s=0.2)
        assert goes_on(Place(place.gateway, again), run)


def test_nothing_is_held_after_a_run_or_a_campaign_was_closed_on_a_call(place: Place) -> None:
    place.engine.script({"gap_ms": 30, "output_tokens": 200})
    first, second = (place.gateway.opened("c-closed", name, policy="slots") for name in ("r1", "r2"))
    client = place.begun(first)
    place.gateway.control.close_run(first)
    client.answer()
    nothing_is_held(place.gateway)
    client = place.begun(second)
    place.gateway.control.post("/v1/campaigns/c-closed/close", {"close_seconds": 20})
    client.answer()
    nothing_is_held(place.gateway)
    assert goes_on(place, place.gateway.opened("c-next", "r", policy="slots"))
