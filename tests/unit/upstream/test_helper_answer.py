"""Helper answers, parsed."""

from __future__ import annotations

from array import array

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.helper_answer import SLICE_BYTES, parsed


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.integers(1, 2_000))
@settings(max_examples=30, deadline=None)
def test_a_long_list_of_ids_is_the_same_list_held_compactly(ids: list[int], times: int) -> None:
    many = ids * (SLICE_BYTES // len(ids) + times)
    answer = parsed(orjson.dumps({"tokens": many}))
    assert isinstance(answer, dict)
    assert isinstance(answer["tokens"], array)
    assert list(answer["tokens"]) == many


@pytest.mark.parametrize(
    "value",
    [
        {"tokens": [1, 2, 3]},
        {"tokens": [-1] * SLICE_BYTES},
        {"tokens": ["a,b"] * SLICE_BYTES},
        {"tokens": [2**40] * SLICE_BYTES},
        {"tokens": [[1], 2] * SLICE_BYTES},
        {"tokens": [{"id": 1, "piece": "x"}] * 20_000},
        {"tokens": [1] * SLICE_BYTES, "more": [1]},
        {"prompt": "x" * SLICE_BYTES},
    ],
    ids=["few", "negative", "texts", "large", "nested", "with pieces", "more", "another answer"],
)
def test_anything_else_is_parsed_as_it_is(value: object) -> None:
    assert parsed(orjson.dumps(value)) == value


@pytest.mark.parametrize("data", [b"", b"nothing", b'{"tokens":[' + b"1," * SLICE_BYTES + b"]}", b'{"tokens":[' + b"1," * SLICE_BYTES])
def test_what_is_no_json_is_nothing(data: bytes) -> None:
    assert parsed(data) is None
