"""Where each field of a body stands, however it is written; and in a time that follows its size."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gateway.dialects.field_spans import field_spans, spans_by_token

TRICKY = [
    b'{"messages":[{"role":"user"}],"tool\\u0073":[{"name":"n","tools":[1]}]}',
    b'{"a":[{"x":1,"b":2}],"b":[{"c":1,"c2":[]}],"c":{"d":{}}}',
    b'{"a":[",\\"b\\":1"],"b":1}',
    b'{"a":{"k":"\\\\"},"b":"\\\\"}',
    b'{"a":[{"y":1,"b":[1]},{"y":1,"b":[2]},{"y":1,"b":[3]},{"y":1,"b":[4]},{"y":1,"b":[5]},{"y":1,"b":[6]}] ,"b" : [7] }',
    b'{"a":["\\ud800",{"y":1,"b":2}],"b":3}',
    b'{"":[1],"\\/":[{"z":0,"":2}]}',
    b' {"a" : 1e5 , "b":-0.0,"c":null ,"d":[ ] }\n',
]


@pytest.mark.parametrize("raw", TRICKY)
def test_each_field_stands_where_it_is_said_to(raw: bytes) -> None:
    value = json.loads(raw)
    for spans in (field_spans(raw, value), spans_by_token(raw)):
        assert list(spans) == list(value)
        assert {name: json.loads(raw[slice(*span)]) for name, span in spans.items()} == value


def hostile() -> dict[str, dict[str, Any]]:
    """A megabyte each."""
    turns = [{"role": "user", "content": "x" * 20, "tools": 1} for _ in range(20_000)]
    return {
        "the next field's name in each message": {"messages": turns, "tools": []},
        "every name within every value": {f"f{number}": [{"y": 1, **{f"f{other}": [] for other in range(60)}} for _ in range(12)] for number in range(100)},
        "quotes and backslashes": {"messages": ['\\"' * 200_000], "b": 1},
        "one long text": {"messages": "x" * 1_000_000, "b": 1},
        "many fields": {f"f{number}": [] for number in range(60_000)},
    }


@pytest.mark.parametrize("name", hostile())
def test_the_time_follows_the_size_whatever_stands_in_it(name: str) -> None:
    body = hostile()[name]
    raw = json.dumps(body, separators=(",", ":")).encode()
    began = time.process_time()
    spans = field_spans(raw, body)
    assert time.process_time() - began < 2.0
    assert list(spans) == list(body)
