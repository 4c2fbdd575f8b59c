"""A name that only its case sets apart from one that means something is refused, wherever a server would read it: `Options` is a second `options` to some."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects import DIALECTS
from gateway.dialects.barred import HOLDERS
from gateway.dialects.dialect import BodyError
from gateway.dialects.spelling import FIELDS, SPOKEN
from tests.support.every_api import PLAINEST


def refused(name: str, body: dict[str, Any]) -> str:
    with pytest.raises(BodyError) as error:
        DIALECTS[name].read_request(body)
    assert error.value.code == "body_invalid"
    return error.value.field_name


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("field", ["Model", "OPTIONS", "Max_Tokens", "KEEP_ALIVE", "Stream", "N", "Messages", "Cache_Salt", "num_\u212aeep", "\u017ftore"])
def test_at_the_top_of_a_body(name: str, field: str) -> None:
    field = field.replace("num_", "n_")
    assert field.casefold() in FIELDS
    assert refused(name, {**PLAINEST[name], field: None}) == field


@pytest.mark.parametrize(("name", "holder"), HOLDERS.items())
def test_in_the_object_of_sampling_parameters(name: str, holder: str) -> None:
    assert refused(name, {**PLAINEST[name], holder: {"Num_Predict": 5}}) == "Num_Predict"


PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "a message of chat": ("openai.chat", {"messages": [{"role": "user", "content": "a", "Content": "b"}]}),
    "a part of chat": ("openai.chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "Text": "b"}]}]}),
    "an item of Responses": ("openai.responses", {"input": [{"role": "user", "content": "a", "CONTENT": []}]}),
    "a part of Responses": ("openai.responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "Text": "b"}]}]}),
    "a message of Messages": ("anthropic.messages", {"messages": [{"role": "user", "content": "a", "Role": "system"}]}),
    "a block of Messages": ("anthropic.messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "TEXT": "b"}]}]}),
    "a system block": ("anthropic.messages", {"system": [{"type": "text", "text": "a", "Text": "b"}]}),
    "a source": (
        "anthropic.messages",
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "x", "data": "aGk=", "Url": "x"}}]}]},
    ),
    "a message of Ollama": ("ollama.chat", {"messages": [{"role": "user", "content": "a", "Images": ["aGk="]}]}),
    "an item of LM Studio": ("lmstudio.chat", {"input": [{"type": "message", "content": "a", "Content": "b"}]}),
}


@pytest.mark.parametrize("place", PLACES)
def test_in_what_is_said(place: str) -> None:
    name, fields = PLACES[place]
    field = refused(name, {**PLAINEST[name], **fields})
    assert field not in SPOKEN and field.casefold() in SPOKEN


@pytest.mark.parametrize("name", DIALECTS)
def test_a_name_that_means_nothing_may_be_written_in_any_case(name: str) -> None:
    assert DIALECTS[name].read_request({**PLAINEST[name], "userId": "a", "X": 1, "topP": 1})
