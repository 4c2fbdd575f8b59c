"""Whatever JSON comes, from an agent or from an engine, no format chokes on it: a body is read or refused, an answer is read or is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.dialects.dialect import BodyError, CallRequest, Dialect, ForwardFacts, Rendering, ReplyKind, Wording
from gateway.metering.framing import FrameKind
from gateway.metering.meter import meter_of

WORDS = (
    "model", "messages", "role", "content", "type", "text", "image", "source", "url", "data", "tool_use", "tool_result", "input", "prompt", "options",
    "num_predict", "max_tokens", "n", "stream", "tools", "name", "images", "system", "thinking", "parameters", "inputs", "sampling_params", "input_ids",
    "usage", "input_tokens", "output_tokens", "cache_read_input_tokens", "message", "delta", "stop_reason", "message_start", "message_delta", "message_stop",
    "content_block_start", "content_block_delta", "content_block", "index", "partial_json", "done", "done_reason", "response", "eval_count",
    "prompt_eval_count", "tool_calls", "function", "arguments", "stop", "tokens_predicted", "tokens_evaluated", "timings", "cache_n", "prompt_n", "token",
    "generated_text", "details", "generated_tokens", "input_length", "meta_info", "finish_reason", "prompt_tokens", "completion_tokens", "chat.end", "result",
    "stats", "total_output_tokens", "output", "error", "id", "embeddings", "embedding", "choices", "created", "item", "response.completed", "logprobs",
    "documents", "query", "results",
)  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 40), st.floats(allow_nan=False), st.sampled_from(WORDS), st.text(max_size=4))
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5), max_leaves=14)
OBJECTS = st.dictionaries(st.sampled_from(WORDS), JSON, max_size=7)
FACTS = ForwardFacts(model="m", cap_name="max_tokens")
FINAL = Wording(kind=ReplyKind.FINAL, code="run_closed", message="This run is closed.")


def plain(dialect: Dialect, streams: bool) -> CallRequest:
    return CallRequest(
        model="m", stream=streams, asked_output=None, min_output=None, choices=1, prompts=1, usage_asked=True, rendered_parts=(), pictures=0, has_tools=False,
        tool_names=(), body={"model": "m"}, rendering=Rendering.TEMPLATE,
    )  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=10, deadline=None)
@given(body=OBJECTS, messages=st.lists(OBJECTS, max_size=2))
def test_any_body_is_read_or_refused(name: str, body: dict[str, Any], messages: list[Any]) -> None:
    dialect = DIALECTS[name]
    for made in (body, {"model": "m", **body}, {"prompt": "x", "input": "x", "inputs": "x", "text": "x", **body, "model": "m", "messages": messages}):
        before = json.dumps(made)
        try:
            request = dialect.read_request(made)
        except BodyError as refused:
            assert refused.code in ("body_invalid", "not_allowed", "model_not_found")
            continue
        sent = dialect.forward_body(request, FACTS, ceiling_per_choice=5, call_id="call-1")
        assert json.dumps(made) == before, "what was received is not changed"
        assert json.dumps(sent)
        assert request.choices >= 1 and request.prompts >= 1


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson", "application/json"])
@settings(max_examples=6, deadline=None)
@given(values=st.lists(st.one_of(OBJECTS, JSON), max_size=5), named=st.sampled_from(("", "error", "message_start", "message_delta", "chat.end")))
def test_any_answer_is_read(name: str, kind: str, values: list[Any], named: str) -> None:
    dialect = DIALECTS[name]
    request = plain(dialect, kind != "application/json")
    meter = meter_of(dialect.reader(request, "llama.cpp"), status=200, content_type=kind, max_event_bytes=1 << 20, max_response_bytes=1 << 20)
    texts = [json.dumps(value) for value in values]
    body = "".join(f"event: {named}\ndata: {text}\n\n" for text in texts) if kind == "text/event-stream" else "\n".join(texts)
    marked = [*meter.feed(body.encode()), *meter.end()]
    reading = meter.reading(200, truncated=False)
    assert not [anomaly for anomaly in reading.anomalies if anomaly.startswith("reader_choked")]
    assert b"".join(frame.raw for frame, _ in marked if frame.kind is not FrameKind.PIECE) == body.encode()
    assert all(count is None or count >= 0 for count in (reading.usage.input_tokens, reading.usage.output_tokens, reading.running_output))
    assert isinstance(dialect.length_end(reading, request), bytes)
    assert dialect.reply(FINAL).status >= 400
