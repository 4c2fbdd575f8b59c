"""What one chat answer will say, piece by piece, before a byte of it is sent: the script held against what the call asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from gateway.mock_engine import tokens
from gateway.mock_engine.script import DEFAULT_OUTPUT_TOKENS, Script, ToolCall

CAP_NAMES = ("n_predict", "max_completion_tokens", "max_tokens")
"""As llama.cpp reads them: the first that is there counts."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk of one choice."""

    choice: int
    delta: dict[str, Any]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer."""

    script: Script
    choices: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    """Of each choice."""
    finish_reason: str
    with_tools: bool

    @property
    def reasoning_tokens(self) -> int:
        return min(self.script.reasoning_tokens, self.output_tokens)

    def pieces(self) -> Iterator[Piece]:
        """The choices' chunks in turn."""
        rounds = zip_longest(*(self._choice(choice) for choice in range(self.choices)))
        return (piece for piece in chain.from_iterable(rounds) if piece is not None)

    def _choice(self, choice: int) -> Iterator[Piece]:
        calls = self.script.tool_calls if self.with_tools else ()
        text_tokens = self.output_tokens - self.reasoning_tokens - sum(_cost(call) for call in calls)
        yield from self._text(choice, "reasoning_content", self.reasoning_tokens)
        yield from self._text(choice, "content", text_tokens)
        for index, call in enumerate(calls):
            head = {"index": index, "id": f"call_{choice}_{index}", "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield Piece(choice, {"tool_calls": [head]}, tokens.count(call.name))
            half = len(call.arguments) // 2
            yield Piece(choice, _arguments(index, call.arguments[:half]), 0)
            yield Piece(choice, _arguments(index, call.arguments[half:]), tokens.count(call.arguments))

    def _text(self, choice: int, kind: str, total: int) -> Iterator[Piece]:
        size = max(1, self.script.chunk_tokens)
        for first in range(0, total, size):
            some = range(first, min(first + size, total))
            yield Piece(choice, {kind: "".join(map(tokens.said, some))}, len(some))


def make_plan(script: Script, body: dict[str, Any], context_tokens: int) -> Plan:
    prompt = tokens.count(tokens.render(body)) if script.prompt_tokens is None else script.prompt_tokens
    cap = _cap(body)
    calls_cost = sum(map(_cost, script.tool_calls))
    wanted = script.output_tokens
    if wanted is None:
        wanted = script.reasoning_tokens + calls_cost if script.tool_calls else DEFAULT_OUTPUT_TOKENS if cap is None else cap
    room = max(0, context_tokens - prompt)
    bound = room if cap is None else min(cap, room)
    total = wanted if script.ignore_cap else min(wanted, bound)
    total = max(total, script.minimum_output)
    cut = not script.ignore_cap and (total < wanted or (not script.tool_calls and total >= bound))
    with_tools = bool(script.tool_calls) and not cut
    if with_tools:
        total = max(total, script.reasoning_tokens + calls_cost)
    reason = script.finish_reason or ("length" if cut else "tool_calls" if with_tools else "stop")
    return Plan(
        script=script,
        choices=max(1, int(body.get("n") or 1)),
        prompt_tokens=prompt,
        cached_tokens=min(script.cached, prompt),
        output_tokens=total,
        finish_reason=reason,
        with_tools=with_tools,
    )


def _cap(body: dict[str, Any]) -> int | None:
    for name in CAP_NAMES:
        value = body.get(name)
        if value is not None:
            return None if int(value) < 0 else int(value)
    return None


def _cost(call: ToolCall) -> int:
    return tokens.count(call.name) + tokens.count(call.arguments)


def _arguments(index: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
