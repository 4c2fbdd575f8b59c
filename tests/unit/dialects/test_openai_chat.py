"""What a chat body asks for, what it may not hold, and how it is sent on."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import DIALECTS, FAMILIES, UTILITIES
from gateway.dialects.barred import GUARDED, NOTHING, REMOTE, THING_OF, Allowed, key_of, tool_thing
from gateway.dialects.dialect import BodyError, CallRequest, ForwardFacts
from gateway.dialects.openai_settings import CHOICES_MAX
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA
from gateway.dialects.retry_words import is_final_wording
from tests.unit.dialects.allowing import allowing

CHAT = DIALECTS["openai.chat"]
LLAMA = ForwardFacts(model="own", cap_name="max_tokens", strip_fields=frozenset({"verbose", "n_predict"}), asks_usage=False)
VLLM = ForwardFacts(model="own", cap_name="max_completion_tokens", pin_fields={"cache_prompt": "true"}, request_id_field="rid")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}


def read(**fields: Any) -> CallRequest:
    return CHAT.read_request(body(**fields))


def refused(allowed: Allowed = NOTHING, **fields: Any) -> BodyError:
    with pytest.raises(BodyError) as caught:
        CHAT.read_request(body(**fields), allowed)
    return caught.value


def part(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "see https://example.org"}, fields]}]


def test_every_family_but_the_lists_of_models_and_the_utilities_has_its_dialect() -> None:
    assert {name for name in FAMILIES.values() if name not in DIALECTS} == {"openai.models", "ollama.tags", *UTILITIES}
    assert FAMILIES["POST", "/v1/chat/completions"] == "openai.chat"


def test_a_plain_body_is_read() -> None:
    request = read()
    assert (request.model, request.stream, request.asked_output, request.min_output, request.choices, request.prompts) == ("m", False, None, None, 1, 1)
    assert (request.usage_asked, request.pictures, request.has_tools, request.tool_names) == (False, 0, False, ())
    assert request.rendered_parts == ("user", "hello")


@pytest.mark.parametrize(
    ("caps", "asked"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 10**30}, 2**53 - 1),
        ({"max_tokens": 100, "max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "n_predict": -1}, 5),
        ({name: 100 + at for at, name in enumerate(CAPS)}, 100),
    ],
)
def test_the_smallest_of_all_aliases_is_what_is_asked(caps: dict[str, Any], asked: int | None) -> None:
    assert read(**caps).asked_output == asked


@pytest.mark.parametrize("name", [*CAPS, *MINIMA, "n"])
@pytest.mark.parametrize("value", [-2, 1.0, 2.5, "10", True, False, [1], {"a": 1}])
def test_a_number_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.code, error.field_name) == ("body_invalid", name)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages.content"),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages.content.type"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools.function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.function.name"),
        ({"tools": [{"type": 5}]}, "tools.type"),
        ({"functions": [{}]}, "name"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
    ],
)
def test_a_wrong_type_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    error = refused(**fields)
    assert (error.code, error.field_name, error.allow_key) == ("body_invalid", name, "")


def test_how_many_choices_there_may_be_is_told_and_makes_nobody_try_again() -> None:
    message = refused(n=129).message
    assert message == "The field n must be at most one hundred and twenty-eight."
    assert read(n=128, stream=True).choices == CHOICES_MAX == 128
    assert is_final_wording(message)


@pytest.mark.parametrize("name", ["Max_Tokens", "MAX_COMPLETION_TOKENS", "N", "Stream", "MODEL", "max_to\u212aens", "\u017ftore", "Temperature", "ID_SLOT"])
def test_a_name_that_only_its_case_sets_apart_is_refused(name: str) -> None:
    """Some servers read names in any case, and the last one counts."""
    error = refused(max_tokens=5, **{name: 5000})
    assert (error.code, error.field_name) == ("body_invalid", name)
    assert error.message == f"The field {name} must be spelled {name.casefold()}."


def test_a_name_that_means_nothing_may_be_written_in_any_case() -> None:
    assert read(userId="a", Whatever=1).model == "m"


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_a_guarded_field_is_refused_unless_it_asks_for_nothing_or_the_policy_allows_it(name: str) -> None:
    error = refused(**{name: "value"})
    assert (error.code, error.field_name, error.allow_key) == ("not_allowed", name, key_of(THING_OF[name]))
    assert name in error.message
    for harmless in (None, *GUARDED[name]):
        assert read(**{name: harmless})
    assert CHAT.read_request(body(**{name: "value"}), allowing(THING_OF[name]))


def test_what_looks_like_nothing_but_is_of_another_type_is_refused() -> None:
    assert refused(store=0).field_name == "store"
    assert refused(priority=False).field_name == "priority"
    assert refused(store=True).field_name == "store"


HOSTED = ["web_search", "web_search_preview", "code_interpreter", "file_search", "mcp", "computer_use_preview", "namespace", "retrieval", ""]


@pytest.mark.parametrize("kind", HOSTED)
def test_a_hosted_tool_is_refused(kind: str) -> None:
    tool = {"type": kind, kind: {"name": "f"}}
    error = refused(tools=[{"type": "function", "function": {"name": "f"}}, tool])
    assert (error.code, error.field_name, error.allow_key) == ("not_allowed", "tools", key_of(tool_thing(kind)))
    assert CHAT.read_request(body(tools=[tool]), allowing("hosted_tools")).tool_names == (kind,)
    assert CHAT.read_request(body(tools=[tool]), allowing(tool_thing(kind)))


def test_tools_that_the_agent_runs_itself_pass() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}, {"function": {"name": "g"}}, {"type": "custom", "custom": {"name": "h"}}]
    request = read(tools=tools, functions=[{"name": "old"}])
    assert (request.tool_names, request.has_tools) == (("f", "g", "h", "old"), True)


DATA = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
        {"type": "image_url", "image_url": DATA.upper().replace("DATA", "Data")},
        {"type": "input_audio", "input_audio": {"data": "//uQxAAA", "format": "mp3"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "../a.pdf"}},
        {"type": "text", "text": "file:///etc/passwd", "cache_control": {"type": "ephemeral"}},
        {"type": "refusal", "refusal": "https://example.org"},
    ],
)
def test_content_that_lies_in_the_body_passes(fields: dict[str, Any]) -> None:
    assert read(messages=part(**fields)).pictures == (1 if "image_url" in fields else 0)


ELSEWHERE = ["http://h/a.png", "https://h/a", " HTTPS://h", "//h/a", "file:///etc/passwd", "/etc/passwd", "a.png", "ftp://h/a", "s3:x", ""]


@pytest.mark.parametrize("address", ELSEWHERE)
@pytest.mark.parametrize("kind", ["image_url", "audio_url", "video_url", "input_image"])
def test_content_that_lies_elsewhere_is_refused(address: str, kind: str) -> None:
    for held in (address, {"url": address}, [{"url": address}], {"inner": {"url": address}}):
        error = refused(messages=part(type=kind, **{kind: held}))
        assert (error.code, error.field_name, error.allow_key) == ("not_allowed", kind, key_of(REMOTE[kind]))
    assert CHAT.read_request(body(messages=part(type=kind, **{kind: address})), allowing(REMOTE[kind]))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, "file_id"),
        ({"type": "input_audio", "input_audio": {"data": "https://h/a.wav"}}, "input_audio"),
        ({"type": "input_file", "file_url": "https://h/a.pdf"}, "input_file"),
        ({"type": "text", "text": "x", "image_url": {"url": "https://h"}}, "content"),
        ({"type": "new_kind", "source": {"type": "url", "url": "https://h"}}, "content"),
        ({"type": "new_kind", "source": "https://h"}, "content"),
    ],
)
def test_references_are_refused_wherever_they_hide(fields: dict[str, Any], name: str) -> None:
    assert refused(messages=part(**fields)).field_name == name


def test_a_reference_to_earlier_audio_is_refused() -> None:
    assert refused(messages=[{"role": "assistant", "audio": {"id": "audio_1"}}]).field_name == "messages.audio.id"


def test_every_text_that_a_template_can_render_is_a_part() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "rules"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "one"}, "two", {"type": "image_url", "image_url": {"url": DATA}}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    request = read(messages=messages, tools=[tool], response_format={"type": "json_schema"}, chat_template_kwargs={"k": "v"}, temperature=1)
    compact = [json.dumps(value, separators=(",", ":")) for value in ([call], tool, {"type": "json_schema"}, {"k": "v"})]
    words = ["system", "rules", "user", "ann", "one", "two", "assistant", "hm", compact[0], "tool", "call_1", "done", *compact[1:]]
    assert list(request.rendered_parts) == words
    assert request.pictures == 1


def test_one_cap_is_sent_under_the_engines_own_name_and_every_alias_is_gone() -> None:
    request = read(**dict.fromkeys(CAPS, 9_000), stream=False)
    for facts in (LLAMA, VLLM):
        sent = CHAT.forward_body(request, facts, ceiling_per_choice=40)
        assert {name: value for name, value in sent.items() if name in CAPS} == {facts.cap_name: 40}


def test_minima_and_thinking_budgets_are_lowered_with_the_cap() -> None:
    request = read(
        **dict.fromkeys(MINIMA, 90), **dict.fromkeys(BUDGETS, 90.5), reasoning={"max_tokens": 90, "effort": "low"}, chat_template_kwargs={"thinking_budget": 7}
    )
    before = deepcopy(request.body)
    sent = CHAT.forward_body(request, LLAMA, ceiling_per_choice=40)
    assert {sent[name] for name in (*MINIMA, *BUDGETS)} == {40}
    assert sent["reasoning"] == {"max_tokens": 40, "effort": "low"}
    assert sent["chat_template_kwargs"] == {"thinking_budget": 7}
    assert request.body == before
    assert request.min_output == 90


def test_what_an_engine_must_not_see_is_stripped_and_what_it_must_is_pinned() -> None:
    request = read(verbose=True, rid="mine", request_id="mine", response_fields=["content"], sse_ping_interval=0, cache_prompt=False, temperature=0.5, x_new=1)
    sent = CHAT.forward_body(request, LLAMA, ceiling_per_choice=1, call_id="call-1")
    assert set(sent) == {"model", "messages", "cache_prompt", "temperature", "x_new", "max_tokens"}
    assert sent["model"] == "own"
    pinned = CHAT.forward_body(request, VLLM, ceiling_per_choice=1, call_id="call-1")
    assert (pinned["cache_prompt"], pinned["rid"], pinned["verbose"]) == (True, "call-1", True)


@pytest.mark.parametrize(
    ("stream", "asked", "llama", "vllm"),
    [
        (True, None, "absent", {"include_usage": True}),
        (True, {"include_usage": False, "x": 1}, {"include_usage": False, "x": 1}, {"include_usage": True, "x": 1}),
        (True, {"include_usage": True}, {"include_usage": True}, {"include_usage": True}),
        (False, {"include_usage": True}, "absent", "absent"),
        (None, None, "absent", "absent"),
    ],
)
def test_usage_is_asked_for_in_streams_of_engines_that_do_not_report_unasked(stream: bool | None, asked: Any, llama: Any, vllm: Any) -> None:
    request = read(stream=stream, **({} if asked is None else {"stream_options": asked}))
    assert CHAT.forward_body(request, LLAMA, ceiling_per_choice=1).get("stream_options", "absent") == llama
    assert CHAT.forward_body(request, VLLM, ceiling_per_choice=1).get("stream_options", "absent") == vllm
    assert request.usage_asked == bool(stream and asked and asked["include_usage"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["user", "https://h", "function", "text", "\ud800", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "url", "function"]), inner, max_size=3),
    max_leaves=8,
)
KNOWN = ["model", "messages", "stream", "stream_options", "tools", "functions", "n", "thinking"]
FIELDS = st.sampled_from([*KNOWN, *CAPS, *BUDGETS, *MINIMA, *sorted(GUARDED), "x"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(FIELDS, VALUES, max_size=6), st.integers(0, 100))
def test_any_body_is_read_or_refused_by_name_and_never_passes_its_ceiling(fields: dict[str, Any], ceiling: int) -> None:
    given = body(**fields)
    before = deepcopy(given)
    try:
        request = CHAT.read_request(given)
    except BodyError as error:
        assert error.code in {"body_invalid", "not_allowed"}
        assert error.field_name
        return
    sent = CHAT.forward_body(request, LLAMA, ceiling_per_choice=ceiling)
    assert given == before
    assert [sent[name] for name in CAPS if name in sent] == [ceiling]
    assert all(sent[name] <= ceiling for name in (*MINIMA, *BUDGETS) if isinstance(sent.get(name), int | float))
