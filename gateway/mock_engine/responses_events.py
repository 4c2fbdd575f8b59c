"""A plan as OpenAI Responses: named events with items that begin, grow and end, or the whole response. Usage stands in the last one, but for `none`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.mock_engine.plan import Piece, Plan
from gateway.mock_engine.script import UsageForm

_GROWS = {"message": "response.output_text.delta", "reasoning": "response.reasoning_text.delta", "function_call": "response.function_call_arguments.delta"}


class ResponsesEvents:
    """The JSON of one call."""

    def __init__(self, plan: Plan, *, number: int, model: str, created: int) -> None:
        self._plan = plan
        self._number = number
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._base: dict[str, Any] = {"id": f"resp_mock_{number}", "object": "response", "created_at": created, "model": model, "error": None}

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response={**self._base, "status": "in_progress", "output": []})

    def piece(self, piece: Piece, generated: int) -> bytes:
        return b"".join(self._grow(piece))

    def finish(self) -> Iterator[bytes]:
        yield from self._close()

    def end(self) -> bytes:
        response = self._response()
        return self._event(f"response.{response['status']}", response=response)

    def after_end(self) -> bytes:
        return b""

    def whole(self) -> bytes:
        for piece in self._plan.pieces():
            for _ in self._grow(piece):
                pass
        for _ in self._close():
            pass
        return orjson.dumps(self._response())

    def error(self, message: str) -> bytes:
        return self._event("error", code="server_error", message=message, param=None)

    def _grow(self, piece: Piece) -> Iterator[bytes]:
        delta = piece.delta
        if "reasoning_content" in delta:
            yield from self._text("reasoning", delta["reasoning_content"])
        elif "content" in delta:
            yield from self._text("message", delta["content"])
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            if "id" in call:
                yield from self._close()
                yield self._open({"type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": ""})
            elif function["arguments"]:
                self._items[-1]["arguments"] += function["arguments"]
                yield self._delta("function_call", function["arguments"])

    def _text(self, kind: str, text: str) -> Iterator[bytes]:
        if not self._items or self._items[-1]["type"] != kind:
            yield from self._close()
            part = {"type": "output_text", "text": "", "annotations": []} if kind == "message" else {"type": "reasoning_text", "text": ""}
            yield self._open({"type": kind, "content": [part], **({"role": "assistant"} if kind == "message" else {"summary": []})})
            yield self._event("response.content_part.added", **self._place(), content_index=0, part=dict(part))
        self._items[-1]["content"][0]["text"] += text
        yield self._delta(kind, text)

    def _open(self, item: dict[str, Any]) -> bytes:
        mark = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[item["type"]]
        self._items.append({"id": f"{mark}_mock_{self._number}_{len(self._items)}", "status": "in_progress", **item})
        empty = {**self._items[-1], "content": []} if "content" in item else self._items[-1]
        return self._event("response.output_item.added", output_index=len(self._items) - 1, item=empty)

    def _close(self) -> Iterator[bytes]:
        """The item that grew last."""
        if not self._items or self._items[-1]["status"] == "completed":
            return
        item = self._items[-1]
        item["status"] = "completed"
        if item["type"] == "function_call":
            yield self._event("response.function_call_arguments.done", **self._place(), arguments=item["arguments"])
        else:
            part = item["content"][0]
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            yield self._event(f"response.{kind}.done", **self._place(), content_index=0, text=part["text"])
            yield self._event("response.content_part.done", **self._place(), content_index=0, part=part)
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _delta(self, kind: str, text: str) -> bytes:
        inner = {} if kind == "function_call" else {"content_index": 0}
        return self._event(_GROWS[kind], **self._place(), **inner, delta=text)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _response(self) -> dict[str, Any]:
        plan = self._plan
        cut = plan.finish_reason == "length"
        answer = {**self._base, "status": "incomplete" if cut else "completed", "output": self._items}
        answer["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        if plan.script.usage is not UsageForm.NONE:
            answer["usage"] = {
                "input_tokens": plan.prompt_tokens,
                "input_tokens_details": {"cached_tokens": plan.cached_tokens},
                "output_tokens": plan.output_tokens,
                "output_tokens_details": {"reasoning_tokens": plan.reasoning_tokens},
                "total_tokens": plan.prompt_tokens + plan.output_tokens,
            }
        return answer

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
