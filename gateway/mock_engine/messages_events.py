"""A plan as Anthropic Messages: blocks that begin, grow and end, or the whole message. Usage as reported unless the script says `none`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.mock_engine.plan import Piece, Plan
from gateway.mock_engine.script import UsageForm

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_GROWS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking"), "tool_use": ("input_json_delta", "partial_json")}


class MessagesEvents:
    """The JSON of one call."""

    def __init__(self, plan: Plan, *, number: int, model: str) -> None:
        self._plan = plan
        self._number = number
        self._blocks: list[dict[str, Any]] = []
        self._arguments: dict[int, str] = {}
        self._open = False
        self._base: dict[str, Any] = {"id": f"msg_mock_{number}", "type": "message", "role": "assistant", "model": model}

    def begin(self) -> Iterator[bytes]:
        message = {**self._base, "content": [], "stop_reason": None, "stop_sequence": None, **self._usage(0)}
        yield self._event("message_start", message=message)

    def piece(self, piece: Piece, generated: int) -> bytes:
        return b"".join(self._grow(piece))

    def finish(self) -> Iterator[bytes]:
        yield from self._close()
        yield self._event("message_delta", delta={"stop_reason": self._reason(), "stop_sequence": None}, **self._usage(self._plan.output_tokens))

    def end(self) -> bytes:
        return self._event("message_stop")

    def after_end(self) -> bytes:
        return b""

    def whole(self) -> bytes:
        for piece in self._plan.pieces():
            for _ in self._grow(piece):
                pass
        for place, text in self._arguments.items():
            self._blocks[place]["input"] = orjson.loads(text or "{}")
        ends = {"stop_reason": self._reason(), "stop_sequence": None}
        return orjson.dumps({**self._base, "content": self._blocks, **ends, **self._usage(self._plan.output_tokens)})

    def error(self, message: str) -> bytes:
        return self._event("error", error={"type": "api_error", "message": message})

    def _grow(self, piece: Piece) -> Iterator[bytes]:
        delta = piece.delta
        if "reasoning_content" in delta:
            yield from self._text("thinking", delta["reasoning_content"])
        elif "content" in delta:
            yield from self._text("text", delta["content"])
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            if "id" in call:
                yield from self._begin({"type": "tool_use", "id": call["id"].replace("call_", "toolu_"), "name": function["name"], "input": {}})
                self._arguments[len(self._blocks) - 1] = ""
            elif function["arguments"]:
                self._arguments[len(self._blocks) - 1] += function["arguments"]
                yield self._delta("tool_use", function["arguments"])

    def _text(self, kind: str, text: str) -> Iterator[bytes]:
        if not self._open or self._blocks[-1]["type"] != kind:
            yield from self._begin({"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})})
        self._blocks[-1][kind] += text
        yield self._delta(kind, text)

    def _begin(self, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close()
        self._blocks.append(block)
        self._open = True
        yield self._event("content_block_start", index=len(self._blocks) - 1, content_block=dict(block))

    def _close(self) -> Iterator[bytes]:
        if self._open:
            self._open = False
            yield self._event("content_block_stop", index=len(self._blocks) - 1)

    def _delta(self, kind: str, text: str) -> bytes:
        name, field = _GROWS[kind]
        return self._event("content_block_delta", index=len(self._blocks) - 1, delta={"type": name, field: text})

    def _reason(self) -> str:
        return _REASONS.get(self._plan.finish_reason, self._plan.finish_reason)

    def _usage(self, output: int) -> dict[str, Any]:
        plan = self._plan
        if plan.script.usage is UsageForm.NONE:
            return {}
        plain = plan.prompt_tokens - plan.cached_tokens
        return {"usage": {"input_tokens": plain, "cache_read_input_tokens": plan.cached_tokens, "cache_creation_input_tokens": 0, "output_tokens": output}}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps({"type": kind, **fields}) + b"\n\n"
