"""Two engines that serve one model, over sockets: which gets a call, what becomes of it when one fails, is drained, or is not what it should be."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.root import root as command
from gateway.ledger.reading import LedgerReader
from tests.support import record
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually

LIMITS: Any = {"apis": ["openai.chat"], "models": {"mock": {"default_output_tokens": 16}}}
POLICIES: Any = {
    "refuse": {**LIMITS, "identity": {"mismatch": "refuse"}},
    "brief": {**LIMITS, "admission": {"queue_seconds": 1}},
    "tokens": {**LIMITS, "campaign": {"output_tokens": 2_600}},
}
AFFINITY_MS = 400


class Pair:
    """A gateway over engines `one` and `two`, with two slots each."""

    def __init__(self, stack: ExitStack, folder: Path, **bounds: int) -> None:
        self.mocks = {name: stack.enter_context(MockProcess(script={"default": {"output_tokens": 4}})) for name in ("one", "two")}
        upstreams: Any = {name: {"address": mock.url, "engine": "llama.cpp", "slots": 2, "models": {"mock": "mock"}} for name, mock in self.mocks.items()}
        settings: Any = {"upstreams": upstreams, "bounds": {"affinity_wait_ms": AFFINITY_MS, **bounds}}
        self.gateway = stack.enter_context(
            GatewayProcess(folder, self.mocks["one"].url, policies=POLICIES, settings=settings, models={"elsewhere": "elsewhere"})
        )

    def standing(self, name: str) -> str:
        return str(self.view(name)["standing"])

    def view(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(view for view in self.gateway.control.get("/v1/status")["upstreams"] if view["upstream"] == name)
        return found

    def call(self, run: OpenedRun, **body: object) -> tuple[int, str, str]:
        """Status, upstream, code of the error."""
        answer = chat_once(self.gateway.port, run.key, model="mock", max_tokens=4, **body)  # type: ignore[arg-type]
        code = str(answer.json()["error"].get("code", "")) if answer.status != 200 else ""
        rows = [row for row in record.calls(self.gateway) if row["call_id"] == answer.headers["x-request-id"]]
        return answer.status, rows[0]["upstream"] if rows else "", code

    def plain(self) -> None:
        for mock in self.mocks.values():
            mock.script({"default": {"output_tokens": 4}})
            mock.clear()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, tmp_path_factory.mktemp("several"))


@pytest.fixture
def pair(place: Pair) -> Iterator[Pair]:
    place.plain()
    yield place
    place.plain()
    for name in place.mocks:
        place.gateway.control.post(f"/v1/upstreams/{name}/resume")
    eventually(lambda: place.standing("one") == place.standing("two") == "serves", "both serve again")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, tmp_path)


def test_a_run_stays_at_its_engine_and_runs_are_spread_over_both(pair: Pair) -> None:
    runs = [pair.gateway.opened("spread", f"r{number}") for number in range(4)]
    first = [pair.call(run)[1] for run in runs]
    assert sorted(first) == ["one", "one", "two", "two"]
    for _ in range(2):
        assert [pair.call(run)[1] for run in reversed(runs)] == first[::-1]
    assert pair.gateway.control.metric("gateway_affinity_total", result="home") >= 8


def test_a_run_whose_engine_is_full_goes_to_the_other_when_it_has_waited_and_the_record_says_so(pair: Pair) -> None:
    run, others = pair.gateway.opened("away", "r1"), [pair.gateway.opened("away", f"full{number}") for number in range(2)]
    _, home, _ = pair.call(run)
    other = "two" if home == "one" else "one"
    pair.gateway.control.post(f"/v1/upstreams/{other}/drain")
    with ThreadPoolExecutor(4) as pool:
        pair.mocks[home].script({"default": {"output_tokens": 4, "prefill_ms": 2_500}})
        full = [pool.submit(pair.call, one) for one in others]
        eventually(lambda: pair.view(home)["busy"] == 2, "its home is full")
        pair.gateway.control.post(f"/v1/upstreams/{other}/resume")
        waits = pool.submit(pair.call, run)
        eventually(
            lambda: any(one["reason"] == "home" for one in pair.gateway.control.get("/v1/status")["waiting"]["calls"]), "it waits for its home", every_s=0.01
        )
        assert waits.result() == (200, other, "")
        assert [one.result()[1] for one in full] == [home, home]
    [row] = [row for row in record.calls(pair.gateway) if row["run"] == "r1" and row["campaign"] == "away"][1:]
    assert AFFINITY_MS <= row["waited_ms"] < 2_400
    with LedgerReader(pair.gateway.ledger) as reader:
        [reserve] = [
            json.loads(str(one["body"])) for one in reader.query("SELECT body FROM journal WHERE kind = 'reserve' AND call_id = :call", call=row["call_id"])
        ]
    decision = reserve["details"]["decision"]
    assert decision["away"] is True and decision["queue"] == {"position": 0, "slot_ms": row["waited_ms"]}


Calls = Callable[..., "Future[RawAnswer]"]


@pytest.mark.parametrize(("policy", "output"), [("test", 4), ("tokens", 1_000)], ids=["slots", "campaign_tokens"])
def test_a_flood_over_two_engines_delays_another_run_s_one_call_by_one_turn(pair: Pair, policy: str, output: int) -> None:
    for mock in pair.mocks.values():
        mock.script({"default": {"output_tokens": 4, "gap_ms": 5, "prefill_ms": 20}})
    flooding, lone = (pair.gateway.opened(f"flood-{policy}", name, policy=policy) for name in ("flood", "lone"))

    def ask(run: OpenedRun) -> RawAnswer:
        return chat_once(pair.gateway.port, run.key, model="mock", max_tokens=output)

    def waiting() -> int:
        return int(pair.gateway.control.get("/v1/status")["waiting"]["count"])

    with ThreadPoolExecutor(60) as pool:
        flood = [pool.submit(ask, flooding) for _ in range(50)]
        eventually(lambda: waiting() >= 25, "the flood waits", every_s=0.005)
        answer = pool.submit(ask, lone).result()
        assert answer.status == 200, answer.body
        assert [one.result().status for one in flood] == [200] * 50
    rows = [row for row in record.calls(pair.gateway) if row["campaign"] == f"flood-{policy}"]
    [own] = [row for row in rows if row["run"] == "lone"]
    came_ms = own["admitted_ms"] - own["waited_ms"]
    between = [row for row in rows if row["run"] == "flood" and came_ms < row["admitted_ms"] and row["reserve_number"] < own["reserve_number"]]
    assert len(between) <= 1, "one slot's turn, at most"
    assert sum(row["reserve_number"] > own["reserve_number"] for row in rows) >= 12, "the flood had not ended by itself"


def test_an_engine_that_is_gone_gets_no_calls_and_has_them_again_when_it_is_back(own: Pair) -> None:
    runs = [own.gateway.opened("gone", f"r{number}") for number in range(2)]
    [first, second] = [own.call(run)[1] for run in runs]
    assert {first, second} == {"one", "two"}
    own.mocks[first].process.kill()
    status, _, code = own.call(runs[0])
    assert (status, code) in [(502, "engine_unreachable"), (200, "")], "the first to find it so is told to try again"
    assert [own.call(run)[:2] for run in runs] == [(200, second)] * 2
    assert own.standing(first) == "unhealthy"
    assert own.gateway.control.get("/readyz")["ready"] is True, "each model has an engine"
    own.mocks[second].process.kill()
    own.call(runs[0])
    assert own.call(runs[0]) == (503, "", "engine_unavailable")
    assert [own.gateway.control.metric("gateway_upstream_up", upstream=name) for name in own.mocks] == [0, 0]
    port = int(own.mocks[first].url.rpartition(":")[2])
    with MockProcess(port=port, script={"default": {"output_tokens": 4}}):
        eventually(lambda: own.standing(first) == "serves", "it is back")
        assert own.call(runs[1])[:2] == (200, first)
    with LedgerReader(own.gateway.ledger) as reader:
        voids = [row for row in reader.calls() if row["status"] == "voided"]
    assert all(row["run"] == "r0" for row in voids), "a refused connection is a void, and nothing was tried twice"
    assert len({row["call_id"] for row in record.calls(own.gateway)}) == len(record.calls(own.gateway))


def test_a_drained_engine_ends_what_it_does_and_gets_nothing_new(pair: Pair) -> None:
    run, other = (pair.gateway.opened("drain", name) for name in ("r1", "r2"))
    _, home, _ = pair.call(run)
    away = "two" if home == "one" else "one"
    pair.mocks[home].script({"default": {"output_tokens": 4, "prefill_ms": 1_500}})
    socket = ["--socket", pair.gateway.process.ready["control"].removeprefix("unix:")]
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(pair.call, run)
        eventually(lambda: pair.view(home)["busy"] == 1, "it runs")
        drained = CliRunner().invoke(command, ["upstream", "drain", home, *socket, "--json"])
        assert drained.exit_code == 0 and json.loads(drained.stdout)["standing"] == "drained", drained.output
        assert [pair.call(one)[:2] for one in (run, other)] == [(200, away)] * 2
        assert running.result()[:2] == (200, home)
    assert CliRunner().invoke(command, ["upstream", "drain", away, *socket]).exit_code == 0
    assert pair.call(run) == (503, "", "engine_unavailable")
    listed = CliRunner().invoke(command, ["upstream", "list", *socket])
    assert listed.exit_code == 0 and listed.output.count("drained") >= 2
    status, ready = pair.gateway.control.raw("GET", "/readyz")
    assert status == 503 and "model mock" in json.loads(ready)["not_ready"][0]
    assert CliRunner().invoke(command, ["upstream", "resume", home, *socket]).exit_code == 0
    pair.mocks[home].script({"default": {"output_tokens": 4}})
    assert pair.call(run)[:2] == (200, home)
    refused = CliRunner().invoke(command, ["upstream", "drain", "three", *socket])
    assert refused.exit_code == 5 and "no upstream 'three'" in refused.output


def test_who_waits_while_no_engine_takes_calls_goes_when_one_does(pair: Pair) -> None:
    run = pair.gateway.opened("recheck", "r1")
    blockers = [pair.gateway.opened("recheck", f"b{number}") for number in range(4)]
    for mock in pair.mocks.values():
        mock.script({"default": {"output_tokens": 4, "prefill_ms": 1_000}})
    with ThreadPoolExecutor(6) as pool:
        full = [pool.submit(pair.call, one) for one in blockers]
        eventually(lambda: pair.view("one")["busy"] + pair.view("two")["busy"] == 4, "all slots are taken")
        waits = pool.submit(pair.call, run)
        eventually(lambda: pair.gateway.control.get("/v1/status")["waiting"]["count"] == 1, "it waits")
        for name in pair.mocks:
            pair.gateway.control.post(f"/v1/upstreams/{name}/drain")
        assert [one.result()[0] for one in full] == [200] * 4
        [view] = pair.gateway.control.get("/v1/status")["waiting"]["calls"]
        assert (view["reason"], view["engine"], view["position"]) == ("engine", "one, two", 0)
        pair.gateway.control.post("/v1/upstreams/two/resume")
        assert waits.result()[:2] == (200, "two")


def test_calls_that_fail_in_a_row_open_the_circuit_and_one_that_goes_well_closes_it(pair: Pair) -> None:
    pair.gateway.control.post("/v1/upstreams/two/drain")
    runs = [pair.gateway.opened("fails", f"r{number}") for number in range(2)]
    pair.mocks["one"].script({"default": {"die": "500"}})
    assert [pair.call(runs[0])[0] for _ in range(6)] == [500] * 6
    assert pair.standing("one") == "serves", "one run alone may be what the engine chokes on"
    assert pair.call(runs[1])[0] == 500
    assert pair.standing("one") in ("open", "tried")
    assert "calls in a row failed" in pair.view("one")["reason"]
    assert pair.gateway.control.metric("gateway_upstream_standing", standing="serves", upstream="one") == 0
    if pair.standing("one") == "open":
        assert pair.call(runs[1])[::2] == (503, "engine_unavailable")
    pair.mocks["one"].script({"default": {"output_tokens": 4}})
    eventually(lambda: pair.standing("one") == "tried", "its health path answers well: one call is let through", timeout_s=20)
    assert pair.call(runs[1])[:2] == (200, "one")
    assert pair.standing("one") == "serves"


def test_an_engine_that_answers_as_another_model_is_marked_and_where_the_policy_says_so_refused(pair: Pair) -> None:
    pair.gateway.control.post("/v1/upstreams/two/drain")
    answer = {
        "id": "x",
        "object": "chat.completion",
        "model": "another",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
    }
    whole = json.dumps({**answer, "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}})
    pair.mocks["one"].script({"default": {"raw": whole, "raw_type": "application/json"}})
    marked = pair.gateway.opened("marked", "r1")
    assert pair.call(marked)[0] == 200
    [row] = [row for row in record.calls(pair.gateway) if row["campaign"] == "marked"]
    assert "model_mismatch" in row["flags"]
    assert pair.view("one")["mismatch"] == {"mock": "declared as mock, and it answers as another"}
    assert pair.gateway.control.metric("gateway_model_mismatch_total", model="mock", upstream="one") >= 1
    refused = pair.gateway.opened("refused", "r1", policy="refuse")
    assert pair.call(refused) == (503, "", "engine_unavailable")
    assert pair.call(marked)[0] == 200, "what one policy refuses another marks"
    pair.gateway.control.post("/v1/upstreams/two/resume")
    assert pair.call(refused)[:2] == (200, "two")


def test_an_engine_that_lists_another_model_is_refused_before_a_call_is_sent(own: Pair) -> None:
    for mock in own.mocks.values():
        mock.script({"default": {"output_tokens": 4}, "served": ["other"], "context_tokens": 4_096})
    for name in own.mocks:
        own.gateway.control.post(f"/v1/upstreams/{name}/resume")
    eventually(lambda: all(own.view(name)["mismatch"] for name in own.mocks), "they were asked anew")
    assert own.view("one")["mismatch"] == {"mock": "declared as mock, and it lists other"}
    refused = own.gateway.opened("refused", "r1", policy="refuse")
    assert own.call(refused) == (503, "", "engine_unavailable")
    assert not any(mock.calls() for mock in own.mocks.values())
    assert own.call(own.gateway.opened("marked", "r1"))[0] == 200


def test_the_fingerprint_stands_in_the_ledger_when_a_run_opens_and_when_it_changes(own: Pair) -> None:
    own.gateway.opened("prints", "r1")

    def prints() -> list[dict[str, Any]]:
        with LedgerReader(own.gateway.ledger) as reader:
            return [
                json.loads(str(row["body"]))
                for row in reader.query("SELECT body FROM journal WHERE kind = 'fingerprint' AND json_extract(body, '$.campaign') = 'prints'")
            ]

    assert {one["upstream"] for one in prints()} >= {"one", "two"}
    assert all({"model", "context_tokens", "slots", "gateway_slots", "build", "template_sha256", "model_sha256"} <= one["details"].keys() for one in prints())
    before = len(prints())
    own.mocks["two"].script({"default": {"output_tokens": 4}, "context_tokens": 2_048})
    own.gateway.control.post("/v1/upstreams/two/resume")
    eventually(lambda: len(prints()) == before + 1, "the change stands on record")
    assert (prints()[-1]["upstream"], prints()[-1]["details"]["context_tokens"]) == ("two", 2_048)


def test_a_wrong_health_path_is_told_and_the_engine_goes_on_serving(tmp_path: Path) -> None:
    with MockProcess(script={"default": {"output_tokens": 4}}) as mock:
        settings: Any = {"upstreams": {"engine": {"health_path": "/healthz"}}}
        with GatewayProcess(tmp_path, mock.url, settings=settings) as gateway:
            [view] = gateway.control.get("/v1/status")["upstreams"]
            assert (view["standing"], view["health"], view["wrong_health_path"]) == ("serves", "healthy", True)
            assert "/healthz answers 404" in view["reason"] and "set health_path" in view["reason"]
            assert gateway.control.metric("gateway_upstream_wrong_health_path", upstream="engine") == 1
            assert chat_once(gateway.port, gateway.opened().key, model="mock", max_tokens=2).status == 200
            assert gateway.control.get("/readyz")["ready"] is True
            assert "/healthz" in gateway.process.output


def test_a_call_that_died_is_not_sent_to_the_other_engine(pair: Pair) -> None:
    """Once a byte may have reached an engine nothing is sent again."""
    for mock in pair.mocks.values():
        mock.script({"default": {"die": "eof_before_headers"}})
    run = pair.gateway.opened("once", "r1")
    assert pair.call(run)[0] == 502
    assert sum(len(mock.calls()) for mock in pair.mocks.values()) == 1


def test_a_second_signal_cuts_the_calls_at_both_engines_at_once(own: Pair) -> None:
    for mock in own.mocks.values():
        mock.script({"default": {"output_tokens": 500, "gap_ms": 100}})
    runs = [own.gateway.opened("cut", f"r{number}") for number in range(2)]
    with RawClient(own.gateway.port) as first, RawClient(own.gateway.port) as second:
        for client, run in zip((first, second), runs, strict=True):
            client.chat(run.key, model="mock", stream=True, max_tokens=500)
            client.read_events(2)
        assert {own.view(name)["busy"] for name in own.mocks} == {1}
        own.gateway.process.signal(signal.SIGTERM)
        eventually(lambda: '"stopping"' in own.gateway.process.output, "it stops, and lets calls end")
        own.gateway.process.signal(signal.SIGTERM)
        assert own.gateway.process.wait(timeout_s=10) == 0
    with LedgerReader(own.gateway.ledger) as reader:
        assert [row["outcome"] for row in reader.calls()] == ["shutdown_cut"] * 2
