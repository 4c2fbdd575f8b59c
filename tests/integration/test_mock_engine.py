"""The mock engine over sockets: what it is told it does, when its client leaves it knows, and its log tells the truth."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.mock_engine import Die, MockEngine, MockEngineThread, Script, UsageForm, tokens
from tests.support import sse
from tests.support.cases import Case, cases
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually, eventually_async

HELLO = {"model": "mock", "messages": [{"role": "user", "content": "hello there"}]}


async def once(engine: MockEngine, **body: Any) -> RawAnswer:
    return await asyncio.to_thread(chat_once, engine.port, "key", **body)


async def sent(engine: MockEngine, **body: Any) -> RawClient:
    """A client whose call has arrived."""
    before = len(engine.log.calls)
    client = await asyncio.to_thread(RawClient, engine.port)
    client.chat("key", **body)
    await engine.saw(lambda log: len(log.calls) > before)
    return client


# scripts


async def test_a_stream_is_sent_event_by_event_as_told(engine: MockEngine) -> None:
    engine.script(output_tokens=6, chunk_tokens=2, usage="final")
    answer = await once(engine, stream=True, stream_options={"include_usage": True})
    assert answer.status == 200 and answer.complete and answer.events[-1].done
    assert len(answer.pieces) == 1 + 3 + 1 + 1 + 1
    assert sse.text(answer.body) == tokens.text_of(6)
    assert sse.usage(answer.body)["completion_tokens"] == 6
    assert sse.finish_reason(answer.body) == "stop"


async def test_its_log_holds_the_very_bytes_and_moments(engine: MockEngine) -> None:
    engine.script(output_tokens=4, gap_ms=20)
    with await sent(engine, stream=True) as client:
        answer = await asyncio.to_thread(client.answer)
    record = engine.log.calls[0]
    assert bytes(record.answer) == answer.body
    assert [one.size_bytes for one in record.sent] == [len(piece) for piece in answer.pieces]
    assert [one.tokens for one in record.sent] == [0, 1, 2, 3, 4, 4, 4]
    gaps = [(b.at.monotonic_ns - a.at.monotonic_ns) / 1e6 for a, b in zip(record.sent[1:4], record.sent[2:5], strict=True)]
    assert all(gap >= 19 for gap in gaps)
    assert record.sent[-1].at.monotonic_ns <= client.moment_of(b"[DONE]").monotonic_ns


async def test_helpers_count_what_usage_reports(engine: MockEngine) -> None:
    body = {**HELLO, "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}]}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{engine.url}/apply-template", json=body) as answer:
            prompt = (await answer.json())["prompt"]
        async with session.post(f"{engine.url}/tokenize", json={"content": prompt, "parse_special": True}) as answer:
            counted = len((await answer.json())["tokens"])
        async with session.post(f"{engine.url}/v1/chat/completions", json=body) as answer:
            usage = (await answer.json())["usage"]
    assert usage["prompt_tokens"] == counted
    assert [record.path for record in engine.log.helpers] == ["/apply-template", "/tokenize"]


async def test_its_counters_are_llamacpps(engine: MockEngine) -> None:
    engine.script(prompt_tokens=30, cached=24, output_tokens=5)
    await once(engine)
    await once(engine, stream=True)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{engine.url}/metrics") as answer:
            text = await answer.text()
        async with session.get(f"{engine.url}/health") as answer:
            assert answer.status == 200
        async with session.get(f"{engine.url}/v1/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["mock"]
        async with session.get(f"{engine.url}/props") as answer:
            assert (await answer.json())["default_generation_settings"]["n_ctx"] == engine.playbook.context_tokens
    assert "llamacpp:prompt_tokens_total 12\n" in text and "llamacpp:tokens_predicted_total 10\n" in text


async def test_calls_beyond_its_slots_wait_their_turn(engine: MockEngine) -> None:
    engine.playbook.slots = 2
    engine.script(output_tokens=3, gap_ms=20)
    answers = await asyncio.gather(*(once(engine, stream=True) for _ in range(6)))
    assert all(answer.events[-1].done for answer in answers)
    assert engine.counters.most_active == 2 and engine.counters.active == engine.counters.waiting == 0


async def test_a_waiting_call_whose_client_leaves_gives_up_its_turn(engine: MockEngine) -> None:
    engine.playbook.slots = 1
    engine.script(die="hang")
    first = await sent(engine, stream=True)
    await eventually_async(lambda: engine.counters.active == 1, "the slot is taken")
    second = await sent(engine, stream=True)
    second.close()
    await engine.saw(lambda log: log.calls[1].end == "client_left")
    assert engine.log.calls[1].started is None
    first.close()
    await engine.saw(lambda log: log.calls[0].end == "client_left")
    assert engine.counters.active == engine.counters.waiting == 0


async def test_scripts_in_a_list_are_used_up_in_order(engine: MockEngine) -> None:
    engine.queue({"output_tokens": 1}, Script(output_tokens=2))
    counts = [(await once(engine)).json()["usage"]["completion_tokens"] for _ in range(3)]
    assert counts == [1, 2, 16]


async def test_raw_bytes_go_out_in_the_cuts_given(engine: MockEngine) -> None:
    pieces = (b'data: {"a"', b":1}\n\nda", b"ta: [DONE]\n\n")
    engine.script(Script(raw=pieces, gap_ms=5))
    answer = await once(engine, stream=True)
    assert tuple(answer.pieces) == pieces and answer.complete


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
async def test_it_replays_any_engines_answer_byte_for_byte(engine: MockEngine, case: Case) -> None:
    engine.queue(case.script(), case.script_json(case.random_cuts(1)))
    for _ in range(2):
        answer = await once(engine, stream=bool(case.body.get("stream")))
        assert (answer.status, answer.body, answer.complete) == (case.status, case.answer, True)
        assert all(answer.headers[name] == value for name, value in case.headers.items())


async def test_gzip_and_comments_and_padding(engine: MockEngine) -> None:
    engine.script(output_tokens=4, gzip=True, comments_every=2, padding_bytes=1_000_000)
    answer = await once(engine, stream=True)
    assert answer.headers["content-encoding"] == "gzip" and len(answer.pieces) > 4
    body = gzip.decompress(answer.body)
    assert sse.text(body) == tokens.text_of(4) and sse.comments(body) == 2 and len(body) > 6_000_000


async def test_pings_come_while_it_prefills(engine: MockEngine) -> None:
    engine.script(output_tokens=1, prefill_ms=60, ping_ms=20)
    assert sse.comments((await once(engine, stream=True)).body) == 3


async def test_it_pauses_before_the_terminal_event(engine: MockEngine) -> None:
    engine.script(output_tokens=1, finish_before_done_ms=150)
    with await sent(engine, stream=True) as client:
        await asyncio.to_thread(client.answer)
    finish, done = client.moment_of(b'"finish_reason":"stop"'), client.moment_of(b"[DONE]")
    assert done.monotonic_ns - finish.monotonic_ns > 100e6


async def test_usage_may_come_late(engine: MockEngine) -> None:
    engine.script(output_tokens=1, usage=UsageForm.LATE.value)
    found = (await once(engine, stream=True)).events
    assert found[-2].done and "usage" in found[-1].json()


async def test_a_prompt_above_the_context_is_llamacpps_error(engine: MockEngine) -> None:
    engine.playbook.context_tokens = 5
    answer = await once(engine)
    assert answer.status == 400 and answer.json()["error"]["type"] == "exceed_context_size_error"
    assert engine.log.calls[0].end == "refused:400"


# bad ends


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_before_headers_is_a_plain_answer(engine: MockEngine, status: int, stream: bool) -> None:
    engine.script(die=status)
    answer = await once(engine, stream=stream)
    assert answer.status == status and answer.json()["error"]["code"] == status and answer.complete


@pytest.mark.parametrize(
    ("die", "closed", "complete"),
    [(Die.RESET, "reset", False), (Die.EOF, "eof", False), (Die.NO_DONE, "", True), (Die.ERROR_EVENT, "", True), (Die.HALF_EVENT, "", True)],
)
async def test_a_stream_dies_after_so_many_tokens_as_told(engine: MockEngine, die: Die, closed: str, complete: bool) -> None:
    engine.script(Script(output_tokens=20, die=die, die_after=5))
    with await sent(engine, stream=True) as client:
        answer = await asyncio.to_thread(client.answer)
        assert (client.closed, answer.complete) == (closed, complete)
    assert tokens.count(sse.text(answer.body)) == 5 == engine.log.calls[0].output_tokens
    assert not any(event.done for event in answer.events)
    assert bool(sse.error(answer.body)) == (die is Die.ERROR_EVENT)
    assert bool(sse.unfinished(answer.body)) == (die is Die.HALF_EVENT)
    await engine.saw(lambda log: log.calls[0].end == f"died:{die}")


async def test_an_error_may_be_the_first_event(engine: MockEngine) -> None:
    engine.script(die="error_event")
    answer = await once(engine, stream=True)
    assert answer.status == 200 and "error" in answer.events[0].json()


@pytest.mark.parametrize(("die", "closed"), [(Die.RESET, "reset"), (Die.EOF, "eof"), (Die.RESET_BEFORE_HEADERS, "reset"), (Die.EOF_BEFORE_HEADERS, "eof")])
async def test_an_answer_in_one_piece_breaks_off(engine: MockEngine, die: Die, closed: str) -> None:
    engine.script(Script(die=die))
    with await sent(engine) as client:
        answer = await asyncio.to_thread(client.answer)
        assert client.closed == closed and not answer.complete
    assert bool(answer.status) == (die in (Die.RESET, Die.EOF))


@pytest.mark.parametrize("die", [Die.HANG, Die.HANG_BEFORE_HEADERS])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_hangs_until_its_client_leaves(engine: MockEngine, die: Die, stream: bool) -> None:
    engine.script(Script(die=die, die_after=2))
    client = await sent(engine, stream=stream)
    so_far = await asyncio.to_thread(client.read_for, 0.2)
    assert not so_far.complete and bool(so_far.status) == (die is Die.HANG) and engine.log.calls[0].end == ""
    client.close()
    await engine.saw(lambda log: log.calls[0].end == "client_left", 1)


# a client that leaves


@pytest.mark.parametrize("way", ["close", "reset", "half_close"])
async def test_a_stream_hears_within_half_a_second_that_its_client_left(engine: MockEngine, way: str) -> None:
    engine.script(output_tokens=10_000, gap_ms=5)
    client = await sent(engine, stream=True)
    await asyncio.to_thread(client.read_events, 5)
    left_ns = getattr(client, way)()
    await engine.saw(lambda log: log.calls[0].end == "client_left", 2)
    record = engine.log.calls[0]
    assert record.left_after_ms(left_ns) < 500
    assert record.left_how == ("reset" if way == "reset" else "eof")
    generated = record.output_tokens
    await asyncio.sleep(0.05)
    assert record.output_tokens == generated < 500
    client.close()


async def test_a_prefill_hears_that_its_client_left(engine: MockEngine) -> None:
    engine.script(prefill_ms=5_000)
    client = await sent(engine, stream=True)
    left_ns = client.close()
    await engine.saw(lambda log: log.calls[0].end == "client_left", 2)
    assert engine.log.calls[0].left_after_ms(left_ns) < 500 and engine.log.calls[0].status == 0


@pytest.mark.parametrize("cancels", [True, False])
async def test_an_answer_in_one_piece_goes_on_unless_told_otherwise(engine: MockEngine, cancels: bool) -> None:
    engine.script(output_tokens=60, gap_ms=5, cancels_whole=cancels)
    client = await sent(engine)
    await asyncio.sleep(0.05)
    client.close()
    await engine.saw(lambda log: log.calls[0].end != "", 3)
    record = engine.log.calls[0]
    assert record.left is not None
    assert (record.end, record.output_tokens == 60) == (("client_left", False) if cancels else ("completed", True))


# as a server


async def test_two_hundred_callers_are_served_side_by_side(engine: MockEngine) -> None:
    engine.script(output_tokens=20, gap_ms=10)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call() -> bytes:
            async with session.post(f"{engine.url}/v1/chat/completions", json={**HELLO, "stream": True}) as answer:
                return await answer.read()

        begun = time.monotonic()
        bodies = await asyncio.gather(*(call() for _ in range(200)))
        took_s = time.monotonic() - begun
    assert all(sse.text(body) == tokens.text_of(20) for body in bodies)
    assert engine.counters.most_active == 200
    assert took_s < 5


def test_a_connection_serves_call_after_call() -> None:
    with MockEngineThread({"output_tokens": 2}) as engine, RawClient(engine.port) as client:
        for stream in (True, False, True):
            client.chat("key", stream=stream)
            assert client.answer().complete
        eventually(lambda: [record.end for record in engine.log.calls] == ["completed"] * 3, "the engine knows that each has ended")


def test_the_command_serves_by_script_logs_and_ends_well(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    with MockProcess(script={"output_tokens": 3, "prompt_tokens": 7}, log=log) as engine:
        port = int(engine.url.rpartition(":")[2])
        chat_once(port, "a-key", headers={"X-Request-Id": "call-1"}, stream=True)
        engine.queue({"die": 503})
        assert chat_once(port, "a-key").status == 503
        eventually(lambda: len(engine.calls()) == 2, "both calls are in the log")
        records: list[dict[str, Any]] = engine.calls()
    assert engine.process.returncode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["number"] for line in lines if line["path"] == "/v1/chat/completions"] == [record["number"] for record in records]
    first = lines[0]
    assert first["request_id"] == "call-1" and first["end"] == "completed" and first["output_tokens"] == 3 and first["prompt_tokens"] == 7
    assert ["Authorization", "Bearer a-key"] in first["headers"] and json.loads(first["body"])["stream"] is True
    assert first["arrival"]["unix_ns"] <= first["sent"][0][1] <= first["ended"]["unix_ns"]


def test_a_wrong_script_over_the_admin_path_is_an_error() -> None:
    with MockEngineThread() as engine, RawClient(engine.port) as client:
        client.request("PUT", "/mock/script", body=b'{"outputtokens": 3}')
        answer = client.answer()
        assert answer.status == 400 and "outputtokens" in answer.json()["error"]["message"]


async def test_a_server_that_stops_gives_up_what_runs() -> None:
    async with MockEngine({"die": "hang"}) as engine:
        client = await sent(engine, stream=True)
    assert engine.log.calls[0].end == "stopped"
    client.close()
