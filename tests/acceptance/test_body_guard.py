"""The guard of bodies as a black box: what it refuses is named, on record as a refusal, and never at the engine; size and shape cost bounded memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.barred import GUARDED
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT, RawAnswer
from tests.support.waiting import eventually
from tests.support.wire import Wire, chunked, request

MAX_BODY = 4 << 20
MAX_KEYS = 20_000


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    settings = {"bounds": {"max_body_bytes": MAX_BODY, "max_keys": MAX_KEYS}}
    with GatewayProcess(tmp_path_factory.mktemp("guard"), mock.url, settings=settings) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


def ask(gateway: GatewayProcess, run: OpenedRun, body: bytes, *, headers: dict[str, str] | None = None) -> RawAnswer:
    with Wire(gateway.port, timeout_s=30) as wire:
        wire.send(request("POST", CHAT, {"x-api-key": run.key, **(headers or {})}, body))
        return wire.answer()


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": kind, **fields}]}]}


def tool(kind: str, **fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": kind, **fields}]}


VALUES: dict[str, Any] = {"store": True, "background": True, "priority": 9, "id_slot": 0, "lora": [{"id": 0, "scale": 1.0}]}
NOT_ALLOWED: dict[str, tuple[dict[str, Any], str]] = {
    **{name: ({name: VALUES.get(name, "x")}, name) for name in GUARDED},
    "a remote picture": (part("image_url", image_url={"url": "https://evil.example/x.png"}), "image_url"),
    "a remote picture as text": (part("image_url", image_url="http://169.254.169.254/latest/meta-data"), "image_url"),
    "a picture in a file": (part("image_url", image_url={"url": "file:///etc/passwd"}), "image_url"),
    "a picture by its path": (part("image_url", image_url={"url": "/etc/passwd"}), "image_url"),
    "a picture without a scheme": (part("image_url", image_url={"url": "//evil.example/x"}), "image_url"),
    "a picture by another scheme": (part("image_url", image_url={"url": "gopher://evil.example/x"}), "image_url"),
    "a picture of Responses": (part("input_image", image_url="https://evil.example/x.png"), "input_image"),
    "a remote sound": (part("audio_url", audio_url={"url": "https://evil.example/x.wav"}), "audio_url"),
    "a remote film": (part("video_url", video_url={"url": "https://evil.example/x.mp4"}), "video_url"),
    "a file by its id": (part("file", file={"file_id": "file-1"}), "file_id"),
    "a file by its address": (part("input_file", file_url="https://evil.example/x.pdf"), "input_file"),
    "an unknown part with an address": (part("hologram", url="https://evil.example/x"), "content"),
    "a search of the web": (tool("web_search"), "tools"),
    "a search of the web, dated": (tool("web_search_preview_2025_03_11"), "tools"),
    "code to be run": (tool("code_interpreter", container={"type": "auto"}), "tools"),
    "files to be searched": (tool("file_search", vector_store_ids=["vs_1"]), "tools"),
    "a server of tools": (tool("mcp", server_label="x", server_url="https://evil.example/sse"), "tools"),
    "a computer": (tool("computer_use_preview"), "tools"),
    "a shell": (tool("local_shell"), "tools"),
    "a tool of a type that is unknown": (tool("anything_new"), "tools"),
}


@pytest.fixture(scope="module")
def refusals(gateway: GatewayProcess, mock: MockProcess) -> tuple[OpenedRun, dict[str, RawAnswer]]:
    """One after another in one run, whose refusals are then counted."""
    run = gateway.opened("guarded", "r1")
    mock.clear()
    answers = {}
    for name, (body, _) in NOT_ALLOWED.items():
        whole = {"model": "mock", "messages": [{"role": "user", "content": "hi"}], **body}
        answers[name] = ask(gateway, run, json.dumps(whole).encode())
    return run, answers


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_what_would_make_the_engine_act_is_refused_and_named(refusals: tuple[OpenedRun, dict[str, RawAnswer]], name: str) -> None:
    answer = refusals[1][name]
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "not_allowed", NOT_ALLOWED[name][1]), answer.body
    assert NOT_ALLOWED[name][1] in error["message"] and "guard." in error["message"]
    assert answer.headers["x-should-retry"] == "false" and "retry-after" not in answer.headers


def test_none_of_it_reached_the_engine_and_all_of_it_is_on_record(
    gateway: GatewayProcess, mock: MockProcess, refusals: tuple[OpenedRun, dict[str, RawAnswer]]
) -> None:
    run, answers = refusals
    assert mock.calls() == []
    assert not [record for record in mock.log() if record["path"] == "/apply-template" and "evil" in record["body"]]
    wanted = [field for _, field in NOT_ALLOWED.values()][:20]  # then they are summed
    eventually(lambda: refused_fields(gateway, run) == wanted, "the first twenty stand singly")
    assert gateway.control.metric("gateway_refusals_total", code="not_allowed") >= len(answers)
    gateway.control.close_run(run)
    with LedgerReader(gateway.ledger) as reader:
        (row,) = reader.query("SELECT sum(refused) AS number FROM refusals WHERE campaign = :campaign AND code = 'not_allowed'", campaign=run.campaign)
    assert row["number"] == len(answers)


def refused_fields(gateway: GatewayProcess, run: OpenedRun) -> list[str]:
    """Of the refusals that stand in the ledger singly."""
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT body FROM journal WHERE kind = 'refuse' ORDER BY number")
    bodies = [json.loads(str(row["body"])) for row in rows]
    return [body["field"] for body in bodies if body.get("campaign") == run.campaign]


HARMLESS: list[dict[str, Any]] = [
    part("image_url", image_url={"url": "data:image/png;base64,iVBORw0KGgo="}),
    tool("function", function={"name": "web_search", "parameters": {"type": "object", "properties": {"url": {"type": "string"}}}}),
    {"store": False, "previous_response_id": None, "id_slot": -1, "lora": [], "background": False},
    {"messages": [{"role": "user", "content": "read https://evil.example/x and file:///etc/passwd"}]},
]


@pytest.mark.parametrize("body", HARMLESS, ids=lambda body: str(body)[:50])
def test_what_only_looks_like_it_passes(gateway: GatewayProcess, run: OpenedRun, body: dict[str, Any]) -> None:
    answer = ask(gateway, run, json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, **body}).encode())
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("model", ["other", "mock ", "MOCK", "mock:latest", "../mock", "x" * 5_000, "\ud800", "mock\x00"])
def test_a_model_that_is_not_declared_is_404_by_name(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, model: str) -> None:
    mock.clear()
    answer = ask(gateway, run, json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode())
    assert (answer.status, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert answer.headers["x-should-retry"] == "false"
    assert mock.calls() == []


BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "body_invalid"),
    "no JSON": (b"model=mock", "body_invalid"),
    "a list": (b"[]", "body_invalid"),
    "a duplicate key": (b'{"model":"mock","messages":[{"role":"user","content":"a"}],"model":"mock"}', "body_invalid"),
    "a duplicate key below": (b'{"model":"mock","messages":[{"role":"user","content":"a","content":"b"}]}', "body_invalid"),
    "NaN": (b'{"model":"mock","messages":[{"role":"user","content":"a"}],"temperature":NaN}', "body_invalid"),
    "an infinite number": (b'{"model":"mock","messages":[{"role":"user","content":"a"}],"temperature":1e999}', "body_invalid"),
    "UTF-16": ('{"model":"mock"}'.encode("utf-16"), "body_invalid"),
    "a million lists": (b'{"model":"mock","messages":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "body_too_large"),
    "too many members": (b'{"model":"mock","x":[' + b",".join([b"{}"] * (MAX_KEYS + 1)) + b"]}", "body_too_large"),
    "a byte too many": (b'{"model":"' + b"x" * MAX_BODY + b'"}', "body_too_large"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_cannot_be_read_is_refused_soon(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, name: str) -> None:
    mock.clear()
    body, code = BAD[name]
    began = time.monotonic()
    answer = ask(gateway, run, body)
    assert (answer.status, answer.json()["error"]["code"]) == (400, code), answer.body
    assert time.monotonic() - began < 10
    assert mock.calls() == []


def test_what_is_forwarded_is_what_was_checked(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    extras = '"user":"\\ud800","big":18446744073709551617,"float":0.1,"text":"\\u00e4\\u2028"'
    ask(gateway, run, f'{{"model":"mock","messages":[{{"role":"user","content":"hi"}}],"max_tokens":2,{extras}}}'.encode())
    (call,) = mock.calls()
    sent = json.loads(call["body"])
    assert (sent["user"], sent["big"], sent["float"], sent["text"]) == ("\ud800", 18446744073709551617, 0.1, "ä\u2028")


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def test_an_upload_without_end_costs_no_more_memory_than_one_body(gateway: GatewayProcess, run: OpenedRun) -> None:
    """200 MB in chunks: refused once more than a body came, what still comes is thrown away."""
    pid, peak = gateway.process.pid, 0
    before = rss_bytes(pid)
    head = request("POST", CHAT, {"x-api-key": run.key, "Transfer-Encoding": "chunked"})
    piece = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
    with Wire(gateway.port, timeout_s=30) as wire:
        wire.send(head)
        try:
            for _ in range(200):
                wire.send(piece)
                peak = max(peak, rss_bytes(pid))
            wire.send(chunked())
        except (BrokenPipeError, ConnectionResetError):
            pass  # it need not hear all of it
        answer = wire.answer()
    assert (answer.status, answer.json()["error"]["code"]) == (400, "body_too_large")
    assert peak - before < 4 * MAX_BODY + (16 << 20), (before, peak)


def test_tiny_chunks_cost_no_more_than_their_bytes(gateway: GatewayProcess, run: OpenedRun) -> None:
    before = rss_bytes(gateway.process.pid)
    body = chunked(*([b"["] * 400_000))
    with Wire(gateway.port, timeout_s=30) as wire:
        wire.send(request("POST", CHAT, {"x-api-key": run.key, "Transfer-Encoding": "chunked"}) + body)
        assert wire.answer().status == 400
    assert rss_bytes(gateway.process.pid) - before < 48 << 20
