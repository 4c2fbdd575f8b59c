"""LM Studio's own `/api/v1/chat`.

The rule: `chat.end` is the end, and has the counts, also behind an error. It remembers unless told not to, so that is pinned; servers of tools, which it would
call by itself, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.answer_errors import EngineError
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, smallest_cap, text_of
from gateway.dialects.dialect import CallRequest, ForwardFacts, PromptSizes, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own, guard_part
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.native_replies import error_of, reply
from gateway.dialects.output_caps import CAPS, OURS, lower
from gateway.dialects.received import write
from gateway.dialects.spelling import guard_spoken
from gateway.dialects.usage_report import NotBelieved, Report, inner, number, within
from gateway.metering.reader import Mark

SETTINGS: Final = frozenset({*CAPS, "model", "stream", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "reasoning", "context_length", "store"})


class LmStudioChat:
    """The dialect `lmstudio.chat`."""

    name = "lmstudio.chat"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_own(body, self.name, allowed)
        guard_inputs(body, "input")
        parts: list[str] = []
        pictures = messages = 0
        given = body.get("input")
        for item in [given] if isinstance(given, str) else _items(given):
            messages += 1
            if isinstance(item, str):
                parts.append(item)
                continue
            guard_spoken(item)
            kind = item.get("type", "message")
            guard_part(item, "image" if kind == "image" else "content", allowed)
            pictures += kind == "image"
            parts.extend(value for field in ("content", "text") if isinstance(value := item.get(field), str))
        if isinstance(system := body.get("system_prompt"), str):
            parts.append(system)
            messages += 1
        return CallRequest(
            model=model,
            stream=flag(body, "stream"),
            asked_output=smallest_cap(body, CAPS),
            min_output=None,
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=tuple(parts),
            pictures=pictures,
            has_tools=False,
            tool_names=(),
            body=body,
            sizes=PromptSizes(messages=messages),
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        body["model"] = facts.model
        lower(body, ceiling_per_choice)
        body[facts.cap_name] = ceiling_per_choice
        body["store"] = False
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        return body

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return ChatReader()

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        told = error_of(wording)
        return _named({"type": "error", "error": {"type": told["code"], "message": told["error"], "code": told["code"]}})

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        counts = {"input_tokens": used.input_tokens, "total_output_tokens": output}
        stats = {**{name: count for name, count in counts.items() if count is not None}, "stop_reason": "maxPredictedTokensReached"}
        return _named({"type": "chat.end", "result": {"model_instance_id": reading.model or request.model, "output": [], "stats": stats}})


class ChatReader(MarkedReader):
    """One answer."""

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        kind = event.get("type") or name
        if kind == "chat.end":
            self._result(inner(event.get("result")), whole=False)
            self.end()
            return Mark.TERMINAL
        self.delivered.head({"model": event.get("model_instance_id")})
        if kind == "message.delta":
            return Mark.CONTENT if self.delivered.add_text(0, event.get("content")) else Mark.PASS
        if kind == "reasoning.delta":
            return Mark.CONTENT if self.delivered.add_reasoning(event.get("content")) else Mark.PASS
        if kind == "tool_call.start":
            self.delivered.add_call(0, len(self.delivered.calls))
        if kind == "tool_call.arguments":
            self._arguments(event)
        return Mark.PASS

    def body(self, answer: Any) -> bool:
        if not isinstance(answer, dict) or not isinstance(answer.get("output"), list):
            return False
        self._result(answer, whole=True)
        self.end()
        return True

    def _result(self, result: Mapping[str, Any], *, whole: bool) -> None:
        """`whole`: nothing of it was delivered before."""
        delivered = self.delivered
        delivered.head({"id": result.get("response_id"), "model": result.get("model_instance_id")})
        output = result.get("output")
        items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        calls = [item for item in items if item.get("type") == "tool_call"]
        for place in range(len(delivered.calls), len(calls)):
            delivered.add_call(0, place)
        if whole:
            for item in items:
                match item.get("type"):
                    case "message":
                        delivered.add_text(0, item.get("content"))
                    case "reasoning":
                        delivered.add_reasoning(item.get("content"))
                    case "tool_call":
                        self._arguments(item)
        if result.get("error"):
            self._fail(EngineError())
        report = self._stats(inner(result.get("stats")))
        if report is not None:
            self.report, self.final, self.running = report, True, report.output_tokens

    def _arguments(self, item: Mapping[str, Any]) -> None:
        self.delivered.add_arguments(item.get("tool"))
        if given := item.get("arguments"):
            self.delivered.add_arguments(given if isinstance(given, str) else compact(given))

    def _stats(self, stats: Mapping[str, Any]) -> Report | None:
        try:
            given = number(stats.get("input_tokens"), "input_tokens") or None
            output = number(stats.get("total_output_tokens"), "output_tokens")
            thought = number(stats.get("reasoning_output_tokens"), "reasoning_tokens")
        except NotBelieved as error:
            self.note(str(error))
            return None
        if given is None and not output:
            return None
        return Report(input_tokens=given, output_tokens=output, reasoning_tokens=within(thought, output, self.note, "reasoning_exceeds_output"))


def _items(given: object) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given or not all(isinstance(item, dict) for item in given):
        raise invalid("input", "a text or a list of objects")
    return given


def _named(value: Mapping[str, object]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + write(value) + b"\n\n"
