"""A plan as chat JSON on the wire: chunks of a stream, or the whole answer. Shapes are llama.cpp's; what is reported follows the script's `usage`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from gateway.mock_engine.plan import Piece, Plan
from gateway.mock_engine.script import Die, UsageForm

DONE = b"data: [DONE]\n\n"
COMMENT = b": mock engine\n\n"
ERRORS: dict[Die, tuple[int, str, str]] = {
    Die.STATUS_400: (400, "exceed_context_size_error", "the request exceeds the available context size"),
    Die.STATUS_401: (401, "authentication_error", "Invalid API Key"),
    Die.STATUS_404: (404, "not_found_error", "model not found"),
    Die.STATUS_429: (429, "rate_limit_error", "too many requests"),
    Die.STATUS_500: (500, "server_error", "Compute error."),
    Die.STATUS_503: (503, "unavailable_error", "Loading model"),
}


class Voice(Protocol):
    """How an answer is said in one format."""

    def begin(self) -> Iterator[bytes]: ...

    def piece(self, piece: Piece, generated: int) -> bytes: ...

    def finish(self) -> Iterator[bytes]:
        """What comes before the terminal event, reports included."""

    def end(self) -> bytes:
        """The terminal event."""

    def after_end(self) -> bytes: ...

    def whole(self) -> bytes:
        """The answer in one piece."""

    def error(self, message: str) -> bytes:
        """An error in the midst of a stream."""


class Events:
    """The JSON of one chat call."""

    def __init__(self, plan: Plan, *, number: int, model: str, created: int, asked: bool) -> None:
        self._plan = plan
        self._usage = plan.script.usage
        self._asked = asked
        self._base: dict[str, Any] = {"created": created, "id": f"chatcmpl-mock-{number}", "model": model, "system_fingerprint": "mock"}
        if plan.script.padding_bytes:
            self._base["padding"] = "x" * plan.script.padding_bytes

    def begin(self) -> Iterator[bytes]:
        for choice in range(self._plan.choices):
            yield self._chunk([_choice(choice, {"role": "assistant", "content": None})], {})

    def piece(self, piece: Piece, generated: int) -> bytes:
        running = self._usage is UsageForm.CUMULATIVE
        return self._chunk([_choice(piece.choice, piece.delta)], {"usage": self._counts(generated)} if running else {})

    def finish(self) -> Iterator[bytes]:
        """The finish chunks, one a choice, and what is reported before `[DONE]`."""
        plan, total = self._plan, self._plan.output_tokens * self._plan.choices
        for choice in range(plan.choices):
            report: dict[str, Any] = {}
            if choice == plan.choices - 1:
                if self._usage is UsageForm.TIMINGS or (self._usage is UsageForm.AUTO and not self._asked):
                    report = {"timings": self._timings(total)}
                elif self._usage in (UsageForm.FINISH, UsageForm.CUMULATIVE):
                    report = {"usage": self._counts(total)}
            yield self._chunk([_choice(choice, {}, plan.finish_reason)], report)
        yield from self._reports(total)

    def _reports(self, total: int) -> Iterator[bytes]:
        match self._usage:
            case UsageForm.AUTO if self._asked:
                yield self._chunk([], {"usage": self._counts(total), "timings": self._timings(total)})
            case UsageForm.FINAL if self._asked:
                yield self._chunk([], {"usage": self._counts(total)})
            case UsageForm.FORCED | UsageForm.NEGATIVE:
                yield self._chunk([], {"usage": self._counts(total)})
            case UsageForm.PER_CHOICE:
                for _ in range(self._plan.choices):
                    yield self._chunk([], {"usage": self._counts(self._plan.output_tokens)})
            case _:
                pass

    def end(self) -> bytes:
        return DONE

    def after_end(self) -> bytes:
        if self._usage is not UsageForm.LATE:
            return b""
        return self._chunk([], {"usage": self._counts(self._plan.output_tokens * self._plan.choices)})

    def whole(self) -> bytes:
        plan, total = self._plan, self._plan.output_tokens * self._plan.choices
        messages = [_Message() for _ in range(plan.choices)]
        for piece in plan.pieces():
            messages[piece.choice].add(piece.delta)
        choices = [{"finish_reason": plan.finish_reason, "index": n, "message": message.as_json()} for n, message in enumerate(messages)]
        answer = {"choices": choices, "object": "chat.completion", **self._base}
        if self._usage not in (UsageForm.NONE, UsageForm.TIMINGS):
            answer["usage"] = self._counts(plan.output_tokens if self._usage is UsageForm.PER_CHOICE else total)
        if self._usage in (UsageForm.AUTO, UsageForm.TIMINGS):
            answer["timings"] = self._timings(total)
        return orjson.dumps(answer)

    def error(self, message: str) -> bytes:
        return b"data: " + orjson.dumps({"error": {"code": 500, "message": message, "type": "server_error"}}) + b"\n\n"

    def _chunk(self, choices: list[dict[str, Any]], report: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({"choices": choices, **self._base, "object": "chat.completion.chunk", **report}) + b"\n\n"

    def _counts(self, output: int) -> dict[str, Any]:
        plan = self._plan
        sign = -1 if self._usage is UsageForm.NEGATIVE else 1
        usage: dict[str, Any] = {
            "completion_tokens": sign * output,
            "prompt_tokens": sign * plan.prompt_tokens,
            "total_tokens": sign * (output + plan.prompt_tokens),
        }
        usage["prompt_tokens_details"] = {"cached_tokens": plan.cached_tokens}
        if plan.reasoning_tokens:
            usage["completion_tokens_details"] = {"reasoning_tokens": min(output, plan.reasoning_tokens * plan.choices)}
        return usage

    def _timings(self, output: int) -> dict[str, Any]:
        plan = self._plan
        return {
            "cache_n": plan.cached_tokens,
            "prompt_n": plan.prompt_tokens - plan.cached_tokens,
            "prompt_ms": float(plan.script.prefill_ms),
            "predicted_n": output,
            "predicted_ms": float(plan.script.gap_ms * output),
        }


class _Message:
    """One choice of a whole answer, put together from the pieces."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: dict[str, Any]) -> None:
        for kind, parts in self._text.items():
            if kind in delta:
                parts.append(delta[kind])
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                self._calls.append({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}})
            else:
                self._calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]

    def as_json(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text["content"])}
        if self._text["reasoning_content"]:
            message["reasoning_content"] = "".join(self._text["reasoning_content"])
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def error_body(die: Die, *, prompt_tokens: int = 0, context_tokens: int = 0) -> tuple[int, bytes]:
    status, kind, message = ERRORS.get(die, ERRORS[Die.STATUS_500])
    error: dict[str, Any] = {"code": status, "message": message, "type": kind}
    if die is Die.STATUS_400:
        error |= {"n_prompt_tokens": prompt_tokens, "n_ctx": context_tokens}
    return status, orjson.dumps({"error": error})


def _choice(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"finish_reason": reason, "index": index, "delta": delta}
