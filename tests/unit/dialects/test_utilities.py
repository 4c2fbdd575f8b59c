"""Requests that do no model work: what they may hold, and what of them goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects import DIALECTS, UTILITIES
from gateway.dialects.dialect import BodyError
from gateway.dialects.utilities import counted_tokens
from tests.unit.dialects.answers import FIXTURES

TOKENIZE, DETOKENIZE, COUNT = UTILITIES["tokenize"], UTILITIES["detokenize"], UTILITIES["anthropic.count_tokens"]


def test_a_utility_is_no_dialect() -> None:
    assert not UTILITIES.keys() & DIALECTS.keys()
    assert all(not utility.form or utility.form in DIALECTS for utility in UTILITIES.values())


@pytest.mark.parametrize(
    "body",
    [
        {"content": "a"}, {"content": "", "add_special": True, "with_pieces": False, "parse_special": None}, {"content": ["a", 5]},
        {"prompt": "a", "model": "m"},
        {"prompt": "a", "model": "m", "add_special_tokens": False, "return_token_strs": True},
    ],
)  # fmt: skip
def test_a_text_is_sent_on_as_it_is_under_the_engines_own_model(body: dict[str, Any]) -> None:
    assert TOKENIZE.read(body) == body.get("model", "")
    assert TOKENIZE.forward(body, "own", frozenset()) == {**body, "model": "own"}


@pytest.mark.parametrize(
    ("body", "code", "name"),
    [
        ({}, "body_invalid", "content"),
        ({"content": "a", "prompt": "b"}, "body_invalid", "content"),
        ({"content": {"a": 1}}, "body_invalid", "content"),
        ({"messages": [{"role": "user", "content": "a"}]}, "body_invalid", "content"),
        ({"content": "a", "messages": []}, "not_allowed", "messages"),
        ({"content": "a", "chat_template": "{{x}}"}, "not_allowed", "chat_template"),
        ({"content": "a", "with_pieces": 1}, "body_invalid", "with_pieces"),
        ({"content": "a", "model": 5}, "body_invalid", "model"),
    ],
)
def test_whatever_else_a_text_comes_with_is_refused(body: dict[str, Any], code: str, name: str) -> None:
    with pytest.raises(BodyError) as caught:
        TOKENIZE.read(body)
    assert (caught.value.code, caught.value.field_name) == (code, name)


def test_token_numbers_are_numbers() -> None:
    assert DETOKENIZE.read({"tokens": [1, 2], "model": "m"}) == "m"
    assert DETOKENIZE.forward({"tokens": []}, "own", frozenset()) == {"tokens": [], "model": "own"}
    for body in ({}, {"tokens": "12"}, {"tokens": [1.5]}, {"tokens": [True]}, {"tokens": [1], "prompt": "a"}):
        with pytest.raises(BodyError):
            DETOKENIZE.read(body)


def test_a_count_of_a_conversation_is_guarded_as_the_call_is() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    assert COUNT.read(body) == "m"
    assert COUNT.forward(body, "own", frozenset())["model"] == "own"
    remote = {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}}
    with pytest.raises(BodyError):
        COUNT.read({**body, "messages": [{"role": "user", "content": [remote]}]})


def test_an_answer_tells_how_many_tokens_there_are() -> None:
    case = FIXTURES / "dialects" / "llamacpp-tokenize"
    expected = json.loads((case / "expected.json").read_text())
    assert expected["kind"] == "utility"
    assert counted_tokens(json.loads((case / "response.json").read_text())) == expected["counted_tokens"] == 2
    captured = FIXTURES / "engines" / "llama_cpp_native" / "tokenize.body.txt"
    assert counted_tokens(json.loads(captured.read_text())) == 2
    told: list[object] = [{"count": 3}, {"length": 4}, {"input_tokens": 5}, [{"id": 1}], {}, 5, {"count": True}]
    assert list(map(counted_tokens, told)) == [3, 4, 5, 1, None, None, None]
