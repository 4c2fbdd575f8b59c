"""What stands on record of a body is its settings as received, and sizes and digests of the rest; never content."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.dialects.body_record import body_record, canonical_sha256, sent_record
from gateway.dialects.field_spans import field_spans, spans_by_token

CHAT = DIALECTS["openai.chat"]
NAMES = st.sampled_from(["a", "messages", "temperature", "tools", 'q"q', "ünï", "b c", "\\"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


def written(body: object, indent: int | None, ascii_only: bool) -> bytes:
    return json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=6), st.sampled_from([None, 0, 3]), st.booleans())
def test_each_field_is_found_where_it_stands(body: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    raw = b" \n" + written(body, indent, ascii_only) + b" "
    spans = field_spans(raw, body)
    assert {name: json.loads(raw[begin:end]) for name, (begin, end) in spans.items()} == body
    assert spans == spans_by_token(raw)
    assert all(raw[begin:end].strip() == raw[begin:end] for begin, end in spans.values())


def test_a_field_inside_that_bears_the_next_fields_name_is_not_taken_for_it() -> None:
    raw = b'{"tools":[{"x":1,"temperature":{"type":"number"}}],"temperature" : 0.70,"m":{"a":[1,"temperature"]},"z":"\\"m\\":"}'
    body = json.loads(raw)
    spans = field_spans(raw, body)
    assert raw[slice(*spans["temperature"])] == b"0.70"
    assert json.loads(raw[slice(*spans["tools"])]) == body["tools"]


def test_settings_stand_as_they_were_written_and_content_stands_as_digests() -> None:
    messages = '[{"role":"user","content":"secret words"},{"role":"tool","content":[{"type":"text","text":"é"}]}]'
    raw = ('{"model":"m","temperature":1.50,"stop":["\\u0041"],"messages":' + messages + ',"metadata":{"user":"secret"},"max_tokens":100}').encode()
    body = json.loads(raw)
    record = body_record(raw, body, CHAT.settings, ("search",))
    assert record["settings_asked"] == {"model": '"m"', "temperature": "1.50", "stop": '["\\u0041"]', "max_tokens": "100"}
    assert record["fields"] == {
        "messages": {"bytes": len(messages.encode()), "sha256": hashlib.sha256(messages.encode()).hexdigest()},
        "metadata": {"bytes": 17, "sha256": hashlib.sha256(b'{"user":"secret"}').hexdigest()},
    }
    assert record["bytes_by_role"] == {"user": 12, "tool": 4 + 2}
    assert record["messages"] == 2
    assert record["tools"] == ["search"]
    assert record["body_sha256"] == hashlib.sha256(raw).hexdigest()
    assert "secret" not in json.dumps(record)


def test_a_record_can_be_written_in_canonical_form_whatever_the_body_holds() -> None:
    body = {"model": "m", "messages": [{"role": 7}, {"role": "\ud800", "content": "\udfff"}], "\u00fc\ud800": "\ud83d", "stop": "\udc00", "tools": []}
    raw = written(body, None, True)
    assert rfc8785.dumps(body_record(raw, body, CHAT.settings, ("\ud800",)))  # type: ignore[arg-type]
    assert rfc8785.dumps(sent_record(body, CHAT.settings, raw))  # type: ignore[arg-type]
    assert canonical_sha256(body) is None


def test_what_was_sent_stands_beside_what_was_asked() -> None:
    record = sent_record({"model": "own", "max_tokens": 7, "messages": []}, CHAT.settings, b"{}")
    assert record == {"settings_sent": {"model": '"own"', "max_tokens": "7"}, "sent_bytes": 2, "sent_sha256": hashlib.sha256(b"{}").hexdigest()}


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_the_canonical_digest_is_that_of_rfc_8785_or_absent(body: dict[str, Any]) -> None:
    found = canonical_sha256(body)
    assert found is None or found == hashlib.sha256(rfc8785.dumps(body)).hexdigest()


def test_a_body_as_agents_send_it_has_a_canonical_digest() -> None:
    body = orjson.loads(b'{"top_p":0.95,"temperature":1.0,"messages":[{"content":"h\xc3\xa9 \\u0007\\n","role":"user"}],"max_tokens":5}')
    assert canonical_sha256(body) == hashlib.sha256(rfc8785.dumps(body)).hexdigest()


def test_the_items_of_a_responses_body_are_on_record_by_who_said_them() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "éé"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"type": "reasoning", "summary": []},
    ]
    body = {"model": "m", "input": items, "instructions": "secret rules", "max_output_tokens": 5, "truncation": "auto"}
    raw = json.dumps(body).encode()
    dialect = DIALECTS["openai.responses"]
    record = body_record(raw, body, dialect.settings, ())
    assert record["messages"] == 4
    assert record["bytes_by_role"] == {
        "user": 4 + len("input_text"), "assistant": len("function_call" + "c" + "f" + "{}") + len("reasoning"),
        "tool": len("function_call_output" + "c" + "found"), "system": len("secret rules"),
    }  # fmt: skip
    assert record["settings_asked"] == {"model": '"m"', "max_output_tokens": "5", "truncation": '"auto"'}
    assert "secret" not in json.dumps(record)


def test_a_body_without_a_conversation_has_none_on_record() -> None:
    for body in ({"model": "m", "input": ["a", "b"]}, {"model": "m", "prompt": "a"}, {"model": "m", "query": "q", "documents": ["a"]}):
        assert "messages" not in body_record(json.dumps(body).encode(), body, frozenset(), ())
