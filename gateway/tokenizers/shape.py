"""The sizes of a request that a bound needs. One pass, no rendering: a body of a megabyte takes well under a millisecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from gateway.dialects.dialect import CallRequest, PromptSizes
from gateway.dialects.json_text import sizes
from gateway.dialects.known import KnownMessages, MessagesRead
from gateway.frozen import frozen


@frozen
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


def shape_of(request: CallRequest) -> PromptShape:
    read = request.read if request.read is not None else _read(request)
    given = request.sizes if request.sizes is not None else _chat_sizes(request, read)
    tools = request.known_tools
    return PromptShape(
        text_bytes=read.text_bytes + sizes(request.other_parts) + (tools.text_bytes if tools is not None else 0),
        parts=read.parts + len(request.other_parts) + (len(tools.names) if tools is not None else 0),
        messages=given.messages,
        tools=given.tools,
        tool_bytes=given.tool_bytes,
        tool_calls=given.tool_calls,
        call_bytes=given.call_bytes,
        pictures=request.pictures,
        prompts=request.prompts,
        ids=request.prompt_ids,
    )


def _chat_sizes(request: CallRequest, read: MessagesRead) -> PromptSizes:
    tools, tool_bytes = _tools(request)
    return PromptSizes(
        messages=len(_listed(request.body, "messages")),
        tools=tools,
        tool_bytes=tool_bytes,
        tool_calls=read.tool_calls,
        call_bytes=read.call_bytes + read.tool_calls + 1 if read.tool_calls else 0,
    )


def _tools(request: CallRequest) -> tuple[int, int]:
    """How many, and how long they are as a list."""
    known = request.known_tools
    if known is not None:
        return len(known.names), known.text_bytes + len(known.names) + 1
    tools = [*_listed(request.body, "tools"), *_listed(request.body, "functions")]
    return len(tools), json_bytes(tools) if tools else 0


def _read(request: CallRequest) -> MessagesRead:
    """Of a request whose format takes no sizes in reading."""
    calls = [call for message in _listed(request.body, "messages") if isinstance(message, Mapping) for call in _listed(message, "tool_calls")]
    parts = request.rendered_parts[: len(request.rendered_parts) - len(request.other_parts)]
    return MessagesRead(parts=len(parts), text_bytes=sizes(parts), tool_calls=len(calls), call_bytes=sum(map(json_bytes, calls)))


def json_bytes(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates, whole numbers above 64 bits
        return len(repr(value).encode("utf-8", "surrogatepass")) * 2


def _listed(value: Mapping[str, object], name: str) -> Sequence[object]:
    found = value.get(name)
    return found if isinstance(found, list | KnownMessages) else ()
