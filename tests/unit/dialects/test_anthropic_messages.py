"""Anthropic Messages: what its bodies may hold, what is forwarded of them, its words, and answers that no fixture has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.accounting.usage import MeterSource, Reading
from gateway.dialects import DIALECTS
from gateway.dialects.anthropic_messages import AnthropicMessages, count_body
from gateway.dialects.anthropic_replies import models_reply
from gateway.dialects.dialect import BodyError, ForwardFacts, Rendering, ReplyKind, Wording
from gateway.dialects.output_caps import CAPS
from gateway.dialects.retry_words import is_final_wording
from tests.unit.dialects.allowing import allowing
from tests.unit.dialects.answers import Case, replay

MESSAGES = AnthropicMessages()
SAY: Any = [{"role": "user", "content": "Say hi."}]
FACTS = ForwardFacts(model="engine-name", cap_name="max_tokens", strip_fields=frozenset({"id_slot"}))


def read(**fields: Any) -> Any:
    return MESSAGES.read_request({"model": "m", "messages": SAY, **fields})


def block(**fields: Any) -> Any:
    return [{"role": "user", "content": [{"type": "text", "text": "see https://example.org"}, fields]}]


# -- bodies


def test_a_plain_body_is_read() -> None:
    request = read(max_tokens=20, stream=True, system="Be brief.", stop_sequences=["x"], metadata={"user_id": "u"})
    assert (request.model, request.stream, request.asked_output, request.choices, request.prompts) == ("m", True, 20, 1, 1)
    assert request.rendered_parts == ("Be brief.", "Say hi.")
    assert request.rendering is Rendering.MESSAGES
    assert request.sizes.messages == 2


def test_all_that_a_template_can_render_is_among_the_parts() -> None:
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "two", "signature": "s"}, {"type": "tool_use", "id": "t", "name": "three", "input": {"a": "four"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "five"}]},
                {"type": "tool_result", "tool_use_id": "u", "content": "six"},
            ],
        },
        {"role": "user", "content": [{"type": "document", "title": "seven", "source": {"type": "text", "media_type": "text/plain", "data": "eight: at 8:00"}}]},
    ]
    request = read(messages=talk, system=[{"type": "text", "text": "nine"}], tools=[{"name": "ten", "description": "eleven", "input_schema": {}}])
    text = " ".join(request.rendered_parts)
    assert all(word in text for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"))
    assert (request.sizes.messages, request.sizes.tools, request.sizes.tool_calls) == (7, 1, 1)
    assert request.tool_names == ("ten",)
    assert request.has_tools


def test_a_picture_in_the_body_passes_and_is_counted() -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert read(messages=block(type="image", source=picture)).pictures == 1
    assert read(messages=block(type="tool_result", tool_use_id="t", content=[{"type": "image", "source": picture}])).pictures == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": block(type="image", source={"type": "url", "url": "https://example.org/a.png"})},
        {"messages": block(type="image", source={"type": "base64", "media_type": "image/png", "url": "http://10.0.0.1/"})},
        {"messages": block(type="image", source={"type": "base64", "media_type": "image/png", "data": "file:///etc/passwd"})},
        {"messages": block(type="image", source={"type": "file", "file_id": "file_1"})},
        {"messages": block(type="image", source={"type": "surprise", "data": "x"})},
        {"messages": block(type="document", source={"type": "url", "url": "https://example.org/a.pdf"})},
        {"messages": block(type="tool_result", tool_use_id="t", content=[{"type": "image", "source": {"type": "url", "url": "https://example.org"}}])},
        {"messages": block(type="document", source={"type": "content", "content": [{"type": "image", "source": {"type": "url", "url": "https://e.org"}}]})},
        {"messages": block(type="container_upload", file_id="file_1")},
        {"messages": block(type="server_tool_use", id="s", name="web_search", input={})},
        {"messages": block(type="mcp_tool_use", id="s", name="x", input={})},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]},
        {"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]},
        {"tools": [{"type": "computer_20250124", "name": "computer"}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x", "name": "x"}]},
        {"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "x"}]},
        {"container": "c1"},
        {"id_slot": 1},
        {"lora": [{"id": 0, "scale": 1}]},
        {"cache_salt": "x"},
        {"priority": 1},
        {"n": 2},
        {"n_cmpl": 2},
        {"kv_transfer_params": {}},
        {"chat_template": "x"},
    ],
    ids=lambda fields: json.dumps(fields)[:80],
)
def test_nothing_makes_the_engine_fetch_act_or_remember(fields: Any) -> None:
    with pytest.raises(BodyError) as refused:
        read(**fields)
    assert refused.value.code == "not_allowed"
    assert refused.value.field_name and refused.value.allow_key.startswith("guard.")
    assert is_final_wording(str(refused.value))


def test_what_the_policy_allows_passes() -> None:
    remote = {"model": "m", "messages": block(type="image", source={"type": "url", "url": "https://example.org/a.png"})}
    assert MESSAGES.read_request(remote, allowing("remote_images")).pictures == 1
    hosted = {"model": "m", "messages": SAY, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    assert MESSAGES.read_request(hosted, allowing("web_search")).tool_names == ("web_search",)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": 3},
        {"messages": []},
        {"messages": "x"},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"max_tokens": "5"},
        {"max_tokens": -3},
        {"stream": "yes"},
        {"system": 5},
        {"tools": {}},
        {"tools": [{"description": "no name"}]},
        {"messages": [{"role": "user", "content": [3]}]},
        {"messages": block(type="image", source="x")},
        {"messages": block(type=5)},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_a_body_of_wrong_types_is_refused(fields: Any) -> None:
    with pytest.raises(BodyError) as refused:
        read(**fields)
    assert refused.value.code == "body_invalid"


@pytest.mark.parametrize("name", CAPS)
def test_every_alias_of_the_cap_is_read_and_one_is_sent(name: str) -> None:
    request = read(**{name: 500})
    assert request.asked_output == 500
    sent = MESSAGES.forward_body(request, FACTS, ceiling_per_choice=7)
    assert {alias: sent[alias] for alias in CAPS if alias in sent} == {"max_tokens": 7}


def test_what_is_forwarded_has_the_engines_name_and_a_lower_thinking_budget() -> None:
    body = {"max_tokens": 500, "thinking": {"type": "enabled", "budget_tokens": 400}, "n": 1, "stream": True, "metadata": {"user_id": "u"}}
    request = read(**body, id_slot=-1)
    sent = MESSAGES.forward_body(request, FACTS, ceiling_per_choice=100)
    assert sent == {
        "model": "engine-name",
        "messages": SAY,
        "max_tokens": 100,
        "thinking": {"type": "enabled", "budget_tokens": 100},
        "stream": True,
        "metadata": {"user_id": "u"},
    }
    assert request.body["thinking"]["budget_tokens"] == 400, "what was received is not changed"


def test_a_counting_endpoint_is_sent_the_prompt_alone() -> None:
    body = {"model": "m", "messages": SAY, "max_tokens": 5, "stream": True, "system": "s", "tools": [], "id_slot": -1}
    assert count_body(body, "engine-name", frozenset({"id_slot"})) == {"model": "engine-name", "messages": SAY, "system": "s", "tools": []}


# -- words


def wording(kind: ReplyKind, code: str = "run_budget_reached", **more: Any) -> Wording:
    return Wording(kind=kind, code=code, message="Run budget reached. No further model calls are allowed for this run.", **more)


@pytest.mark.parametrize(
    ("kind", "status", "type_", "headers"),
    [
        (ReplyKind.FINAL, 402, "billing_error", {"x-should-retry": "false"}),
        (ReplyKind.PROMPT_ABOVE_CAP, 402, "billing_error", {"x-should-retry": "false"}),
        (ReplyKind.PASSING, 429, "rate_limit_error", {"retry-after": "2"}),
        (ReplyKind.CONTEXT_OVERFLOW, 400, "invalid_request_error", {"x-should-retry": "false"}),
        (ReplyKind.GUARD, 400, "invalid_request_error", {"x-should-retry": "false"}),
        (ReplyKind.UNAVAILABLE, 503, "api_error", {}),
        (ReplyKind.NOT_FOUND, 404, "not_found_error", {"x-should-retry": "false"}),
        (ReplyKind.UNAUTHORIZED, 401, "authentication_error", {"x-should-retry": "false"}),
    ],
)
def test_refusals_have_anthropics_form(kind: ReplyKind, status: int, type_: str, headers: dict[str, str]) -> None:
    reply = MESSAGES.reply(wording(kind))
    body = json.loads(reply.body)
    assert (reply.status, body["type"], body["error"]["type"], dict(reply.headers)) == (status, "error", type_, headers)


def test_a_final_refusal_holds_no_digit_and_no_word_on_which_agents_try_again() -> None:
    assert is_final_wording(MESSAGES.reply(wording(ReplyKind.FINAL)).body.decode())
    assert is_final_wording(MESSAGES.error_event(wording(ReplyKind.FINAL)).decode())


def test_a_prompt_above_the_context_says_so_in_the_words_on_which_agents_compact() -> None:
    told = MESSAGES.reply(wording(ReplyKind.CONTEXT_OVERFLOW, "context_overflow", prompt_tokens=20, context_tokens=10))
    assert json.loads(told.body)["error"]["message"] == "prompt is too long: 20 tokens > 10 maximum"
    silent = MESSAGES.reply(wording(ReplyKind.CONTEXT_OVERFLOW, "context_overflow"))
    assert json.loads(silent.body)["error"]["message"] == "prompt is too long"


def test_a_cut_ends_as_an_error_event() -> None:
    event = MESSAGES.error_event(wording(ReplyKind.FINAL, "run_closed"))
    assert event.startswith(b"event: error\ndata: ") and event.endswith(b"}\n\n")
    assert json.loads(event.partition(b"data: ")[2])["error"]["type"] == "billing_error"


def test_models_are_listed_in_anthropics_form() -> None:
    listed = json.loads(models_reply(["a", "b"]).body)
    assert [one["id"] for one in listed["data"]] == ["a", "b"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b", False)
    assert json.loads(models_reply([]).body)["first_id"] is None


# -- answers that no fixture has


def events(*values: Any) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (value["type"].encode(), json.dumps(value).encode()) for value in values)


def start(message_id: str = "msg_1", **usage: int) -> Any:
    return {"type": "message_start", "message": {"id": message_id, "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}}


def delta(reason: str | None = "end_turn", **usage: Any) -> Any:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


TEXT: Any = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
STOP: Any = {"type": "message_stop"}


def reading(body: bytes, status: int = 200, kind: str = "text/event-stream") -> Reading:
    case = Case("made", {"model": "m", "messages": SAY, "stream": True}, "generic", status, {"content-type": kind}, body, {}, dialect="anthropic.messages")
    whole = replay(case).reading
    assert replay(case, range(1, len(body))).reading == whole
    return whole


def counts(found: Reading) -> tuple[int | None, int | None, int | None, str]:
    return found.usage.input_tokens, found.usage.output_tokens, found.usage.cached_tokens, str(found.source)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((start(input_tokens=0, output_tokens=0), TEXT, delta(input_tokens=31, output_tokens=9), STOP), (31, 9, None, "reported")),
        ((start(input_tokens=31, output_tokens=0), TEXT, delta(input_tokens=0, output_tokens=9), STOP), (31, 9, None, "reported")),
        ((start(input_tokens=30, output_tokens=0), TEXT, delta(input_tokens=6, cache_read_input_tokens=24, output_tokens=9), STOP), (30, 9, 24, "reported")),
        ((start(input_tokens=6, cache_read_input_tokens=24), TEXT, delta(input_tokens=30, output_tokens=9), STOP), (30, 9, None, "reported")),
        ((start(input_tokens=0, cache_read_input_tokens=24), TEXT, delta(output_tokens=9), STOP), (24, 9, 24, "reported")),
        ((start(input_tokens=30, output_tokens=1), TEXT, delta(None, output_tokens=4), delta(output_tokens=9), STOP), (30, 9, None, "reported")),
        ((start(input_tokens=30, output_tokens=1), TEXT, delta(None, output_tokens=4)), (30, 4, None, "estimated")),
        ((start(input_tokens=30, output_tokens=1), TEXT, delta(None, output_tokens=4), STOP), (30, 4, None, "reported")),
        ((start(input_tokens=30, output_tokens=1), TEXT, delta(output_tokens=4)), (30, 4, None, "reported")),
        ((TEXT, delta(output_tokens=4), STOP), (None, 4, None, "missing")),
        ((start(input_tokens=-5, output_tokens=1), TEXT, delta(output_tokens=4), STOP), (None, 4, None, "missing")),
        ((start(input_tokens=5), TEXT, delta(output_tokens="4"), STOP), (5, None, None, "missing")),
        ((start(input_tokens=5), TEXT, delta(output_tokens=4.0), STOP), (5, 4, None, "reported")),
        ((start(input_tokens=5), TEXT, STOP), (5, None, None, "missing")),
        ((start(input_tokens=5, output_tokens=0), delta(output_tokens=0), STOP), (5, 0, None, "reported")),
        ((start(input_tokens=5), TEXT, start("msg_2", input_tokens=7), TEXT, delta(output_tokens=4), STOP), (7, 4, None, "reported")),
        ((start(input_tokens=5), TEXT, start("msg_1", input_tokens=7), TEXT, delta(output_tokens=4), STOP), (7, 4, None, "reported")),
    ],
)
def test_the_input_side_is_a_set_and_the_output_the_latest(answer: Any, expected: Any) -> None:
    assert counts(reading(events(*answer))) == expected


def test_an_end_without_message_stop_is_no_success() -> None:
    found = reading(events(start(input_tokens=30), TEXT, delta(output_tokens=4)))
    assert (found.completed, str(found.error_class), found.finish_reason) == (False, "truncated", "end_turn")


def test_a_second_message_in_one_stream_is_flagged_and_its_own_tools_are_counted() -> None:
    use = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t1", "name": "f", "input": {}}}
    again = {**use, "content_block": {**use["content_block"], "id": "t2"}}
    found = reading(events(start(input_tokens=5), use, start("msg_2", input_tokens=7), again, delta(output_tokens=4), STOP))
    assert "second_message_start" in found.anomalies
    assert (found.usage.tool_calls, found.tool_call_ids, found.response_id) == (2, ("t1", "t2"), "msg_1")


def test_counts_in_an_error_event_are_taken_and_the_call_has_failed() -> None:
    failed = {"type": "error", "error": {"type": "api_error", "message": "x"}, "usage": {"output_tokens": 9}}
    found = reading(events(start(input_tokens=5), TEXT, failed))
    assert (found.completed, str(found.error_class), counts(found)) == (False, "mid_stream_error", (5, 9, None, "estimated"))


def test_done_after_message_stop_and_broken_events_change_nothing() -> None:
    whole = (
        events(start(input_tokens=5), TEXT) + b"event: content_block_delta\ndata: {\xff broken\n\n" + events(delta(output_tokens=4), STOP) + b"data: [DONE]\n\n"
    )
    found = reading(whole)
    assert found.completed
    assert counts(found) == (5, 4, None, "reported")
    assert "bad_json_frame" in found.anomalies


@pytest.mark.parametrize(
    ("body", "status", "class_"),
    [
        (b"<html>", 502, "server_error"),
        (b"", 500, "server_error"),
        (b"{}", 403, "auth"),
        (b"{}", 413, "invalid_request"),
        (b"{}", 501, "server_error"),
        (b'{"broken', 200, "truncated"),
        (b'{"type":"error","error":{"type":"api_error","message":"x"}}', 200, "error_in_200"),
        (b'{"ok":true}', 200, "error_in_200"),
        (b"[1]", 200, "error_in_200"),
        (b"null", 200, "error_in_200"),
        (b'{"type":"error","error":{"type":"x","message":"y","code":"context_length_exceeded"}}', 400, "context_overflow"),
    ],
)
def test_a_body_that_is_no_message_is_an_error(body: bytes, status: int, class_: str) -> None:
    found = reading(body, status, "application/json")
    assert (found.completed, str(found.error_class), found.source) == (False, class_, MeterSource.MISSING)


def test_a_forged_length_end_closes_the_open_block_and_says_what_was_used() -> None:
    begun = events(start(input_tokens=5), {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}}, TEXT)
    cut = reading(begun)
    assert cut.open_block == 3
    made = MESSAGES.length_end(cut, read(), None)
    ended = reading(begun + MESSAGES.length_end(cut, read(), cut.usage.__class__(input_tokens=5, output_tokens=2)))
    assert b'"content_block_stop","index":3' in made
    assert (ended.completed, ended.finish_reason, ended.usage.output_tokens) == (True, "max_tokens", 2)


def test_it_is_declared() -> None:
    assert DIALECTS["anthropic.messages"].name == MESSAGES.name
