"""Headers that would steer an engine or lead elsewhere are refused by name; those that agents really send pass."""

from __future__ import annotations

import pytest

from gateway.dialects.dialect import BodyError
from gateway.proxy.agent_headers import check_headers

STEERING = {
    "X-Conversation-Id": "conversation_headers",
    "x-data-parallel-rank": "engine_headers",
    "X-SGLExt-Spec": "engine_headers",
    "x-portkey-custom-host": "routing",
    "X-Portkey-Config": "routing",
    "Helicone-Target-Url": "routing",
    "x-custom-host": "routing",
    "X-Upstream-URL": "routing",
    "x-litellm-api-base": "routing",
    "x-target-base-url": "routing",
}
SENT_BY_AGENTS = (
    "host", "authorization", "x-api-key", "content-type", "accept-encoding", "user-agent", "x-session-id", "session-id", "thread-id", "x-client-request-id",
    "x-codex-turn-metadata", "x-session-affinity", "x-claude-code-session-id", "x-stainless-retry-count", "x-stainless-lang", "anthropic-version",
    "anthropic-beta", "openai-organization", "x-irid", "x-initiator", "x-interaction-type", "x-forwarded-host", "x-forwarded-for", "x-real-ip", "forwarded",
    "x-goog-api-key", "x-request-id", "traceparent", "x-run-id", "http-referer", "x-title",
)  # fmt: skip


@pytest.mark.parametrize(("name", "thing"), STEERING.items())
def test_a_header_that_steers_is_refused_unless_the_policy_drops_it(name: str, thing: str) -> None:
    with pytest.raises(BodyError) as refused:
        check_headers(["Host", name], frozenset({"store"}))
    assert (refused.value.code, refused.value.field_name) == ("not_allowed", name.lower())
    assert f'guard.strip = ["{thing}"]' in refused.value.message and "guard.allow" not in refused.value.message
    check_headers(["Host", name], frozenset({thing}))


def test_headers_that_agents_and_proxies_send_pass() -> None:
    check_headers(SENT_BY_AGENTS, frozenset())
