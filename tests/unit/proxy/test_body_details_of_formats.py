"""The record of a body is the same in every format whether its beginning is known or not: conversation, roles, what is new."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from gateway.dialects import DIALECTS, received
from gateway.dialects.dialect import ForwardFacts
from gateway.proxy.body import BodyBounds, receive
from gateway.proxy.body_details import body_details
from gateway.proxy.calls import Call
from gateway.runs.growth import Growth

ROOMY = BodyBounds(max_bytes=1 << 20, max_depth=64, max_keys=20_000, read_seconds=60)


def details_of(growth: Growth, name: str, raw: bytes) -> dict[str, object]:
    dialect = DIALECTS[name]
    found = receive(raw, ROOMY, growth.known("c/r", "l", name))
    request = dialect.read_request(found.value, known=found.known)
    forwarded = dialect.forward_body(request, ForwardFacts(model="own", cap_name="max_tokens"), ceiling_per_choice=5)
    call = SimpleNamespace(received=found, request=request, dialect=dialect, stripped=(), run_key="c/r", identity=SimpleNamespace(lane="l"))
    return body_details(cast(Call, call), forwarded, growth)[1]


BODIES: dict[str, dict[str, Any]] = {
    "openai.chat": {"model": "m", "messages": []},
    "anthropic.messages": {"model": "m", "max_tokens": 9, "system": "Be kind.", "messages": []},
    "openai.responses": {"model": "m", "instructions": "Be kind.", "input": []},
    "ollama.chat": {"model": "m", "messages": []},
}


@pytest.mark.parametrize("least", [0, 1 << 20])
@pytest.mark.parametrize("name", BODIES)
def test_a_conversation_that_goes_on_is_recorded_by_what_is_new(name: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "LEAST_BYTES", least)
    field = "input" if "input" in BODIES[name] else "messages"
    tight, loose, talk = Growth(), Growth(), []
    for turn in range(3):
        talk = [*talk, {"role": "user", "content": f"turn {turn}"}]
        body = {**BODIES[name], field: talk}
        one, other = details_of(tight, name, orjson.dumps(body)), details_of(loose, name, json.dumps(body, indent=1).encode())
        system = {"system": 8} if {"system", "instructions"} & body.keys() else {}
        for record in (one, other):
            assert record["new_bytes"] == len(orjson.dumps(talk[-1]))
            assert record["messages"] == turn + 1
            assert record["bytes_by_role"] == {"user": 6 * (turn + 1), **system}
        same = {"body_bytes", "body_sha256", "fields", "settings_asked", "sent_bytes", "sent_sha256"}
        assert {key: value for key, value in one.items() if key not in same} == {key: value for key, value in other.items() if key not in same}
