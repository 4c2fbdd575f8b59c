"""An engine's error tells what went wrong with a call and nothing of the machine that it ran on; JSON stays JSON, clean text stays what it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.proxy.cleaning import CLEANED_BYTES_MAX, clean, clean_text

INTERNAL = [
    "http://10.1.2.3:8080/v1/models",
    "https://gpu-box.internal/x?y=z",
    "unix:///run/engine.sock",
    "tcp://[::1]:5000",
    "Bearer sk-0123456789abcdef",
    "10.1.2.3",
    "192.168.0.7:11434",
    "[::1]:8080",
    "[fe80::1]",
    "localhost",
    "localhost:8080",
    "gpu01.example.org:8000",
    "gpu-box:8000",
    "node1:30000",
    "engine.internal",
    "gpu.lab.lan",
    "/home/user/models/x.gguf",
    "/root/.cache/huggingface",
    "/usr/lib/python3.11/site-packages/vllm/engine.py",
    "/models/qwen.gguf",
    "/data/x",
    "/nix/store/abc",
    "/Users/me/x",
    "/llm/weights/q4.gguf",
    "~/.cache/model.bin",
    "./build/bin/server.cpp",
    "../server/slots.cpp",
    "C:\\models\\x.gguf",
]
CLEAN = [
    "",
    "the request exceeds the available context size",
    "request (8192 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in the completion).",
    "model 'qwen3:8b' not found, try pulling it first",
    "Qwen/Qwen2.5-7B-Instruct does not exist",
    "use /v1/chat/completions instead of /v1/completions",
    "either system and/or user; content-type application/json",
    "input/output error at 12:30",
    "'temperature' must be between 0.0 and 2.0",
    "Expected 'user' | 'assistant' at messages[3].content[0].type",
    "n_ctx:4096",
    "a Bearer token is needed",
    "e.g. {\"role\": \"user\"}",
    "grammar root ::= \"a\" | [a-z]",
]  # fmt: skip
TRACE = 'Traceback (most recent call last):\n  File "/app/serve.py", line 12, in generate\n    raise ValueError("secret \\"x\\"")\nValueError: secret'


@pytest.mark.parametrize("text", INTERNAL)
def test_what_is_internal_is_replaced_in_any_place(text: str) -> None:
    for whole in (text, f"no answer from {text}", f"({text})", f"'{text}': failed", f"at {text}, again", f"path={text}"):
        assert text not in clean_text(whole), whole
        assert "[internal]" in clean_text(whole)
        body = json.dumps({"error": {"message": whole, "code": 500}}).encode()
        found = json.loads(clean(body))
        assert text not in found["error"]["message"] and found["error"]["code"] == 500


@pytest.mark.parametrize("text", CLEAN)
def test_clean_text_passes_unchanged(text: str) -> None:
    assert clean_text(text) == text
    assert clean(text.encode()) == text.encode()
    body = json.dumps({"error": {"message": text}}, indent=1).encode()
    assert clean(body) == body  # byte for byte, blanks too


def test_a_trace_is_gone_to_its_end_with_the_code_in_it() -> None:
    for body in (
        json.dumps({"error": {"message": f"it failed: {TRACE}", "code": 500}}).encode(),
        json.dumps({"detail": TRACE}).encode(),
        json.dumps([{"a": [TRACE]}]).encode(),
    ):
        found = clean(body)
        json.loads(found)
        for part in (b"secret", b"serve.py", b"raise", b"line"):
            assert part not in found, found
    assert clean(b"Internal: " + TRACE.encode()) == b"Internal: [internal]"


@pytest.mark.parametrize("name", ["trace", "Traceback", "stack", "stackTrace", "stack_trace"])
@pytest.mark.parametrize("value", ["anything", ["a", "b"], {"frame": "x"}, 7])
def test_a_field_that_is_a_trace_is_replaced_whatever_it_holds(name: str, value: object) -> None:
    body = {"error": {"message": "no", name: value}}
    assert json.loads(clean(json.dumps(body).encode())) == {"error": {"message": "no", name: "[internal]"}}


def test_escaped_slashes_hide_nothing() -> None:
    assert b"10.0.0.1" not in clean(b'{"error":"http:\\/\\/10.0.0.1:80\\/x"}')
    assert json.loads(clean(b'{"error":"\\u002fhome\\u002fme\\u002fx failed"}')) == {"error": "[internal] failed"}


def test_the_events_of_a_stream_keep_their_framing() -> None:
    raw = b': note\nevent: error\ndata: {"error":{"message":"no route to http://10.0.0.1:80/v1"}}\r\n\r\ndata: [DONE]\n\n'
    assert clean(raw) == b': note\nevent: error\ndata: {"error":{"message":"no route to [internal]"}}\r\n\r\ndata: [DONE]\n\n'


def test_clean_events_and_an_unfinished_one_pass_byte_for_byte() -> None:
    for raw in (b'data: {"error": {"message": "no"}}\n\ndata: [DONE]\n\n', b'data:{"a":1}', b'data: {"a":', b"error: {}\n\n", b"\n\n", b"data"):
        assert clean(raw) == raw


def test_what_is_no_json_is_cleaned_as_text_and_other_bytes_are_kept() -> None:
    assert clean(b'{"error": "at http://10.0.0.1/x') == b'{"error": "at [internal]'
    assert clean(b"<h1>nginx at 10.0.0.1</h1>\xff\xfe") == b"<h1>nginx at [internal]</h1>\xff\xfe"


def test_json_too_deep_to_be_read_is_cleaned_as_text() -> None:
    raw = b"[" * 50_000 + b'"http://10.0.0.1/"' + b"]" * 50_000
    assert b"10.0.0.1" not in clean(raw)


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.sampled_from(INTERNAL + CLEAN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_json_stays_json_of_the_same_shape_without_anything_internal(body: dict[str, Any], event: bool) -> None:
    raw = json.dumps(body).encode()
    found = clean(b"data: " + raw + b"\n\n") if event else clean(raw)
    parsed = json.loads(found.removeprefix(b"data: "))
    assert parsed.keys() == body.keys()
    assert clean(found) == found
    text = json.dumps(parsed, ensure_ascii=False)
    assert not any(one in text for one in ("10.1.2.3", "192.168", "/home/user", "localhost", "gpu01", "site-packages"))


@given(st.binary(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_bytes_can_be_cleaned(raw: bytes) -> None:
    clean(raw)
    clean(b"data: " + raw)


PIECES = (
    "a.b-c",
    "/a",
    "/a.b",
    "a-1",
    "[::",
    ":",
    "1.2.3",
    "http:/",
    "..",
    "~/",
    "a",
    "-/a",
    "@/a/b",
    "-a",
    ".a",
    "a:1",
    "/home/",
    "\\",
    "a:\\",
    "{",
    "[",
    '"',
    "data:",
)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.timeout(20)
def test_a_long_text_is_cleaned_in_time_that_grows_with_it(piece: str) -> None:
    for begin in ("", "["):
        assert isinstance(clean((begin + piece * (100_000 // len(piece))).encode()), bytes)


@pytest.mark.parametrize("begin", [b"", b"data: "])
def test_an_error_of_a_size_that_no_message_has_is_replaced_whole(begin: bytes) -> None:
    raw = begin + json.dumps({"error": {"message": "x" * CLEANED_BYTES_MAX, "at": "http://10.0.0.1/"}}).encode()
    found = clean(raw)
    assert json.loads(found.removeprefix(b"data: ")) == {"error": {"message": "[internal]"}}
    assert found.startswith(b"data: ") == bool(begin)
