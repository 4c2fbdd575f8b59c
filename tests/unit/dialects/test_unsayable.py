"""Names and ids that are no valid Unicode, or endless: an agent and an engine may write them, and every answer of ours is whole JSON all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.accounting.usage import MeterSource, Reading, Usage
from gateway.dialects import DIALECTS, UTILITIES
from gateway.dialects.dialect import BodyError, ReplyKind, Wording
from tests.support.every_api import PLAINEST

HALF = "x\ud800y"


@pytest.mark.parametrize("name", DIALECTS)
def test_an_engines_id_and_model_can_be_told_in_an_end_of_ours(name: str) -> None:
    dialect = DIALECTS[name]
    request = dialect.read_request(PLAINEST[name])
    usage = Usage(input_tokens=3, output_tokens=2)
    reading = Reading(usage=usage, source=MeterSource.REPORTED, status=200, completed=False, response_id=HALF, model=HALF, running_output=2)
    for used in (None, usage):
        assert dialect.length_end(reading, request, used).isascii()


@pytest.mark.parametrize("name", DIALECTS)
def test_a_refusal_can_repeat_what_an_agent_called_a_field(name: str) -> None:
    wording = Wording(kind=ReplyKind.GUARD, code="body_invalid", message=f"The field {HALF}.", param=HALF)
    assert json.loads(DIALECTS[name].reply(wording).body)["error"]
    assert DIALECTS[name].error_event(wording)


@pytest.mark.parametrize("field", [HALF, "\udcff", "n" * 100_000])
def test_a_name_in_a_refusal_is_valid_and_bounded(field: str) -> None:
    with pytest.raises(BodyError) as refused:
        UTILITIES["tokenize"].read({"content": "a", field: 1})
    for text in (refused.value.field_name, refused.value.message, str(refused.value)):
        text.encode()
        assert len(text) <= 1_024
    assert refused.value.field_name.startswith(field.encode("utf-8", "backslashreplace").decode()[:3])


OTHERS: dict[str, Any] = {"messages": [{"role": "user", "content": "unseen"}], "input": "unseen", "prompt": "unseen", "inputs": "unseen", "input_ids": [1, 2]}
OWN = {
    "openai.responses": {"input", "prompt"}, "openai.completions": {"prompt"}, "openai.embeddings": {"input"}, "rerank": set(), "openai.chat": {"messages"},
    "anthropic.messages": {"messages"}, "ollama.chat": {"messages"}, "ollama.generate": {"prompt"}, "ollama.embed": {"input"},
    "llamacpp.completion": {"prompt"}, "llamacpp.embedding": set(), "sglang.generate": {"input_ids"}, "tgi.generate": {"inputs"},
    "tgi.generate_stream": {"inputs"}, "lmstudio.chat": {"input"},
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_what_a_call_is_about_stands_in_no_other_formats_field(name: str) -> None:
    """There nobody would check or count it."""
    for field in OTHERS.keys() - OWN[name]:
        with pytest.raises(BodyError) as refused:
            DIALECTS[name].read_request({**PLAINEST[name], field: OTHERS[field]})
        assert (refused.value.code, refused.value.field_name) == ("body_invalid", field)
        assert DIALECTS[name].read_request({**PLAINEST[name], field: None})
