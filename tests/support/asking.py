"""Call requests made from a body, with every text of it as a rendered part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from gateway.dialects.dialect import CallRequest


def request_of(body: Mapping[str, object], *, pictures: int = 0) -> CallRequest:
    tools = body.get("tools")
    return CallRequest(
        model="m",
        stream=False,
        asked_output=None,
        min_output=None,
        choices=1,
        prompts=1,
        usage_asked=False,
        rendered_parts=tuple(_texts(body.get("messages"))) + ((orjson.dumps(tools).decode(),) if tools else ()),
        pictures=pictures,
        has_tools=bool(tools),
        tool_names=(),
        body=body,
    )


def _texts(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (part["text"] for part in content if "text" in part)
        for call in message.get("tool_calls") or []:
            yield orjson.dumps(call).decode()
