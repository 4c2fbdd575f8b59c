"""A campaign is served from the policy version with which it was opened: files are rewritten, read anew, made wrong and taken away while its calls run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support import record, sse
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.toml import Tables, merged, to_toml
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    mock.script({})
    mock.clear()


def version(requests: int, output: int) -> Tables:
    return merged(POLICY, {"run": {"requests": requests}, "call": {"output_tokens": output}, "campaign": {"runs": requests}})


def serving(folder: Path, mock: MockProcess, **more: Any) -> GatewayProcess:
    return GatewayProcess(folder, mock.url, policies={"moving": version(3, 8)}, **more)


def reload_by_control(gateway: GatewayProcess) -> None:
    gateway.control.post("/v1/policies/reload")


def reload_by_signal(gateway: GatewayProcess) -> None:
    before = gateway.process.output.count("policies were reloaded")
    gateway.process.signal(signal.SIGHUP)
    eventually(lambda: gateway.process.output.count("policies were reloaded") > before, "it is read anew")


def spent(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> tuple[int, int]:
    """How many more calls go, and with which ceiling."""
    answers = [chat_once(gateway.port, run.key, max_tokens=100) for _ in range(10)]
    went = {answer.headers["x-request-id"] for answer in answers if answer.status == 200}
    ceilings = {json.loads(call["body"])["max_tokens"] for call in mock.calls() if call["request_id"] in went}
    assert [answer.status for answer in answers] == [200] * len(went) + [404] * (10 - len(went)) and len(ceilings) == 1
    return len(went), ceilings.pop()


@pytest.mark.parametrize("reload", [reload_by_control, reload_by_signal])
def test_a_campaign_keeps_its_version_while_its_calls_run_and_another_serves_beside_it(tmp_path: Path, mock: MockProcess, reload: Any) -> None:
    with serving(tmp_path, mock) as gateway:
        old = gateway.opened("old", "r1", policy="moving")
        waiting = gateway.opened("old", "r2", policy="moving")
        mock.script([{"gap_ms": 150}])
        with RawClient(gateway.port) as running:
            running.chat(old.key, stream=True, max_tokens=100)
            running.read_events(3)
            gateway.write_policy("moving", version(5, 16))
            reload(gateway)
            new = gateway.opened("new", "r1", policy="moving")
            assert spent(gateway, mock, new) == (5, 16)
            assert sse.finish_reason(running.answer().body) == "length", "it ended as it had begun"
        assert mock.calls()[0]["output_tokens"] == 8
        assert spent(gateway, mock, old) == (2, 8), "one of three was running"
        assert spent(gateway, mock, waiting) == (3, 8), "opened before, first called after"
        assert spent(gateway, mock, gateway.control.open_run("old", "r3")) == (3, 8), "and one that was opened after"
        with pytest.raises(ControlAnswered) as full:
            gateway.control.open_run("old", "r4")
        assert "campaign.runs is 3" in str(full.value.body), "its limit on runs is the old one too"
        with pytest.raises(ControlAnswered) as other:
            gateway.control.open_campaign("old", "moving")
        assert other.value.status == 409, "another version is another campaign"


def test_a_campaign_is_served_though_its_file_is_wrong_or_gone_and_the_gateway_begins_again(tmp_path: Path, mock: MockProcess) -> None:
    with serving(tmp_path, mock) as gateway:
        run = gateway.opened("old", "r1", policy="moving")
        assert chat_once(gateway.port, run.key, max_tokens=100).status == 200
        told = gateway.control.get("/v1/campaigns/old")["policy_hash"]
        gateway.write_policy("moving", {"apis": ["openai.chat"], "daily_call_budget": 3})
        gateway.kill()
        gateway.start()
        assert chat_once(gateway.port, run.key, max_tokens=100).status == 200
        (gateway.folder / "policies" / "moving.toml").unlink()
        assert gateway.stop() == 0
        gateway.start()
        assert spent(gateway, mock, run) == (1, 8)
        assert spent(gateway, mock, gateway.control.open_run("old", "r2")) == (3, 8)
        assert gateway.control.get("/v1/campaigns/old")["policy_hash"] == told
        assert gateway.stop() == 0
        assert record.fits(gateway)


def test_each_opening_names_the_hash_of_its_policy_and_of_its_effective_limits(tmp_path: Path, mock: MockProcess) -> None:
    with serving(tmp_path, mock) as gateway:
        gateway.opened("one", "r1", policy="moving")
        gateway.control.open_run("one", "r2")
        gateway.opened("two", "r1", policy="moving")
        gateway.write_policy("moving", version(4, 8))
        reload_by_control(gateway)
        gateway.opened("three", "r1", policy="moving")
        assert gateway.stop() == 0
        gateway.config.write_text(gateway.config.read_text() + to_toml({"limits": {"requests": 1_000}}))
        gateway.start()
        gateway.control.open_run("one", "r3")
        assert gateway.stop() == 0
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT body FROM journal WHERE kind = 'open_run' ORDER BY number")
    openings = {(body["campaign"], body["run"]): (body["policy_hash"], body["limits_hash"]) for body in (json.loads(str(row["body"])) for row in rows)}
    assert all(len(each) == 64 for hashes in openings.values() for each in hashes)
    first = openings["one", "r1"]
    assert openings["one", "r2"] == openings["two", "r1"] == first, "the same version, the same limits"
    assert openings["three", "r1"][0] != first[0] and openings["three", "r1"][1] != first[1]
    assert openings["one", "r3"][0] == first[0] and openings["one", "r3"][1] != first[1], "the gateway's own limits are other ones now"
