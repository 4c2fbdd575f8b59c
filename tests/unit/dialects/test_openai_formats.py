"""What bodies of completions, Responses, embeddings and rerank ask for, what they may not hold, and how they are sent on."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import MeterSource, Reading, Usage
from gateway.dialects import DIALECTS
from gateway.dialects.barred import GUARDED, NOTHING, THING_OF, Allowed, key_of, tool_thing
from gateway.dialects.dialect import BodyError, CallRequest, ForwardFacts, Rendering, ReplyKind, Wording
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA
from tests.unit.dialects.allowing import allowing

FACTS = ForwardFacts(model="own", cap_name="max_tokens", strip_fields=frozenset({"verbose", "n_predict"}), pin_fields={"cache_prompt": "true"})
PLAINEST: dict[str, dict[str, Any]] = {
    "openai.completions": {"prompt": "hello"},
    "openai.responses": {"input": "hello"},
    "openai.embeddings": {"input": "hello"},
    "rerank": {"query": "hello", "documents": ["a", "b"]},
}
GENERATING = ["openai.completions", "openai.responses"]
formats = pytest.mark.parametrize("name", PLAINEST)
generating = pytest.mark.parametrize("name", GENERATING)


def read(name: str, allowed: Allowed = NOTHING, **fields: Any) -> CallRequest:
    return DIALECTS[name].read_request({"model": "m", **PLAINEST[name], **fields}, allowed)


def refused(name: str, allowed: Allowed = NOTHING, **fields: Any) -> BodyError:
    with pytest.raises(BodyError) as caught:
        read(name, allowed, **fields)
    return caught.value


def sent(name: str, ceiling: int = 40, facts: ForwardFacts = FACTS, **fields: Any) -> dict[str, Any]:
    return DIALECTS[name].forward_body(read(name, **fields), facts, ceiling_per_choice=ceiling, call_id="call-1")


# -- what is asked


@formats
def test_the_plainest_body_is_read(name: str) -> None:
    request = read(name)
    generates = name in GENERATING
    assert (request.model, request.stream, request.choices, request.pictures, request.has_tools) == ("m", False, 1, 0, False)
    assert (request.generates, request.asked_output) == ((True, None) if generates else (False, 0))
    assert "hello" in request.rendered_parts


@generating
def test_the_smallest_of_all_aliases_is_what_is_asked(name: str) -> None:
    for cap in CAPS:
        assert read(name, **{cap: 7}).asked_output == 7
        assert read(name, **dict.fromkeys(CAPS, 9)).asked_output == 9
    assert read(name, max_tokens=5, n_predict=-1, max_output_tokens=None).asked_output == 5


@pytest.mark.parametrize(
    ("prompt", "prompts", "texts", "ids", "begins"),
    [
        ("a", 1, ("a",), 0, 1),
        ("", 1, ("",), 0, 1),
        (["a", "b"], 2, ("a", "b"), 0, 2),
        ([1, 2, 3, 4], 1, (), 4, 0),
        ([[1, 2], [3]], 2, (), 3, 0),
        ([1, "two", 3], 1, ("two",), 2, 0),
        (["one", 2], 1, ("one",), 1, 1),
        (["a", [1, 2], ["b", 3]], 3, ("a", "b"), 3, 2),
    ],
)
def test_one_prompt_and_many_are_told_apart(prompt: object, prompts: int, texts: tuple[str, ...], ids: int, begins: int) -> None:
    for name, field in (("openai.completions", "prompt"), ("openai.embeddings", "input")):
        request = read(name, **{field: prompt})
        assert (request.prompts, request.prompt_texts, request.prompt_ids, request.prompt_begins) == (prompts, texts, ids, begins)
        assert request.rendering is Rendering.PLAIN


@pytest.mark.parametrize("prompt", [None, [], 5, {"prompt_string": "a", "multimodal_data": ["AAAA"]}, [{}], [[]], [1, -2], [1, True], [1, 2.5], [["a"], 5.0]])
def test_what_is_no_prompt_is_refused(prompt: object) -> None:
    assert refused("openai.completions", prompt=prompt).field_name == "prompt"
    assert refused("openai.embeddings", input=prompt).field_name == "input"


def test_choices_times_prompts_is_bounded() -> None:
    request = read("openai.completions", prompt=["a", "b", "c"], n=4)
    assert (request.choices, request.prompts) == (4, 3)
    assert refused("openai.completions", prompt=["a"] * 2_049).field_name == "prompt"
    assert refused("openai.completions", prompt=["a"] * 100, n=100).field_name == "n"
    assert refused("openai.completions", n=129).field_name == "n"
    assert refused("rerank", documents=["a"] * 2_049).field_name == "documents"


def test_best_of_passes_only_where_it_asks_for_no_more_than_n() -> None:
    assert read("openai.completions", n=3, best_of=3).choices == 3
    assert read("openai.completions", best_of=1).choices == 1
    assert refused("openai.completions", n=2, best_of=3).field_name == "best_of"
    assert "best_of" not in sent("openai.completions", n=3, best_of=3)


def test_every_text_of_a_responses_body_is_a_part() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    items = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "xyz"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "three"}]},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "four"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "five", "annotations": [{"type": "url_citation", "url": "https://h"}]}]},
    ]
    request = read("openai.responses", input=items, instructions="rules", tools=[tool], text={"format": {"type": "json_schema", "schema": {"x": 1}}})
    text = "\n".join(request.rendered_parts)
    assert all(word in text for word in ("rules", "one", "two", "hm", "xyz", "three", "four", "five", '"x":1', "{}"))
    assert json.dumps(tool, separators=(",", ":")) in request.rendered_parts
    assert (request.pictures, request.tool_names, request.has_tools, request.rendering) == (1, ("f",), True, Rendering.RESPONSES)
    assert request.sizes is not None
    assert (request.sizes.messages, request.sizes.tools, request.sizes.tool_calls) == (8, 1, 1)
    assert request.sizes.tool_bytes == len(json.dumps(tool, separators=(",", ":")))


def test_a_query_counts_once_for_each_document() -> None:
    request = read("rerank", query="q", documents=["a", {"text": "b"}, "c"])
    assert request.prompt_texts == ("q", "a", "q", "b", "q", "c")
    assert (request.prompts, request.sizes is not None and request.sizes.messages) == (3, 3)


# -- what may not be held


@formats
@pytest.mark.parametrize("field", sorted(GUARDED))
def test_a_guarded_field_is_refused_in_every_format(name: str, field: str) -> None:
    error = refused(name, **{field: "value"})
    assert (error.code, error.field_name, error.allow_key) == ("not_allowed", field, key_of(THING_OF[field]))
    for harmless in (None, *GUARDED[field]):
        assert read(name, **{field: harmless})
    assert read(name, allowing(THING_OF[field]), **{field: "value"})


@formats
def test_a_prompt_in_another_formats_field_is_refused(name: str) -> None:
    for field in {"messages", "input", "prompt"} - PLAINEST[name].keys():
        error = refused(name, **{field: [{"role": "user", "content": "unseen"}]})
        assert error.field_name == field


@formats
@pytest.mark.parametrize(("field", "value"), [("model", ""), ("model", 5), ("stream", "yes"), ("stream", 1)])
def test_a_wrong_type_is_refused_by_name(name: str, field: str, value: object) -> None:
    assert refused(name, **{field: value}).field_name == field


@pytest.mark.parametrize("name", ["openai.embeddings", "rerank"])
def test_what_generates_nothing_does_not_stream(name: str) -> None:
    assert refused(name, stream=True).field_name == "stream"
    assert "stream" not in sent(name, stream=False)


@pytest.mark.parametrize(("field", "value"), [("prompt", {"id": "p"}), ("context_management", [{"type": "compaction"}]), ("conversation", {"id": "c"})])
def test_state_and_work_beside_the_answer_are_refused(field: str, value: object) -> None:
    error = refused("openai.responses", **{field: value})
    assert (error.code, error.field_name) == ("not_allowed", field)


HOSTED = [
    {"type": "web_search", "external_web_access": False}, {"type": "web_search_preview"}, {"type": "file_search", "vector_store_ids": ["v"]},
    {"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "computer_use_preview"}, {"type": "image_generation"},
    {"type": "mcp", "server_url": "http://h"}, {"type": "shell", "environment": {"type": "container_auto"}}, {"type": "shell"}, {"type": "tool_search"},
    {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}, {"type": ""},
]  # fmt: skip


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_a_hosted_tool_is_refused(tool: dict[str, Any]) -> None:
    error = refused("openai.responses", tools=[{"type": "function", "name": "f"}, tool])
    assert (error.code, error.field_name, error.allow_key) == ("not_allowed", "tools", key_of(tool_thing(str((tool.get("tools") or [tool])[0]["type"]))))
    assert read("openai.responses", allowing("hosted_tools"), tools=[tool])


def test_tools_that_the_agent_runs_itself_pass() -> None:
    inner = [{"type": "function", "name": "g"}, {"type": "custom", "name": "h"}]
    tools = [
        {"type": "function", "name": "f"}, {"type": "namespace", "name": "n", "tools": inner}, {"type": "local_shell"}, {"type": "apply_patch"},
        {"type": "shell", "environment": {"type": "local"}}, {"type": "tool_search", "execution": "client"},
    ]  # fmt: skip
    assert read("openai.responses", tools=tools).tool_names == ("f", "g", "h", "local_shell", "apply_patch", "shell", "tool_search")


def nested(depth: int) -> dict[str, Any]:
    return {"type": "namespace", "name": "n", "tools": [nested(depth - 1)] if depth else []}


def test_namespaces_are_not_nested_without_end() -> None:
    assert read("openai.responses", tools=[nested(3)])
    assert refused("openai.responses", tools=[nested(6)]).field_name == "tools"


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"type": "item_reference", "id": "i"}, "input.item_reference"),
        ({"type": "message", "id": "i"}, "input.item_reference"),
        ({"id": "i"}, "input.item_reference"),
        ({"type": "mcp_approval_response", "approve": True}, "input.mcp_approval_response"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "https://h/a.png"}]}, "input_image"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "file_id"),
        ({"role": "user", "content": [{"type": "input_file", "file_url": "https://h/a.pdf"}]}, "input_file"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "file_id"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x", "image_url": {"url": "http://h"}}]}, "content"),
        ({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "file:///etc/passwd"}]}, "input_image"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "http://h"}}, "computer_screenshot"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "file_id": "f"}}, "file_id"),
    ],
)
def test_what_lies_outside_the_body_is_refused(item: dict[str, Any], name: str) -> None:
    error = refused("openai.responses", input=[{"role": "user", "content": "see https://example.org"}, item])
    assert (error.code, error.field_name) == ("not_allowed", name)


@pytest.mark.parametrize(
    "value", [None, "", [], 5, {}, ["text"], [{"type": 5}], [{"type": "message", "role": 5, "content": "x"}], [{"role": "user", "content": 5}]]
)
def test_what_is_no_input_is_refused(value: object) -> None:
    assert refused("openai.responses", input=value).code == "body_invalid"


@pytest.mark.parametrize("value", [None, [], "a", [5], [{"text": "a", "image": "https://h"}], [{"text": 5}]])
def test_what_are_no_documents_is_refused(value: object) -> None:
    assert refused("rerank", documents=value).field_name == "documents"


# -- how it is sent


@generating
def test_one_cap_is_sent_under_the_engines_own_name_and_every_alias_is_gone(name: str) -> None:
    everything: dict[str, Any] = {**dict.fromkeys(CAPS, 9_000), **dict.fromkeys(MINIMA, 500), **dict.fromkeys(BUDGETS, 500)}
    for cap in ("max_tokens", "max_output_tokens"):
        body = sent(name, facts=ForwardFacts(model="own", cap_name=cap), **everything)
        assert {field: body[field] for field in CAPS if field in body} == {cap: 40}
        assert all(body[field] == 40 for field in (*MINIMA, *BUDGETS))


@pytest.mark.parametrize("name", ["openai.embeddings", "rerank"])
def test_what_generates_nothing_is_sent_no_cap(name: str) -> None:
    body = sent(name, facts=ForwardFacts(model="own", cap_name=""), **dict.fromkeys(CAPS, 9_000))
    assert not body.keys() & {*CAPS, ""}
    assert body["model"] == "own"


@formats
def test_fields_that_are_not_the_gateways_business_pass_unchanged_and_the_body_is_not_touched(name: str) -> None:
    fields = {"user": "u", "metadata": {"a": 1}, "seed": 7, "verbose": True, "rid": "mine"}
    before = {"model": "m", **PLAINEST[name], **deepcopy(fields)}
    request = DIALECTS[name].read_request(before)
    body = DIALECTS[name].forward_body(request, FACTS, ceiling_per_choice=3, call_id="call-1")
    assert {field: body[field] for field in (*PLAINEST[name], "user", "metadata", "seed")} == {**PLAINEST[name], "user": "u", "metadata": {"a": 1}, "seed": 7}
    assert not body.keys() & {"verbose", "rid"} and body["cache_prompt"] is True
    assert before == {"model": "m", **PLAINEST[name], **fields}


def test_usage_is_asked_for_on_completions_that_stream_and_nowhere_else() -> None:
    assert sent("openai.completions", stream=True)["stream_options"] == {"include_usage": True}
    assert sent("openai.completions", stream=True, stream_options={"include_usage": False, "x": 1})["stream_options"] == {"include_usage": True, "x": 1}
    assert "stream_options" not in sent("openai.completions", stream_options={"include_usage": True})
    assert "stream_options" not in sent("openai.responses", stream=True)
    unasked = ForwardFacts(model="own", cap_name="max_tokens", asks_usage=False)
    assert "stream_options" not in sent("openai.completions", facts=unasked, stream=True)


# -- how it ends


def events(raw: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in raw.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        data = fields[b"data"]
        found.append((fields.get(b"event", b"").decode(), data.decode() if data == b"[DONE]" else json.loads(data)))
    return found


READING = Reading(usage=Usage(), source=MeterSource.MISSING, status=200, completed=False, response_id="id-1", model="own", finish_reasons=("stop", None))


def test_a_cut_of_responses_is_a_failed_response_with_the_code_that_stops_clients_and_all_else_is_an_error() -> None:
    [(name, event)] = events(DIALECTS["openai.responses"].error_event(Wording(kind=ReplyKind.FINAL, code="run_closed", message="Closed.")))
    assert name == event["type"] == "response.failed"
    assert (event["response"]["status"], event["response"]["error"]) == ("failed", {"code": "insufficient_quota", "message": "Closed."})
    [(name, event)] = events(DIALECTS["openai.responses"].error_event(Wording(kind=ReplyKind.UNAVAILABLE, code="engine_died", message="Died.")))
    assert (name, event["type"], event["code"], event["message"], event["param"]) == ("error", "error", "engine_died", "Died.", None)


def test_responses_that_reached_the_ceiling_end_incomplete_with_usage() -> None:
    request = read("openai.responses", stream=True)
    raw = DIALECTS["openai.responses"].length_end(READING, request, Usage(input_tokens=9, output_tokens=4, cached_tokens=3))
    [(name, event)] = events(raw)
    response = event["response"]
    assert (name, response["id"], response["status"]) == ("response.incomplete", "id-1", "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    details: dict[str, Any] = {"input_tokens_details": {"cached_tokens": 3}, "output_tokens_details": {"reasoning_tokens": 0}}
    assert response["usage"] == {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, **details}
    [(_, event)] = events(DIALECTS["openai.responses"].length_end(READING, request, None))
    assert event["response"]["usage"] is None, "an unknown number is not zero"


def test_completions_that_reached_the_ceiling_end_every_choice_that_runs() -> None:
    request = read("openai.completions", prompt=["a", "b"], n=2, stream=True, stream_options={"include_usage": True})
    *ends, usage, done = events(DIALECTS["openai.completions"].length_end(READING, request, Usage(input_tokens=9, output_tokens=4)))
    assert [(event["choices"][0]["index"], event["choices"][0]["finish_reason"], event["choices"][0]["text"]) for _, event in ends] == [
        (index, "length", "") for index in (1, 2, 3)
    ]
    assert usage[1]["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13} and done[1] == "[DONE]"


@formats
@pytest.mark.parametrize(
    ("kind", "status"),
    [(ReplyKind.FINAL, 0), (ReplyKind.PROMPT_ABOVE_CAP, 0), (ReplyKind.PASSING, 429), (ReplyKind.GUARD, 400), (ReplyKind.CONTEXT_OVERFLOW, 400)],
)
def test_a_refusal_has_its_formats_status(name: str, kind: ReplyKind, status: int) -> None:
    reply = DIALECTS[name].reply(Wording(kind=kind, code="run_budget_reached", message="Reached."))
    final = 400 if name == "openai.responses" else 404
    assert reply.status == (status or final)
    assert reply.headers.get("x-should-retry") == (None if kind is ReplyKind.PASSING else "false")
    assert DIALECTS[name].reply(Wording(kind=ReplyKind.FINAL, code="run_closed", message="Closed.", status=410)).status == 410


# -- anything at all

NAMES = st.sampled_from(["type", "role", "content", "text", "id", "name", "tools", "output"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([*CAPS, "input", "prompt", "documents", "query", "tools", "instructions", "text", "stream", "stream_options", "n", "best_of", "store"])


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(PLAINEST)), st.dictionaries(FIELDS, JSON, max_size=5))
def test_any_body_is_read_or_refused_by_name_and_what_is_sent_has_one_cap(name: str, fields: dict[str, Any]) -> None:
    try:
        request = read(name, **fields)
    except BodyError as error:
        assert error.code in ("body_invalid", "not_allowed") and error.field_name
        return
    body = DIALECTS[name].forward_body(request, FACTS, ceiling_per_choice=5)
    assert {field: body[field] for field in CAPS if field in body} == ({"max_tokens": 5} if request.generates else {})
    assert request.prompts * request.choices >= 1
