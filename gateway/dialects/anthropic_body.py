"""What a Messages body holds: its texts, pictures and tools, and that nothing in it makes the engine fetch, act or remember.

The rule: content stands in the body itself. An address, a file's id, a tool that the engine would run, are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.dialects.barred import REMOTE, Allowed, tool_thing
from gateway.dialects.body_fields import invalid, list_of_objects, not_allowed, text_of
from gateway.dialects.dialect import PromptSizes
from gateway.dialects.guard import guard_part
from gateway.dialects.json_text import compact, size
from gateway.dialects.spelling import guard_spoken

_TEXTS: Final = frozenset({"text", "thinking", "redacted_thinking"})
_PICTURES: Final = frozenset({"image", "document"})


class MessagesBody:
    """Gathers while it checks. Raises BodyError."""

    def __init__(self, body: Mapping[str, Any], allowed: Allowed) -> None:
        self._allowed = allowed
        self.parts: list[str] = []
        self.pictures = 0
        self.tool_names: tuple[str, ...] = ()
        self._messages = self._calls = self._call_bytes = self._tool_bytes = 0
        messages = list_of_objects(body, "messages")
        if not messages:
            raise invalid("messages", "a list that is not empty")
        if body.get("system") is not None:
            self._messages += 1
            self._content(body["system"], "system")
        for message in messages:
            self._message(message)
        self._tools(list_of_objects(body, "tools"))
        if isinstance(format_ := (body.get("output_config") or body.get("output_format")), dict):
            self.parts.append(compact(format_))

    @property
    def sizes(self) -> PromptSizes:
        return PromptSizes(
            messages=self._messages,
            tools=len(self.tool_names),
            tool_bytes=self._tool_bytes,
            tool_calls=self._calls,
            call_bytes=self._call_bytes,
        )

    def _message(self, message: Mapping[str, Any]) -> None:
        if not isinstance(message.get("role"), str):
            raise invalid("messages.role", "a text")
        guard_spoken(message)
        self._messages += 1
        self._content(message.get("content"), "messages.content")

    def _content(self, content: object, name: str) -> None:
        if isinstance(content, str):
            self.parts.append(content)
            return
        if not isinstance(content, list):
            raise invalid(name, "a text or a list of blocks")
        for block in content:
            if not isinstance(block, dict):
                raise invalid(name, "a text or a list of blocks")
            self._block(block, name)

    def _block(self, block: Mapping[str, Any], name: str) -> None:
        guard_spoken(block)
        kind = block.get("type", "text")
        if not isinstance(kind, str):
            raise invalid(f"{name}.type", "a text")
        if kind in _TEXTS:
            self.parts.extend(value for field in ("text", "thinking") if isinstance(value := block.get(field), str))
        elif kind in _PICTURES:
            self._source(block, kind)
        elif kind == "tool_use":
            self._call(block)
        elif kind == "tool_result":
            self._messages += 1  # engines render each as a message of its own
            if block.get("content") is not None:
                self._content(block["content"], "messages.content.content")
        elif kind == "search_result":
            self.parts.extend(value for field in ("title", "source") if isinstance(value := block.get(field), str))
            self._content(block.get("content"), "messages.content.content")
        elif kind == "tool_reference" or "hosted_tools" in self._allowed:
            self.parts.append(compact(block))
        else:
            raise not_allowed("messages.content", "hosted_tools")

    def _source(self, block: Mapping[str, Any], kind: str) -> None:
        """A picture or a document: its bytes, or its text, in the body itself."""
        source = block.get("source")
        if not isinstance(source, dict):
            raise invalid(f"messages.content.{kind}.source", "an object")
        guard_spoken(source)
        self.parts.extend(value for field in ("title", "context") if isinstance(value := block.get(field), str))
        match source.get("type"):
            case "text" if isinstance(source.get("data"), str):
                self.parts.append(source["data"])
                rest = {name: value for name, value in source.items() if name != "data"}
            case "content":
                self._content(source.get("content"), f"messages.content.{kind}.source.content")
                rest = {name: value for name, value in source.items() if name != "content"}
            case "base64":
                self.pictures += 1
                rest = source
            case _:
                if REMOTE[kind] not in self._allowed:
                    raise not_allowed(kind, REMOTE[kind])
                self.pictures += 1
                rest = source
        guard_part({**rest, "type": kind}, kind, self._allowed)

    def _call(self, block: Mapping[str, Any]) -> None:
        name = text_of(block, "name")
        text = compact({"name": name, "arguments": block.get("input") or {}})
        self.parts.append(text)
        self._calls += 1
        self._call_bytes += size(text)

    def _tools(self, tools: list[dict[str, Any]]) -> None:
        names = []
        for tool in tools:
            kind = tool.get("type")
            if kind not in (None, "custom") and not (isinstance(kind, str) and self._allowed.hosts(kind)):
                raise not_allowed("tools", tool_thing(str(kind)))
            names.append(text_of(tool, "name") if kind in (None, "custom") or "name" in tool else str(kind))
            text = compact({"type": "function", "function": {**tool}})
            self.parts.append(text)
            self._tool_bytes += size(text)
        self.tool_names = tuple(names)
