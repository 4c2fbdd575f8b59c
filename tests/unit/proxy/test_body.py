"""A body is read and parsed once, in bounded time and memory, and what is forwarded is what was checked."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.received import write
from gateway.dialects.retry_words import is_final_wording
from gateway.proxy.body import BodyBounds, BodyRefused, parse_body

BOUNDS = BodyBounds(max_bytes=32 << 20, max_depth=64, max_keys=200_000, read_seconds=60)
SOON_S = 5.0
"""Far above what any of them takes: it tells linear from quadratic, not fast from slow."""


def refused(raw: bytes, bounds: BodyBounds = BOUNDS) -> BodyRefused:
    began = time.process_time()
    with pytest.raises(BodyRefused) as caught:
        parse_body(raw, bounds)
    assert time.process_time() - began < SOON_S
    assert is_final_wording(str(caught.value)), str(caught.value)
    return caught.value


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return b'{"a":' + opening * depth + b"1" + closing * depth + b"}"


INVALID: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b"  \n",
    "a list": b"[]",
    "a text": b'"a"',
    "a number": b"1",
    "null": b"null",
    "half an object": b'{"a":1',
    "no quotes": b"{a:1}",
    "single quotes": b"{'a':1}",
    "a trailing comma": b'{"a":1,}',
    "a comment": b'{"a":1}//',
    "something behind it": b'{"a":1} x',
    "two objects": b'{"a":1}{"a":1}',
    "a zero byte behind it": b'{"a":1}\0',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"a":1}'.encode("utf-16-le"),
    "UTF-32": '{"a":1}'.encode("utf-32-be"),
    "Latin-1": '{"a":"ä"}'.encode("latin-1"),
    "a surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "an overlong slash": b'{"a":"\xc0\xaf"}',
    "a line end in a text": b'{"a":"b\nc"}',
    "a wrong escape": b'{"a":"\\x41"}',
    "half an escape": b'{"a":"\\u12"}',
    "a duplicate key": b'{"a":1,"a":2}',
    "a duplicate key of the same value": b'{"a":1,"a":1}',
    "a duplicate key below": b'{"a":{"b":{"c":1,"d":2,"c":3}}}',
    "a duplicate key in a list": b'{"a":[[{"b":1,"b":2}]]}',
    "a duplicate key by an escape": b'{"model":"x","\\u006dodel":"y"}',
    "a duplicate empty key": b'{"":1,"":2}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "-Infinity": b'{"a":[-Infinity]}',
    "a number that is infinite": b'{"a":1e999}',
    "its negative": b'{"a":{"b":[-1.5E+4000]}}',
    "a number of many digits": b'{"a":' + b"9" * 5_000 + b"}",
    "a number of very many digits": b'{"a":' + b"9" * 5_000_000 + b"}",
    "a number with a leading zero": b'{"a":01}',
    "a hexadecimal number": b'{"a":0x10}',
    "gzip": gzip.compress(b'{"a":1}'),
    "a text that never ends": b'{"a":"' + b"x" * 5_000_000,
    "a text of escaped quotes that never ends": b'{"a":"' + b'\\"' * 2_000_000,
    "commas in a text that never ends": b'{"a":"' + b",\\\\" * 2_000_000,
    "many quotes": b'"' * 2_000_001,
}


@pytest.mark.parametrize("name", INVALID)
def test_what_is_no_plain_json_object_is_refused_as_invalid(name: str) -> None:
    assert refused(INVALID[name]).code == "body_invalid"


TOO_LARGE: dict[str, bytes] = {
    "lists, one level too many": nested(64),
    "objects, one level too many": nested(64, b'{"a":', b"}"),
    "a million lists": nested(1_000_000),
    "a million lists that never close": b'{"a":' + b"[" * 1_000_000,
    "a million objects": nested(1_000_000, b'{"a":', b"}"),
    "a million keys": b"{" + b",".join(b'"%d":1' % number for number in range(1_000_000)) + b"}",
    "a million items": b'{"a":[' + b",".join([b"1"] * 1_000_000) + b"]}",
    "a million empty lists": b'{"a":[' + b",".join([b"[]"] * 1_000_000) + b"]}",
    "a million keys and a duplicate": b"{" + b'"a":1,' * 1_000_000 + b'"a":1}',
    "one key too many over all objects": b'{"a":[' + b",".join([b'{"b":1}'] * 100_000) + b"]}",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_deep_or_has_too_many_members_is_refused_as_too_large(name: str) -> None:
    assert refused(TOO_LARGE[name]).code == "body_too_large"


def test_depth_and_members_up_to_the_bounds_pass() -> None:
    parse_body(nested(63), BOUNDS)
    parse_body(b"{" + b",".join(b'"%d":1' % number for number in range(200_000)) + b"}", BOUNDS)
    parse_body(b'{"a":[' + b",".join([b"[]"] * 199_999) + b"]}", BOUNDS)


def test_commas_and_braces_in_texts_are_no_members() -> None:
    text = ',[{"\\' * 1_000_000
    assert parse_body(json.dumps({"a": text}).encode(), BOUNDS) == {"a": text}


def test_members_are_counted_before_anything_is_built_of_them() -> None:
    raw = b'{"a":[' + b",".join([b"{}"] * 600_000) + b"]}"
    tracemalloc.start()
    try:
        refused(raw)
        assert tracemalloc.get_traced_memory()[1] < len(raw)
    finally:
        tracemalloc.stop()


AS_RECEIVED = (
    b'{"a":"\\ud800"}',
    b'{"\\udfff":["\\ud83d"]}',
    b'{"a":18446744073709551616}',
    b'{"a":-99999999999999999999999999}',
    b'{"a":' + b"9" * 4_000 + b"}",
)


@pytest.mark.parametrize("raw", AS_RECEIVED, ids=lambda raw: str(raw[:30]))
def test_lone_surrogates_and_huge_whole_numbers_are_forwarded_as_received(raw: bytes) -> None:
    assert write(parse_body(raw, BOUNDS)) == raw


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert json.loads(write(parse_body(b'{"a":"\\ud83d\\ude00"}', BOUNDS))) == {"a": "\U0001f600"}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None), max_size=8),  # lone surrogates too
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=5)


@given(objects, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=150, deadline=None)
def test_what_is_forwarded_is_what_was_checked(body: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        checked = parse_body(raw, BOUNDS)
    except BodyRefused as refusal:
        assert refusal.code == "body_invalid" and not ascii_only  # a surrogate as bytes is no UTF-8
        return
    assert checked == body
    assert json.loads(write(checked)) == body


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\u0aENI-.', max_size=40).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_an_object_or_refused_in_words_that_nobody_retries_on(raw: bytes) -> None:
    try:
        checked = parse_body(raw, BOUNDS)
    except BodyRefused as refusal:
        assert refusal.code in ("body_invalid", "body_too_large")
        assert is_final_wording(str(refusal)), str(refusal)
    else:
        assert orjson.loads(write(checked)) == checked


def doubled(pairs: Iterable[tuple[str, Any]]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}"


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), min_size=1, max_size=5), st.integers(0, 5), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_a_key_that_stands_twice_is_refused_at_any_depth(pairs: list[tuple[str, int]], where: int, depth: int) -> None:
    pairs.insert(min(where, len(pairs)), pairs[0])
    raw = '{"a":[' * depth + doubled(pairs) + "]}" * depth
    assert refused(raw.encode()).code == "body_invalid"
