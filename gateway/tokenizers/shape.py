"""The sizes of a request that a bound needs. One pass, no rendering: a body of a megabyte takes well under a millisecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from gateway.dialects.dialect import CallRequest, PromptSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptShape:
    text_bytes: int
    """UTF-8 bytes of everything that the template can render."""
    parts: int
    """Of a message's content: they are joined by a byte or two."""
    messages: int
    tools: int
    tool_bytes: int
    """Of the tools as compact JSON; inside `text_bytes`."""
    tool_calls: int
    """Of earlier turns, in the messages."""
    call_bytes: int
    """Of those calls as compact JSON; inside `text_bytes`."""
    pictures: int
    prompts: int = 1
    ids: int = 0
    """Tokens that stand as numbers in the body."""


def text_bytes(parts: Sequence[str]) -> int:
    return sum(len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass")) for part in parts)


def shape_of(request: CallRequest) -> PromptShape:
    sizes = request.sizes or _chat_sizes(request)
    return PromptShape(
        text_bytes=text_bytes(request.rendered_parts),
        parts=len(request.rendered_parts),
        messages=sizes.messages,
        tools=sizes.tools,
        tool_bytes=sizes.tool_bytes,
        tool_calls=sizes.tool_calls,
        call_bytes=sizes.call_bytes,
        pictures=request.pictures,
        prompts=request.prompts,
        ids=request.prompt_ids,
    )


def _chat_sizes(request: CallRequest) -> PromptSizes:
    messages = _listed(request.body, "messages")
    tools = [*_listed(request.body, "tools"), *_listed(request.body, "functions")]
    calls = [call for message in messages if isinstance(message, Mapping) for call in _listed(message, "tool_calls")]
    return PromptSizes(
        messages=len(messages),
        tools=len(tools),
        tool_bytes=json_bytes(tools) if tools else 0,
        tool_calls=len(calls),
        call_bytes=json_bytes(calls) if calls else 0,
    )


def json_bytes(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates, whole numbers above 64 bits
        return len(repr(value).encode("utf-8", "surrogatepass")) * 2


def _listed(value: Mapping[str, object], name: str) -> Sequence[object]:
    found = value.get(name)
    return found if isinstance(found, list) else ()
