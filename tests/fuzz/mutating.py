"""What is made of a good input. Everything follows from the `Random` that is handed in: the same seed, the same input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

WORDS: Final = (
    "model", "messages", "role", "content", "type", "text", "image_url", "url", "input", "prompt", "options", "parameters", "sampling_params",
    "num_predict", "max_tokens", "max_completion_tokens", "n_predict", "n", "best_of", "n_cmpl", "stream", "stream_options", "include_usage", "tools",
    "tool_choice", "name", "function", "functions", "arguments", "tool_calls", "images", "image_data", "system", "instructions", "source", "data",
    "base64", "file_id", "file", "store", "cache_salt", "extra_key", "id_slot", "priority", "keep_alive", "lora", "mcp_servers",
    "previous_response_id", "conversation", "background", "web_search", "namespace", "usage", "input_tokens", "output_tokens", "prompt_tokens",
    "completion_tokens", "total_tokens", "cached_tokens", "prompt_tokens_details", "reasoning_tokens", "choices", "delta", "index", "finish_reason",
    "stop_reason", "message", "done", "done_reason", "eval_count", "prompt_eval_count", "timings", "predicted_n", "prompt_n", "cache_n",
    "tokens_predicted", "tokens_evaluated", "stop", "error", "code", "id", "object", "response", "status", "item", "output", "meta_info",
    "generated_text", "details", "token", "result", "stats", "embedding", "embeddings", "documents", "query", "inputs", "metadata", "user",
    "thinking", "budget_tokens", "min_tokens", "response_format", "chat_template_kwargs", "Max_Tokens", "STREAM", "\u017ftore", "", "\ud800", "a.b",
    "0",
)  # fmt: skip
TEXTS: Final = (
    "hi", "m", "", "user", "assistant", "function", "web_search", "text", "image_url", "image", "http://evil.example/x", "https://e", "//e",
    "file:///etc/passwd", "data:image/png;base64,AAAA", "DATA:,x", " data:x", "/etc/passwd", "\ud800", "\udc00\ud800", "\u0000", "\u2028",
    "\U0001f600", "![](http://e)", "stop", "length", "[DONE]", "message_start", "message_delta", "response.completed", "chat.end", "error", '"', "\\",
    "x" * 300, "auto", "mcp", "namespace",
)  # fmt: skip
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
NUMBERS: Final = (
    0, 1, -1, 2, 5, 128, 129, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**30, -(2**63), 0.0, -0.0, 1.0, 0.5, 1e-7, 1e16, 1e22, 1.5e300, True, False, None,
)  # fmt: skip
PIECES: Final = (
    b"data: ", b"data:", b"event: error\n", b"event: message_delta\n", b"\n\n", b"\n", b"\r\n", b"\r", b"\r\n\r\n", b": ping\n\n", b"[DONE]",
    b"data: [DONE]\n\n", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"null", b"NaN", b"-Infinity", b"1e999",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"\x1f\x8b\x08", b"id: 1\n", b"retry: 1\n", b'{"error":"x"}',
    b'"usage":{"prompt_tokens":1}', b"\xe2\x80\xa8", b"error: {}\n", b' ', b"\t", b"/**/", b"0" * 30,
)  # fmt: skip


def a_value(rng: Random, depth: int = 3) -> Any:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(TEXTS)
    if kind < 0.6:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        return [a_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS): a_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def changed(rng: Random, value: Any, others: Sequence[Any]) -> Any:
    """The same with one place in it changed; what is not on the way there is shared."""
    if isinstance(value, dict) and value and rng.random() < 0.75:
        name = rng.choice(list(value))
        return {**value, name: changed(rng, value[name], others)}
    if isinstance(value, list) and value and rng.random() < 0.75:
        at = rng.randrange(len(value))
        return [*value[:at], changed(rng, value[at], others), *value[at + 1 :]]
    how = rng.randrange(7)
    if isinstance(value, dict):
        if how == 0 and value:
            gone = rng.choice(list(value))
            return {name: inner for name, inner in value.items() if name != gone}
        if how < 4:
            return {**value, rng.choice(WORDS): a_value(rng)}
        if how == 4:
            other = rng.choice(others)
            return {**value, **other} if isinstance(other, dict) else value
        if how == 5:
            return dict(reversed(value.items()))
    if isinstance(value, list):
        if how < 3:
            return [*value, a_value(rng)]
        if how == 3:
            return value * 2
        if how == 4:
            return value[1:]
    if isinstance(value, str) and how < 2:
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(TEXTS) + value[at:]
    return a_value(rng)


def written(rng: Random, value: Any) -> bytes:
    """JSON text in one of the ways to write it; at times not JSON any more."""
    style = rng.randrange(8)
    separators = ((",", ":"), (", ", ": "), (",", ":"), (" ,\n", "\t:  "))[style % 4]
    text = json.dumps(value, ensure_ascii=style in (1, 5), separators=separators)
    if not text.isascii() and _SURROGATES.search(text) and rng.random() < 0.9:
        text = json.dumps(value, separators=separators)
    if style == 6:
        text = _respelled(rng, text)
    if style == 7:
        text = " \n" + text + "\t\r\n"
    return text.encode("utf-8", "surrogatepass")


def _respelled(rng: Random, text: str) -> str:
    """Some letters as escapes, so that a name is the same and its bytes are not."""
    return "".join(f"\\u{ord(letter):04x}" if letter.isascii() and letter.isalpha() and rng.random() < 0.03 else letter for letter in text)


def battered(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Bytes, without regard to what they mean."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = rng.choice(_BLOWS)(rng, data, others)
    return data[:65_536]


def _at(rng: Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice(PIECES) + data[at:]


def _overwrite(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, piece = _at(rng, data), rng.choice(PIECES)
    return data[:at] + piece + data[at + len(piece) :]


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    one, two = sorted((_at(rng, data), _at(rng, data)))
    return data[:one] + data[two:]


def _end(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _at(rng, data)]


def _twice(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    one, two = sorted((_at(rng, data), _at(rng, data)))
    return data[:two] + data[one:two] + data[two:]


def _cross(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: _at(rng, data)] + other[_at(rng, other) :]


def _a_number(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """In the place of the first digit behind a place."""
    at = _at(rng, data)
    while at < len(data) and data[at] not in b"0123456789":
        at += 1
    return data[:at] + str(rng.choice(NUMBERS)).encode() + data[at + 1 :]


Blow = Callable[[Random, bytes, Sequence[bytes]], bytes]
_BLOWS: Final[tuple[Blow, ...]] = (_insert, _insert, _overwrite, _flip, _cut, _end, _twice, _cross, _a_number)
