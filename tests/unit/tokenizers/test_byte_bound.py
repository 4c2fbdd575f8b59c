"""The bound and the sizes it is made of."""

from __future__ import annotations

import orjson

from gateway.dialects import DIALECTS
from gateway.tokenizers.byte_bound import JOIN_BYTES, PLAIN_TEMPLATE_TOKENS, PLAIN_TOKENS, SPARE_TOKENS, Overhead, bound_tokens, plain_bound
from gateway.tokenizers.shape import shape_of
from tests.support.asking import request_of

PLAIN = Overhead(fixed=10, fixed_with_tools=100, each_message=5, each_tool=7, each_call=9)
TOOL = {"type": "function", "function": {"name": "é"}}


def test_a_text_counts_by_its_bytes_and_the_template_by_its_overhead() -> None:
    shape = shape_of(request_of({"messages": [{"role": "user", "content": "aé😀"}, {"role": "user", "content": "b"}]}))
    assert (shape.text_bytes, shape.parts, shape.messages, shape.tools, shape.tool_calls) == (8, 2, 2, 0, 0)
    assert bound_tokens(shape, PLAIN, 0) == 8 + 2 * JOIN_BYTES + 10 + 5 + SPARE_TOKENS


def test_tools_and_calls_have_their_own_overhead() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    shape = shape_of(request_of({"messages": [{"role": "assistant", "content": None, "tool_calls": [call, call]}], "tools": [TOOL, TOOL]}))
    assert (shape.tools, shape.tool_calls) == (2, 2)
    assert shape.tool_bytes == len(orjson.dumps([TOOL, TOOL]))
    assert bound_tokens(shape, PLAIN, 0) == shape.text_bytes + 3 * JOIN_BYTES + 100 + 7 + 2 * 9 + SPARE_TOKENS


def test_what_a_template_lets_grow_is_added() -> None:
    shape = shape_of(request_of({"messages": [{"role": "user", "content": "x" * 101}]}))
    grown = Overhead(fixed=10, fixed_with_tools=100, each_message=5, each_tool=7, each_call=9, text_percent=150)
    assert bound_tokens(shape, grown, 0) - bound_tokens(shape, PLAIN, 0) == 51


def test_a_picture_counts_as_declared() -> None:
    shape = shape_of(request_of({"messages": []}, pictures=3))
    assert bound_tokens(shape, PLAIN, 1_000) - bound_tokens(shape, PLAIN, 0) == 3_000


def test_lone_surrogates_and_odd_bodies_have_a_size() -> None:
    odd = {"messages": ["x", {"role": "user", "content": "\ud800", "tool_calls": [{"n": 2**70, "s": "\ud800"}]}, {"tool_calls": 3}], "tools": {"a": 1}}
    request = request_of({"messages": []})
    shape = shape_of(type(request)(**{name: getattr(request, name) for name in request.__slots__} | {"body": odd, "rendered_parts": ("\ud800",)}))
    assert (shape.text_bytes, shape.messages, shape.tools, shape.tool_calls) == (3, 3, 0, 1)
    assert shape.call_bytes > 0


def test_prompts_without_a_template_count_by_their_bytes_and_numbers() -> None:
    shape = shape_of(DIALECTS["openai.completions"].read_request({"model": "m", "prompt": ["é", [1, 2, 3], "b"]}))
    assert (shape.text_bytes, shape.ids, shape.prompts, shape.parts, shape.messages) == (3, 3, 3, 2, 0)
    assert plain_bound(shape, 0) == 3 + 3 + 3 * PLAIN_TOKENS + 2 * JOIN_BYTES


def test_a_reranker_reads_the_query_with_each_document_in_words_of_its_own() -> None:
    shape = shape_of(DIALECTS["rerank"].read_request({"model": "m", "query": "qq", "documents": ["a", "b"]}))
    assert (shape.text_bytes, shape.prompts, shape.messages) == (6, 2, 2)
    assert plain_bound(shape, 0) == 6 + 2 * PLAIN_TOKENS + 4 * JOIN_BYTES + 2 * PLAIN_TEMPLATE_TOKENS


def test_the_items_of_a_responses_body_have_the_overhead_of_messages_tools_and_calls() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    body = {"model": "m", "input": [{"role": "user", "content": "a"}, call], "instructions": "b", "tools": [{"type": "function", "name": "f"}]}
    shape = shape_of(DIALECTS["openai.responses"].read_request(body))
    assert (shape.messages, shape.tools, shape.tool_calls) == (3, 1, 1)
    assert (shape.tool_bytes, shape.call_bytes) == (len(orjson.dumps(body["tools"])) - 2, len(orjson.dumps(call)))
    assert bound_tokens(shape, PLAIN, 0) == shape.text_bytes + shape.parts * JOIN_BYTES + 100 + 2 * 5 + 9 + SPARE_TOKENS
