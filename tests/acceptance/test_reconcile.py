"""A live gateway's ledger against what a driver wrote down of the same calls: all equal or explained; what went past the gateway rings."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.root import root
from gateway.client import DispatchWriter, usage_of
from tests.support.control import OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

LIMITED: Tables = {"run": {"requests": 3}}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess(script={"output_tokens": 4}) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    policies = {"free": POLICY, "limited": merged(POLICY, LIMITED)}
    with GatewayProcess(tmp_path_factory.mktemp("reconciled"), mock.url, policies=policies, slots=8) as process:
        yield process


def typed(gateway: GatewayProcess, *words: str) -> Result:
    return CliRunner().invoke(root, ["reconcile", *words], env={"GATEWAY_SOCKET": gateway.process.ready["control"].removeprefix("unix:")})


def classes(done: Result) -> dict[str, int]:
    told: dict[str, Any] = json.loads(done.stdout)
    return {name: of["count"] for name, of in told["classes"].items()}


def asked(gateway: GatewayProcess, run: OpenedRun, record: DispatchWriter, question: str) -> RawAnswer:
    """One call, noted as a driver notes it."""
    answer = chat_once(gateway.port, run.keys["foreground"], messages=[{"role": "user", "content": question}], headers={"X-Session-Id": "driver-1"})
    noted(record, answer.json() if answer.status == 200 else {}, answer.headers.get("x-request-id", ""), answer.status)
    return answer


def noted(record: DispatchWriter, answer: dict[str, Any], request: str, status: int) -> None:
    record.note(
        "answer" if status == 200 else "error",
        response_id=str(answer.get("id", "")),
        request_ids=[request] if request else [],
        session_ids=["driver-1"],
        usage=usage_of(answer),
        model="mock",
        status=status,
    )


def past_the_gateway(mock: MockProcess) -> dict[str, Any]:
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "psst"}]}).encode()
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        urllib.request.Request(f"{mock.url}/v1/chat/completions", body, {"Content-Type": "application/json"}), timeout=30
    ) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def metrics(mock: MockProcess, file: Path) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{mock.url}/metrics", timeout=30) as answer:
        file.write_bytes(answer.read())
    return str(file)


def test_a_run_that_was_refused_at_its_end_is_explained_and_its_engine_counted_the_same(gateway: GatewayProcess, mock: MockProcess, tmp_path: Path) -> None:
    run = gateway.opened("limited", "r1", policy="limited")
    before = metrics(mock, tmp_path / "before.txt")
    with DispatchWriter(tmp_path / "driver.jsonl", "driver", session="s") as record:
        statuses = [asked(gateway, run, record, f"question {number}").status for number in range(5)]
    assert statuses == [200, 200, 200, 404, 404]
    after = metrics(mock, tmp_path / "after.txt")
    done = typed(gateway, "limited/r1", "--records", str(tmp_path), "--engine-metrics", before, after, "--json")
    assert done.exit_code == 0, done.output
    assert classes(done) == {"equal": 3, "refused": 2}
    told = json.loads(done.stdout)
    assert told["matched_by"] == {"request_id": 2, "response_id": 3}
    assert [each["says"] for each in told["witnesses"] if each["what"] == "output"] == ["agrees"]


def test_a_client_that_left_and_a_call_that_nobody_wrote_down(gateway: GatewayProcess, mock: MockProcess, tmp_path: Path) -> None:
    run = gateway.opened("left", "r1", policy="free")
    with DispatchWriter(tmp_path / "driver.jsonl", "driver", session="s") as record:
        asked(gateway, run, record, "first")
        mock.queue({"output_tokens": 400, "gap_ms": 20})
        with RawClient(gateway.port) as client:
            client.chat(run.keys["foreground"], stream=True, messages=[{"role": "user", "content": "long"}])
            client.read_events(2)
            client.reset()
        asked(gateway, run, record, "last")
    eventually(lambda: gateway.control.get("/v1/status")["in_flight"] == 0, "the call that was left is settled")
    done = typed(gateway, "left/r1", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    assert classes(done) == {"equal": 2, "client_aborted": 1}

    chat_once(gateway.port, run.keys["foreground"], messages=[{"role": "user", "content": "unwritten"}])
    lost = typed(gateway, "left/r1", str(tmp_path), "--json")
    assert lost.exit_code == 1 and classes(lost)["record_lost"] == 1


def as_an_engine_answers(ident: str, output: int) -> dict[str, object]:
    """With an id as llama.cpp makes them: the scripted engine's own are short, and by such nobody is accused."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "so it is"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": output, "total_tokens": 9 + output}
    answer = {"id": ident, "object": "chat.completion", "created": 1, "model": "mock", "choices": [choice], "usage": usage}
    return {"raw": [json.dumps(answer)], "raw_type": "application/json"}


def test_an_answer_that_came_past_the_gateway_rings_the_alarm(gateway: GatewayProcess, mock: MockProcess, tmp_path: Path) -> None:
    run = gateway.opened("bypassed", "r1", policy="free")
    mock.queue(as_an_engine_answers("chatcmpl-Qx7Lb2mVt9ZaKc4Rj8WnYe5Hd1Gf3PoU", 11), as_an_engine_answers("chatcmpl-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY", 12))
    with DispatchWriter(tmp_path / "driver.jsonl", "driver", session="s") as record:
        asked(gateway, run, record, "by the gateway")
        noted(record, past_the_gateway(mock), "", 200)
    done = typed(gateway, "bypassed/r1", str(tmp_path))
    assert done.exit_code == 1
    assert "ALARM" in done.stdout and "1 of them foreign" in done.stdout
    told = json.loads(typed(gateway, "--campaign", "bypassed", str(tmp_path), "--json").stdout)
    assert {name: of["count"] for name, of in told["classes"].items()} == {"equal": 1, "foreign": 1}


def test_an_answer_past_the_gateway_with_an_id_that_says_nothing_is_unexplained_all_the_same(
    gateway: GatewayProcess, mock: MockProcess, tmp_path: Path
) -> None:
    run = gateway.opened("short", "r1", policy="free")
    with DispatchWriter(tmp_path / "driver.jsonl", "driver", session="s") as record:
        asked(gateway, run, record, "by the gateway")
        mock.queue({"output_tokens": 321})
        noted(record, past_the_gateway(mock), "", 200)
    done = typed(gateway, "short/r1", str(tmp_path), "--json")
    assert done.exit_code == 1 and classes(done) == {"equal": 1, "unidentified": 1}
