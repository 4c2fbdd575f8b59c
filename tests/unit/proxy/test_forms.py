"""Before a dialect is known, the path alone says in which form an answer comes; its words are the same in all."""

from __future__ import annotations

import json

import pytest

from gateway.dialects import FAMILIES
from gateway.dialects.dialect import Wording
from gateway.proxy.forms import worded_for_api, worded_for_path
from gateway.proxy.refused import INTERNAL
from gateway.proxy.refusing import UNAUTHORIZED, UNDECLARED, refusal_wording
from gateway.upstream.call import Refusal

FORMS = {
    "/v1/messages": "anthropic", "/v1/messages?beta=true": "anthropic", "/v1/messages/count_tokens": "anthropic", "/v1/messages/batches": "anthropic",
    "/api/chat": "native", "/api/tags": "native", "/api/pull": "native", "/api/v1/chat": "native", "/completion": "native", "/generate": "native",
    "/v1/chat/completions": "openai", "/v1/responses": "openai", "/v1/responses/resp_x/input_items": "openai", "/v1/models": "openai", "/": "openai",
    "": "openai", "/slots": "openai", "//v1/messages": "openai", "/v1/%6dessages": "openai", "http://h/v1/messages": "openai",
    "/gateway/v1/budget": "openai",
}  # fmt: skip
WORDINGS = [UNAUTHORIZED, UNDECLARED, INTERNAL, refusal_wording(Refusal(code="overloaded", final=False)), refusal_wording(Refusal(code="busy", final=False))]


def form_and_words(body: bytes) -> tuple[str, str]:
    value = json.loads(body)
    if isinstance(value["error"], str):
        return "native", value["error"]
    return "anthropic" if value.get("type") == "error" else "openai", value["error"]["message"]


@pytest.mark.parametrize(("target", "form"), FORMS.items())
@pytest.mark.parametrize("wording", WORDINGS, ids=lambda wording: wording.code)
def test_the_path_alone_chooses_the_form(target: str, form: str, wording: Wording) -> None:
    reply = worded_for_path(target, wording)
    assert form_and_words(reply.body) == (form, wording.message)
    assert wording.status is None or reply.status == wording.status


@pytest.mark.parametrize("api", sorted({*FAMILIES.values()}))
def test_a_refusal_has_the_form_of_its_api(api: str) -> None:
    path = next(path for (_, path), name in FAMILIES.items() if name == api)
    assert form_and_words(worded_for_api(api, UNAUTHORIZED).body) == form_and_words(worded_for_path(path, UNAUTHORIZED).body)
