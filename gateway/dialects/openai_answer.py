"""What an OpenAI chat answer delivered: text, reasoning, tool calls, finish reasons, ids. No counts of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.json_text import size, whole_text


@dataclass(slots=True)
class Delivered:
    """Grows with each event, or is filled by one body."""

    text: dict[int, list[str]] = field(default_factory=dict)
    """By choice."""
    reasoning: list[str] = field(default_factory=list)
    tool_arguments: list[str] = field(default_factory=list)
    text_bytes: int = 0
    reasoning_bytes: int = 0
    tool_argument_bytes: int = 0
    finish: dict[int, str | None] = field(default_factory=dict)
    """By choice: None while it runs."""
    calls: set[tuple[int, int | str]] = field(default_factory=set)
    call_ids: dict[str, None] = field(default_factory=dict)
    response_id: str | None = None
    model: str | None = None

    def head(self, answer: Mapping[str, Any]) -> None:
        """The first id and model that are not empty stand."""
        if self.response_id is None and isinstance(found := answer.get("id"), str) and found:
            self.response_id = found
        if self.model is None and isinstance(found := answer.get("model"), str) and found:
            self.model = found

    def choice(self, index: int, choice: Mapping[str, Any], part: object) -> bool:
        """One choice of an event (`part` is its delta) or of a body (its message). True where something was delivered."""
        reason = choice.get("finish_reason")
        if reason or index not in self.finish:
            self._finish(index, reason)
        if part.__class__ is not dict or not part:
            return False
        content = part.get("content")
        seen = bool(content) and self._text(index, content)
        if len(part) > 1 or not seen:
            seen = self._rest(index, part) or seen
        return seen

    def _finish(self, index: int, reason: object) -> None:
        """The first reason that is not empty stands."""
        if not self.finish.get(index):
            self.finish[index] = reason if isinstance(reason, str) and reason else None

    def _text(self, index: int, content: object) -> bool:
        if isinstance(content, str):
            pieces = self.text.get(index)
            if pieces is None:
                pieces = self.text[index] = []
            pieces.append(content)
            self.text_bytes += size(content)
            return True
        if isinstance(content, list):
            parts = [text for part in content if isinstance(part, dict) and isinstance(text := part.get("text"), str) and text]
            for text in parts:
                self._text(index, text)
            return bool(parts)
        return False

    def _rest(self, index: int, part: Mapping[str, Any]) -> bool:
        """Reasoning, refusal, tool calls."""
        seen = False
        reasoning = part.get("reasoning_content") or part.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            self.reasoning.append(reasoning)
            self.reasoning_bytes += size(reasoning)
            seen = True
        refusal = part.get("refusal")
        if refusal and isinstance(refusal, str):
            seen = self._text(index, refusal)
        calls = part.get("tool_calls")
        if isinstance(calls, list):
            for position, call in enumerate(calls):
                seen = self._call(index, call, position) or seen
        legacy = part.get("function_call")
        if isinstance(legacy, dict):
            self.calls.add((index, "function_call"))
            seen = self._arguments(legacy) or seen
        return seen

    def _call(self, index: int, call: object, position: int) -> bool:
        if not isinstance(call, dict):
            return False
        number, given = call.get("index"), call.get("id")
        name = given if isinstance(given, str) else ""
        self.calls.add((index, number if isinstance(number, int) else name or position))
        if name:
            self.call_ids[name] = None
        body = call.get("function")
        body = body if isinstance(body, dict) else call.get("custom")
        return self._arguments(body) if isinstance(body, dict) else False

    def _arguments(self, function: Mapping[str, Any]) -> bool:
        seen = False
        for name in ("name", "arguments", "input"):
            value = function.get(name)
            if value and isinstance(value, str):
                self.tool_arguments.append(value)
                self.tool_argument_bytes += size(value)
                seen = True
        return seen

    def add_text(self, index: int, text: object) -> bool:
        """True where it was some."""
        return bool(text) and isinstance(text, str) and self._text(index, text)

    def add_reasoning(self, text: object) -> bool:
        if not text or not isinstance(text, str):
            return False
        self.reasoning.append(text)
        self.reasoning_bytes += size(text)
        return True

    def add_arguments(self, text: object) -> bool:
        """Also a tool's name: it was generated."""
        if not text or not isinstance(text, str):
            return False
        self.tool_arguments.append(text)
        self.tool_argument_bytes += size(text)
        return True

    def add_finish(self, index: int, reason: object) -> None:
        """The first reason that is not empty stands."""
        self._finish(index, reason)

    def add_call(self, index: int, number: int | str, call_id: object = None) -> None:
        self.calls.add((index, number))
        if call_id and isinstance(call_id, str):
            self.call_ids[call_id] = None

    @property
    def anything(self) -> bool:
        return bool(self.text_bytes or self.reasoning_bytes or self.tool_argument_bytes)

    def answer_text(self, index: int = 0) -> str:
        return whole_text(self.text.get(index, []))

    def everything(self) -> str:
        pieces = [*self.reasoning, *(piece for index in sorted(self.text) for piece in self.text[index]), *self.tool_arguments]
        return whole_text(pieces)
