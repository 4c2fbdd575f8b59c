"""Refusals, cuts and the list of models in the OpenAI form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.accounting.usage import MeterSource, Reading, Usage
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import ReplyKind, Wording
from gateway.dialects.openai_replies import models_reply
from gateway.dialects.retry_words import is_final_wording
from gateway.metering.sse import SseFramer

CHAT = DIALECTS["openai.chat"]
BUDGET = "Run budget reached. No further model calls are allowed for this run."


def wording(kind: ReplyKind, **fields: Any) -> Wording:
    return Wording(**{"kind": kind, "code": "run_budget_reached", "message": BUDGET} | fields)


def events(raw: bytes) -> list[Any]:
    frames = SseFramer(100_000).feed(raw)
    assert b"".join(frame.raw for frame in frames) == raw
    return [frame.data.decode() if frame.data == b"[DONE]" else json.loads(frame.data) for frame in frames]


@pytest.mark.parametrize(
    ("kind", "status", "headers"),
    [
        (ReplyKind.FINAL, 404, {"x-should-retry": "false"}),
        (ReplyKind.PROMPT_ABOVE_CAP, 404, {"x-should-retry": "false"}),
        (ReplyKind.PASSING, 429, {"retry-after": "2"}),
        (ReplyKind.CONTEXT_OVERFLOW, 400, {"x-should-retry": "false"}),
        (ReplyKind.GUARD, 400, {"x-should-retry": "false"}),
        (ReplyKind.UNAVAILABLE, 503, {}),
        (ReplyKind.NOT_FOUND, 404, {"x-should-retry": "false"}),
        (ReplyKind.UNAUTHORIZED, 401, {"x-should-retry": "false"}),
    ],
)
def test_each_kind_of_refusal_has_its_status_and_headers(kind: ReplyKind, status: int, headers: dict[str, str]) -> None:
    reply = CHAT.reply(wording(kind))
    assert (reply.status, dict(reply.headers), reply.content_type) == (status, headers, "application/json")
    assert set(json.loads(reply.body)) == {"error"}
    assert CHAT.reply(wording(kind, status=599)).status == 599


def test_a_final_refusal_has_the_form_on_which_agents_stop() -> None:
    error = {"message": BUDGET, "type": "invalid_request_error", "param": None, "code": "run_budget_reached"}
    assert json.loads(CHAT.reply(wording(ReplyKind.FINAL)).body) == {"error": error}
    assert is_final_wording(CHAT.reply(wording(ReplyKind.FINAL)).body.decode())
    assert events(CHAT.error_event(wording(ReplyKind.FINAL))) == [{"error": error}, "[DONE]"]


def test_the_guard_names_the_field() -> None:
    reply = CHAT.reply(wording(ReplyKind.GUARD, code="not_allowed", message="The field store is not allowed.", param="store"))
    assert json.loads(reply.body)["error"]["param"] == "store"


@pytest.mark.parametrize("text", ["Budget exhausted", "cap 50000", "try again", "Service Unavailable", "RATE LIMIT", "overloaded", "a server error"])
def test_words_on_which_agents_try_again_are_known(text: str) -> None:
    assert not is_final_wording(text)


def test_a_context_overflow_is_in_the_engines_own_words() -> None:
    told = json.loads(CHAT.reply(wording(ReplyKind.CONTEXT_OVERFLOW, engine="llama.cpp", prompt_tokens=3_031, context_tokens=2_048)).body)["error"]
    assert told == {
        "code": 400,
        "message": "request (3031 tokens) exceeds the available context size (2048 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 3_031,
        "n_ctx": 2_048,
    }
    assert json.loads(CHAT.reply(wording(ReplyKind.CONTEXT_OVERFLOW)).body)["error"]["type"] == "exceed_context_size_error"
    other = json.loads(CHAT.reply(wording(ReplyKind.CONTEXT_OVERFLOW, engine="generic", prompt_tokens=3_031, context_tokens=2_048)).body)["error"]
    assert (other["code"], "maximum context length is 2048 tokens" in other["message"]) == ("context_length_exceeded", True)


def reading(**fields: Any) -> Reading:
    return Reading(**{"usage": Usage(), "source": MeterSource.MISSING, "status": 200, "completed": False, "response_id": "c", "model": "own"} | fields)


def asked(**fields: Any) -> Any:
    return CHAT.read_request({"model": "m", "messages": [{"role": "user"}], "stream": True, **fields})


def test_a_stream_that_is_cut_at_its_ceiling_ends_as_length_with_usage_where_it_was_asked_for() -> None:
    request = asked(stream_options={"include_usage": True})
    told = events(CHAT.length_end(reading(usage=Usage(input_tokens=5), running_output=7), request))
    assert told[0]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert (told[0]["id"], told[0]["model"], told[0]["object"]) == ("c", "own", "chat.completion.chunk")
    assert (told[1]["choices"], told[1]["usage"]) == ([], {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12})
    assert told[2:] == ["[DONE]"]
    settled = events(CHAT.length_end(reading(), request, Usage(input_tokens=8, output_tokens=9)))
    assert settled[1]["usage"]["total_tokens"] == 17


def test_only_choices_that_still_run_are_ended_and_usage_stays_with_those_who_asked() -> None:
    told = events(CHAT.length_end(reading(usage=Usage(input_tokens=5, output_tokens=7), finish_reasons=("stop", None)), asked(n=3)))
    assert [event["choices"][0]["index"] for event in told[:-1]] == [1, 2]
    assert told[-1] == "[DONE]"


def test_usage_that_is_not_known_is_not_told() -> None:
    assert len(events(CHAT.length_end(reading(), asked(stream_options={"include_usage": True})))) == 2


def test_the_list_of_models_shows_names_alone() -> None:
    told = json.loads(models_reply(["a", "b"]).body)
    assert told["object"] == "list"
    assert [model["id"] for model in told["data"]] == ["a", "b"]
    assert {model["owned_by"] for model in told["data"]} == {"model-gateway"}
