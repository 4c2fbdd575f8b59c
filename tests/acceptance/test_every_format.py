"""Every promise in every format, in one piece and in a stream: what holds for one holds for all. Over `gateway serve`, before scripted engines."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pytest

from gateway.dialects import DIALECTS
from gateway.dialects.output_caps import CAPS
from gateway.engines import ENGINES
from tests.support.control import OpenedRun
from tests.support.every_format import Engines, World, engines, world
from tests.support.formats import FORMATS, Format, Told, told, told_at_the_end
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import HASTY
from tests.support.raw_http import RawAnswer
from tests.support.record import fits, reserved
from tests.support.toml import Tables
from tests.support.waiting import eventually

T = TypeVar("T")
WORDS = ["a", "b", "c", "d", "e"]
"""Reported as a token each; no tokenizer makes more of them."""
ENDLESS = ["One ", "two ", "three ", "four ", "five "] * 8
"""Of which every tokenizer makes more than one."""
GIVEN = 11
"""Tokens of the prompt, as every engine here reports."""
LATE_S = 1.0
WALL_S = 1
CLAMPED = 7
POLICIES: dict[str, Tables] = {
    "spent": {"run": {"requests": 0}},
    "halted": {"admission": {"queue_seconds": 0}},
    "prompt": {"call": {"prompt_tokens": 1}},
    "context": {"each_model": {"context_tokens": 4, "default_output_tokens": 1}},
    "clamped": {"run": {"output_tokens": CLAMPED}, "admission": {"min_output_tokens": 1}},
    "short": {"call": {"output_tokens": 2}, "each_model": {"default_output_tokens": 2}},
    "wall": {"run": {"wall_seconds": WALL_S}},
}
FINAL = {"openai": 404, "responses": 400, "messages": 402, "native": 400}
PASSING = {"openai": 429, "responses": 429, "messages": 429, "native": 503}
RETRY_WORDS = re.compile(r"\d|retry|again|later|overload|capacity|rate.?limit|temporar|timeout|unavailable", re.IGNORECASE)

FORMS = tuple(FORMATS.values())
ALL = [(one, stream) for one in FORMS for stream in one.streams]
PLACES = [(one, depth) for one in FORMS if one.cap for depth in dict.fromkeys([len(one.cap), 1])]
"""Where a call names its ceiling: inside an object of its own, where the format has one, and at the top."""


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, Format) else ("whole", "stream")[value] if isinstance(value, bool) else None


over_all = pytest.mark.parametrize(("one", "stream"), ALL, ids=name_of)
over_generating = pytest.mark.parametrize(("one", "stream"), [(one, stream) for one, stream in ALL if one.cap], ids=name_of)
over_streams = pytest.mark.parametrize("one", [one for one, stream in ALL if stream], ids=name_of)
over_whole = pytest.mark.parametrize("one", [one for one, stream in ALL if not stream], ids=name_of)
over_generating_whole = pytest.mark.parametrize("one", [one for one, stream in ALL if not stream and one.cap], ids=name_of)


@pytest.fixture(scope="module")
def played() -> Iterator[Engines]:
    with engines() as running:
        yield running


@pytest.fixture(scope="module")
def all_formats(tmp_path_factory: pytest.TempPathFactory, played: Engines) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("formats") / "gateway", played, POLICIES) as running:
        yield running


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory, played: Engines) -> Iterator[World]:
    """It hears late that a settlement is written."""
    env = {**HASTY, "GATEWAY_LATE": "Settle", "GATEWAY_LATE_S": str(LATE_S)}
    with world(tmp_path_factory.mktemp("late") / "gateway", played, {}, env=env) as running:
        yield running


def all_at_once(world: World, end_of: Callable[[World, bool, Format], T], policy: str = "plain") -> dict[tuple[str, bool], T]:
    """For what takes its time: every format in one piece, then in streams, side by side."""
    found: dict[tuple[str, bool], T] = {}
    for stream in (False, True):
        formats = [one for one in FORMS if stream in one.streams]
        for one in formats:
            world.opened(one, policy)  # so that none has to open the campaign
        with ThreadPoolExecutor(len(formats)) as pool:
            found |= {(one.name, stream): end for one, end in zip(formats, pool.map(partial(end_of, world, stream), formats), strict=True)}
    return found


def test_every_format_that_there_is_stands_in_the_table() -> None:
    assert FORMATS.keys() == DIALECTS.keys()
    for one in FORMATS.values():
        assert ENGINES[one.engine].paths[one.name] == one.path
        assert ENGINES[one.engine].cap_names[one.name] == (one.cap[-1] if one.cap else "")


def is_final(one: Format, answer: RawAnswer, code: str, status: int | None = None) -> None:
    assert (answer.status, answer.headers.get("x-should-retry"), answer.complete) == (status or FINAL[one.form], "false", True), answer.body
    assert "retry-after" not in answer.headers
    said = told(one.form, answer.json())
    assert said.code == code
    has_final_words(one, said)
    assert not re.search(rb"\d", answer.body), "no digit: agents look for a status in the text"


def has_final_words(one: Format, said: Told) -> None:
    assert said.message and not RETRY_WORDS.search(said.message), said
    wanted = {"openai": ("invalid_request_error",), "messages": ("billing_error",), "responses": ("invalid_request_error", "response.failed")}
    assert said.kind in wanted.get(one.form, (said.kind,)), said


def ended_with_final_words(one: Format, ending: bytes, code: str) -> None:
    said = told_at_the_end(one, ending)
    assert said.code == ("insufficient_quota" if one.name == "openai.responses" else code)
    has_final_words(one, said)


# an answer


@over_all
def test_an_answer_comes_out_by_the_byte_and_is_on_record_as_reported(all_formats: World, one: Format, stream: bool) -> None:
    run = all_formats.opened(one)
    before, end = one.said(stream, WORDS, GIVEN)
    answer = "".join([*before, *end]).encode()
    for cuts in (1, 3, len(answer)):
        size = -(-len(answer) // cuts)
        all_formats.play(one, stream, *(answer[at : at + size].decode() for at in range(0, len(answer), size)))
        with all_formats.send(one, stream, run) as client:
            got = client.answer()
        assert (got.status, got.body) == (200, answer)
        row = all_formats.row(got.headers["x-request-id"])
        assert (row["outcome"], row["output_tokens"], row["charged_output_tokens"]) == ("completed", *([len(WORDS) if one.cap else 0] * 2))
        if one.name == "llamacpp.embedding":
            assert (row["source"], row["counted_by"]) == ("counted", "engine"), "it reports nothing"
        else:
            assert (row["source"], row["input_tokens"], row["charged_input_tokens"]) == ("reported", GIVEN, GIVEN)


@dataclass(frozen=True)
class Held:
    run: OpenedRun
    early: RawAnswer
    """As far as it had come while the gateway had not heard that the settlement is written."""
    answer: RawAnswer


def held_back(late: World, stream: bool, one: Format) -> Held:
    run = late.opened(one)
    before, end = one.said(stream, WORDS, GIVEN)
    late.play(one, stream, "".join([*before, *end]))
    with late.send(one, stream, run) as client:
        if stream:
            client.read_until(before[-1].encode())
        else:
            late.settled(run)
        early = client.read_for(LATE_S / 4)
        return Held(run, early, client.answer())


@pytest.fixture(scope="module")
def held(late: World) -> dict[tuple[str, bool], Held]:
    return all_at_once(late, held_back)


@over_all
def test_the_end_of_an_answer_goes_out_only_after_its_settlement_is_durable(late: World, held: dict[tuple[str, bool], Held], one: Format, stream: bool) -> None:
    found = held[one.name, stream]
    before, end = one.said(stream, WORDS, GIVEN)
    assert not found.early.complete and found.early.body == "".join(before).encode()
    assert found.answer.body == "".join([*before, *end]).encode()
    assert late.settled(found.run)["outcome"] == "completed"


@over_generating
def test_an_output_that_reached_its_ceiling_is_a_length_whatever_word_the_engine_used(all_formats: World, one: Format, stream: bool) -> None:
    for cut, words, outcome in ((False, WORDS, "length"), (True, WORDS, "length"), (False, WORDS[:-1], "completed")):
        run = all_formats.opened(one)
        all_formats.play(one, stream, "".join([piece for pieces in one.said(stream, words, GIVEN, cut=cut) for piece in pieces]))
        with all_formats.send(one, stream, run, **capped(one, one.cap[-1], len(WORDS))) as client:
            assert client.answer().status == 200
        assert all_formats.settled(run)["outcome"] == outcome


# refusals


@over_all
def test_a_final_refusal_has_the_formats_status_and_words_and_reaches_no_engine(all_formats: World, one: Format, stream: bool) -> None:
    run, calls = all_formats.opened(one, "spent"), all_formats.calls(one)
    with all_formats.send(one, stream, run) as client:
        answer = client.answer()
    is_final(one, answer, "run_budget_reached")
    assert answer.headers["x-gateway-limit"] == "run.requests"
    assert (all_formats.calls(one), all_formats.rows(run)) == (calls, [])


@over_all
def test_a_refusal_that_passes_says_when_to_come_back(all_formats: World, one: Format, stream: bool) -> None:
    run, calls = all_formats.opened(one, "halted"), all_formats.calls(one)
    all_formats.gateway.control.post(f"/v1/campaigns/{run.campaign}/halt")
    try:
        with all_formats.send(one, stream, run) as client:
            answer = client.answer()
    finally:
        all_formats.gateway.control.post(f"/v1/campaigns/{run.campaign}/resume")
    assert (answer.status, answer.headers["retry-after"]) == (PASSING[one.form], "2")
    assert "x-should-retry" not in answer.headers
    assert told(one.form, answer.json()).code == "campaign_halted"
    assert all_formats.calls(one) == calls


@over_all
def test_a_prompt_above_the_cap_of_the_policy_is_final(all_formats: World, one: Format, stream: bool) -> None:
    run, calls = all_formats.opened(one, "prompt"), all_formats.calls(one)
    with all_formats.send(one, stream, run) as client:
        answer = client.answer()
    is_final(one, answer, "prompt_above_cap")
    assert (all_formats.calls(one), all_formats.rows(run)) == (calls, [])


@over_all
def test_a_prompt_above_the_context_is_told_in_the_words_on_which_agents_compact(all_formats: World, one: Format, stream: bool) -> None:
    long = "many words " * 20
    body = {name: [{"role": "user", "content": long}] if name == "messages" else [long] if name == "documents" else long for name in one.body}
    run, calls = all_formats.opened(one, "context"), all_formats.calls(one)
    with all_formats.send(one, stream, run, **body) as client:
        answer = client.answer()
    assert (answer.status, answer.headers["x-should-retry"]) == (400, "false"), answer.body
    error = answer.json()["error"]
    text = error["message"] if isinstance(error, dict) else error
    assert "prompt is too long" in text if one.form == "messages" else "context" in text
    assert (all_formats.calls(one), all_formats.rows(run)) == (calls, [])


# ceilings


def capped(one: Format, alias: str, value: int) -> dict[str, Any]:
    """Fields of a call that asks for so much by this name, at the place where this format has it."""
    return {one.cap[0]: {alias: value}} if len(one.cap) > 1 else {alias: value}


def caps_in(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {}
    found = {(*path, name): inner for name, inner in value.items() if name in CAPS}
    return found | {place: cap for name, inner in value.items() for place, cap in caps_in(inner, (*path, name)).items()}


@pytest.mark.parametrize(("one", "depth"), PLACES, ids=name_of)
def test_by_whatever_name_it_asks_a_call_is_clamped_to_what_is_left(all_formats: World, one: Format, depth: int) -> None:
    stream = one.streams[-1]
    before, end = one.said(stream, WORDS, GIVEN)
    all_formats.play(one, stream, "".join([*before, *end]))
    for alias in CAPS:
        run = all_formats.opened(one, "clamped")
        with all_formats.send(one, stream, run, **({alias: 5_000} if depth == 1 else capped(one, alias, 5_000))) as client:
            answer = client.answer()
        assert (answer.status, answer.headers["x-gateway-clamped"]) == (200, f"{CLAMPED} run.output_tokens"), alias
        assert caps_in(json.loads(all_formats.sent(one).body)) == {one.cap: CLAMPED}, "one number under one name"
        assert all_formats.settled(run)["reserved_output_tokens"] == CLAMPED


@over_streams
def test_an_engine_that_runs_past_its_ceiling_is_cut_with_the_formats_own_length_end(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one, "short")
    before, end = one.said(True, ENDLESS, GIVEN)
    all_formats.play(one, True, *before, *end, gap_ms=30)
    with all_formats.send(one, True, run) as client:
        answer = client.answer()
    assert answer.status == 200 and len(answer.body) < len("".join(before))
    assert one.length_word in answer.body.decode()[-600:]
    row = all_formats.settled(run)
    assert row["outcome"] == "cap_cut" and row["source"] in ("counted", "running")
    eventually(lambda: all_formats.sent(one).left, "the engine is left")


@over_generating_whole
def test_an_engine_that_ran_past_its_ceiling_in_one_piece_is_charged_as_reported_and_marked(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one, "short")
    all_formats.play(one, False, *one.said(False, WORDS, GIVEN)[1])
    with all_formats.send(one, False, run) as client:
        assert client.answer().status == 200
    row = all_formats.settled(run)
    assert (row["source"], row["charged_output_tokens"]) == ("reported", len(WORDS))
    assert "overshoot" in row["flags"]


# cuts


@over_streams
def test_a_stream_that_is_cut_ends_as_the_formats_error_with_final_words(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    before, end = one.said(True, WORDS, GIVEN)
    all_formats.play(one, True, "".join(before), *end, gap_ms=5_000)
    with all_formats.send(one, True, run) as client:
        client.read_until(before[-1].encode())
        all_formats.gateway.control.close_run(run)
        answer = client.answer()
    delivered = "".join(before).encode()
    assert answer.body.startswith(delivered) and answer.complete
    ended_with_final_words(one, answer.body[len(delivered) :], "run_closed")
    row = all_formats.settled(run)
    assert row["outcome"] == "closed_cut" and row["source"] in ("counted", "running", "reported")
    eventually(lambda: all_formats.sent(one).left, "the engine is left")


@over_whole
def test_an_answer_in_one_piece_that_is_cut_is_the_final_refusal_at_once_and_settled_as_reported(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    [text] = one.said(False, WORDS, GIVEN)[1]
    all_formats.play(one, False, text[:-5], text[-5:], gap_ms=500)
    calls = all_formats.calls(one)
    with all_formats.send(one, False, run) as client, ThreadPoolExecutor(1) as pool:
        eventually(lambda: all_formats.calls(one) > calls, "it is sent")
        closing = pool.submit(all_formats.gateway.control.close_run, run)
        is_final(one, client.answer(), "run_closed")
        assert not all_formats.sent(one).ended, "the engine is still at it"
        closing.result(20)
    row = all_formats.settled(run)
    assert (row["outcome"], row["charged_output_tokens"]) == ("closed_cut", len(WORDS) if one.cap else 0)
    assert row["source"] == ("counted" if one.name == "llamacpp.embedding" else "reported")


@dataclass(frozen=True)
class Deadline:
    run: OpenedRun
    answer: RawAnswer
    took_s: float
    delivered: bytes


def at_its_deadline(all_formats: World, stream: bool, one: Format) -> Deadline:
    run = all_formats.opened(one, "wall")
    before, end = one.said(stream, WORDS, GIVEN)
    first = "".join(before) if stream else end[0][:-5]
    rest = "".join(end) if stream else end[0][-5:]
    all_formats.play(one, stream, first, rest, gap_ms=2_500)
    began = time.monotonic()
    with all_formats.send(one, stream, run) as client:
        answer = client.answer()
    return Deadline(run, answer, time.monotonic() - began, first.encode() if stream else b"")


@pytest.fixture(scope="module")
def deadlines(all_formats: World) -> dict[tuple[str, bool], Deadline]:
    return all_at_once(all_formats, at_its_deadline, "wall")


@over_all
def test_a_call_is_cut_within_a_second_of_its_runs_deadline(all_formats: World, deadlines: dict[tuple[str, bool], Deadline], one: Format, stream: bool) -> None:
    end = deadlines[one.name, stream]
    assert WALL_S - 0.2 < end.took_s < WALL_S + 1.3
    if stream:
        assert end.answer.body.startswith(end.delivered) and end.answer.complete
        ended_with_final_words(one, end.answer.body[len(end.delivered) :], "run_budget_reached")
    else:
        is_final(one, end.answer, "run_budget_reached")
    assert all_formats.settled(end.run)["outcome"] == "deadline_cut"


# leaving


@over_streams
def test_a_client_that_leaves_before_the_first_byte_ends_the_engines_work_and_pays_its_prompt(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    all_formats.play(one, True, ": wait\n\n" if not one.name.startswith("ollama") else "", *one.said(True, WORDS, GIVEN)[0], gap_ms=3_000)
    calls = all_formats.calls(one)
    with all_formats.send(one, True, run) as client:
        eventually(lambda: all_formats.calls(one) > calls, "the engine has it")
        client.close()
    row = all_formats.settled(run)
    assert (row["outcome"], row["source"], row["output_tokens"], row["charged_output_tokens"]) == ("client_cancelled", "unknown", None, 0)
    assert row["charged_input_tokens"] > 0
    eventually(lambda: all_formats.sent(one).left, "the engine is left")


@over_streams
def test_a_client_that_leaves_in_the_middle_ends_the_engines_work_and_pays_what_it_got(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    before, end = one.said(True, WORDS, GIVEN)
    seen = before[:4]
    all_formats.play(one, True, "".join(seen), "".join([*before[4:], *end]), gap_ms=3_000)
    with all_formats.send(one, True, run) as client:
        client.read_until(seen[-1].encode())
        client.close()
    row = all_formats.settled(run)
    assert row["outcome"] == "client_cancelled" and row["source"] in ("counted", "running")
    assert 0 < row["charged_output_tokens"] <= 2 * len(WORDS)
    eventually(lambda: all_formats.sent(one).left, "the engine is left")


@over_whole
def test_a_call_in_one_piece_whose_client_leaves_is_read_to_its_end_and_settled_as_reported(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    [text] = one.said(False, WORDS, GIVEN)[1]
    all_formats.play(one, False, text[:-5], text[-5:], gap_ms=300)
    calls = all_formats.calls(one)
    with all_formats.send(one, False, run) as client:
        eventually(lambda: all_formats.calls(one) > calls, "the engine has it")
        client.close()
    row = all_formats.settled(run)
    assert (row["outcome"], row["charged_output_tokens"]) == ("client_cancelled", len(WORDS) if one.cap else 0)
    assert row["source"] == ("counted" if one.name == "llamacpp.embedding" else "reported")


# engines that fail


@over_all
@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_an_engines_refusal_passes_with_its_status_and_costs_nothing_but_a_fault(all_formats: World, one: Format, stream: bool, status: int) -> None:
    run = all_formats.opened(one)
    all_formats.play(one, stream, '{"error":{"message":"at http://10.0.0.7:8080/x","code":"c"}}', status=status)
    with all_formats.send(one, stream, run) as client:
        answer = client.answer()
    assert answer.status == status and b"10.0.0.7" not in answer.body
    row = all_formats.settled(run)
    assert (row["outcome"], row["source"]) == (("engine_error", "unknown") if status == 500 else ("engine_refused", "none"))
    assert (row["charged_input_tokens"] == 0) is (status != 500) and row["charged_output_tokens"] == 0


@over_streams
def test_an_error_as_the_first_event_is_a_plain_answer_and_no_stream(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    all_formats.play(one, True, one.error)
    with all_formats.send(one, True, run) as client:
        answer = client.answer()
    assert answer.status in (500, 502) and answer.headers["content-type"] == "application/json" and answer.json()
    assert all_formats.settled(run)["outcome"] == "engine_error"


@over_streams
def test_an_error_in_the_middle_stays_the_outcome_and_goes_out_as_it_is(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    before = one.said(True, WORDS, GIVEN)[0][:3]
    all_formats.play(one, True, "".join(before) + one.error)
    with all_formats.send(one, True, run) as client:
        answer = client.answer()
    assert answer.status == 200
    assert answer.body.startswith("".join(before).encode()) and b"it failed" in answer.body[len("".join(before)) :]
    assert all_formats.settled(run)["outcome"] == "engine_error"


@over_streams
def test_an_engine_that_dies_is_told_as_an_error_that_may_be_tried_again(all_formats: World, one: Format) -> None:
    run = all_formats.opened(one)
    before = one.said(True, WORDS, GIVEN)[0][:3]
    all_formats.play(one, True, "".join(before))
    with all_formats.send(one, True, run) as client:
        answer = client.answer()
    delivered = "".join(before).encode()
    assert answer.body.startswith(delivered)
    assert told_at_the_end(one, answer.body[len(delivered) :]).code == "engine_died"
    assert all_formats.settled(run)["outcome"] == "engine_died"


def test_the_ledgers_add_up(all_formats: World, late: World) -> None:
    for gateway in (all_formats.gateway, late.gateway):
        eventually(partial(holds_nothing, gateway), "nothing is held")
        assert fits(gateway)


def holds_nothing(gateway: GatewayProcess) -> bool:
    return reserved(gateway) == 0
