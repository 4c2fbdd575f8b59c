"""What is written down of a body, as it came and as it goes on. What a call before it began with is neither looked at nor hashed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.dialects.body_record import body_record, bytes_by_role, canonical_continued, canonical_sha256, conversation, plain, sent_record
from gateway.dialects.digests import Continued
from gateway.dialects.known import KeptText, Known, KnownTools, whole
from gateway.dialects.received import Received
from gateway.proxy.calls import Call
from gateway.runs.growth import Growth
from gateway.tokenizers.shape import json_bytes

STRIPPED_MAX: Final = 64
STRIPPED_CHARACTERS: Final = 128
"""On record of what was taken out: so many paths, and so much of each."""


def body_details(call: Call, forwarded: Mapping[str, Any], growth: Growth) -> tuple[bytes, dict[str, object]]:
    """The body that is sent, and the details of its reservation."""
    received = call.received
    sent, messages_at = received.forwarded(forwarded)
    if received.written is not None and received.written.messages is not None:
        return sent, _with_stripped(call, _continued(call, received, forwarded, sent, messages_at, growth))
    settings = call.dialect.settings
    messages = conversation(received.value)
    new_bytes, by_role = growth.of_short(call.run_key, call.identity.lane, messages, received.short_messages) if messages is not None else (None, None)
    details = body_record(received.raw, received.value, settings, call.request.tool_names, received.spans(), by_role=by_role)
    details |= sent_record(forwarded, settings, sent)
    if (canonical := canonical_sha256(received.value, plain=received.structure.plain)) is not None:
        details["canonical_sha256"] = canonical
    if new_bytes is not None:
        details["new_bytes"] = new_bytes
    return sent, _with_stripped(call, details)


def _with_stripped(call: Call, details: dict[str, object]) -> dict[str, object]:
    """What the agent asked for and the engine was not sent. What came in stands there too, as every field does."""
    if call.stripped:
        details["stripped"] = [plain(path[:STRIPPED_CHARACTERS]) for path in call.stripped[:STRIPPED_MAX]]
    return details


def _continued(call: Call, received: Received, forwarded: Mapping[str, Any], sent: bytes, messages_at: int, growth: Growth) -> dict[str, object]:
    assert received.written is not None and received.written.messages is not None and received.messages is not None
    text, spans, base = received.written.messages, received.written.spans, received.known
    raw, messages = memoryview(received.raw), received.value["messages"]
    begin, end = spans["messages"]
    size = end - begin
    middle = begin + (base.list_bytes if base is not None else 0)
    hashes = Continued(base.written if base is not None else {}, lambda: raw[begin:middle], (raw[middle : end - 1],))
    digest = hashes.sha256(raw[:begin], raw[end - 1 :])
    sent_digest = hashes.sha256(sent[:messages_at], memoryview(sent)[messages_at + size - 1 :]) if messages_at else ""
    new_bytes = growth.new_bytes(call.run_key, call.identity.lane, messages, text, size)
    without_bracket, behind_text = text.sha256(size - 1), text.behind(size - 1)
    digests = {(0, len(raw)): digest, (begin, end): text.sha256(size)}
    tools = call.request.known_tools
    if tools is not None:
        digests[spans["tools"]] = tools.sha256
    by_role = bytes_by_role(messages[base.messages :] if base is not None else messages)
    for role, known_bytes in base.by_role.items() if base is not None else ():
        by_role[role] = by_role.get(role, 0) + known_bytes
    settings = call.dialect.settings
    tools_sha256 = tools.record_sha256 if tools is not None else ""
    details = body_record(received.raw, received.value, settings, call.request.tool_names, spans, digests, by_role, tools_sha256)
    details |= {**sent_record(forwarded, settings, sent, sent_digest), "new_bytes": new_bytes}
    canonical: str | None
    if received.structure.plain:
        canonical, behind = canonical_continued(received.value, base)
    else:
        canonical, behind = canonical_sha256(whole(received.value)), {}
    if canonical is not None:
        details["canonical_sha256"] = canonical
    read = call.request.read
    as_received = call.request.body.get("messages") is received.value["messages"]
    if read is not None and as_received:
        tools = tools or _tools_of(call, received, details)
        now = Known(
            messages=len(messages),
            list_bytes=size - 1,
            sha256=without_bracket,
            structure=received.messages,
            read=read,
            by_role=by_role,
            written=hashes.behind,
            canonical=behind,
            tools=tools,
            text=KeptText(raw[begin : end - 1], raw[slice(*spans["tools"])] if tools is not None else None, behind_text, len(raw)),
        )
        growth.learn(call.run_key, call.identity.lane, call.dialect.name, now, base)
    return details


def _tools_of(call: Call, received: Received, details: Mapping[str, Any]) -> KnownTools | None:
    """What a later call need not look at again."""
    body = call.request.body
    tools: list[object] = body.get("tools") or []
    if not tools or tools is not received.value.get("tools") or received.tools is None or body.get("functions") is not None:
        return None
    return KnownTools(
        sha256=details["fields"]["tools"]["sha256"],
        structure=received.tools,
        names=call.request.tool_names,
        text_bytes=json_bytes(tools) - len(tools) - 1,
        record_sha256=details["tools_sha256"],
    )
