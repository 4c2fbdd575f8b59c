"""What one chat answer will say, piece by piece, before a byte of it is sent: the script held against what the call asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from typing import Any

from gateway.mock_engine import tokens
from gateway.mock_engine.script import DEFAULT_OUTPUT_TOKENS, Script, ToolCall

CAP_NAMES = ("n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens")
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
    number: int
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
            head = {"index": index, "id": f"call_{self.number}_{choice}_{index}", "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield Piece(choice, {"tool_calls": [head]}, tokens.count(call.name))
            yield from _in_parts(choice, index, call.arguments, self.script.argument_pieces)

    def _text(self, choice: int, kind: str, total: int) -> Iterator[Piece]:
        size = max(1, self.script.chunk_tokens)
        words = tokens.pieces(self.script.text) if kind == "content" else []
        said = words.__getitem__ if words else tokens.said
        total = min(total, len(words)) if words else total
        for first in range(0, total, size):
            some = range(first, min(first + size, total))
            yield Piece(choice, {kind: "".join(map(said, some))}, len(some))


def make_plan(script: Script, body: dict[str, Any], context_tokens: int, number: int = 0) -> Plan:
    """`number`: which call it is, so that no two tool calls bear the same id."""
    prompt = tokens.count(tokens.render(body)) if script.prompt_tokens is None else script.prompt_tokens
    cap = asked_cap(body)
    calls_cost = sum(map(_cost, script.tool_calls))
    wanted = script.output_tokens
    if wanted is None:
        wanted = _wanted(script, calls_cost, cap)
    room = max(0, context_tokens - prompt)
    bound = room if cap is None else min(cap, room)
    total = wanted if script.ignore_cap else min(wanted, bound)
    total = max(total, script.minimum_output)
    cut = not script.ignore_cap and (total < wanted or (not script.tool_calls and not script.text and total >= bound))
    with_tools = bool(script.tool_calls) and not cut
    if with_tools:
        total = max(total, script.reasoning_tokens + calls_cost)
    reason = script.finish_reason or ("length" if cut else "tool_calls" if with_tools else "stop")
    return Plan(
        script=script,
        number=number,
        choices=max(1, int(body.get("n") or 1)),
        prompt_tokens=prompt,
        cached_tokens=min(script.cached, prompt),
        output_tokens=total,
        finish_reason=reason,
        with_tools=with_tools,
    )


def _wanted(script: Script, calls_cost: int, cap: int | None) -> int:
    """Where the script names no number."""
    if script.tool_calls or script.text:
        return script.reasoning_tokens + tokens.count(script.text) + calls_cost
    return DEFAULT_OUTPUT_TOKENS if cap is None else cap


def asked_cap(body: dict[str, Any]) -> int | None:
    """Output that the body asks for at most, of each choice."""
    for name in CAP_NAMES:
        value = body.get(name)
        if value is not None:
            return None if int(value) < 0 else int(value)
    return None


def _cost(call: ToolCall) -> int:
    return tokens.count(call.name) + tokens.count(call.arguments)


def _in_parts(choice: int, index: int, text: str, pieces: int) -> Iterator[Piece]:
    """The last part bears what is left of the tokens, so that the sum is the whole text's."""
    ends = [len(text) * part // max(1, pieces) for part in range(max(1, pieces) + 1)]
    total = tokens.count(text)
    told = 0
    for first, last in pairwise(ends):
        now = total if last == len(text) else total * last // len(text)
        yield Piece(choice, _arguments(index, text[first:last]), now - told)
        told = now


def _arguments(index: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
