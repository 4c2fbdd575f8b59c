"""TGI's own `/generate` and `/generate_stream`.

The rule: counts stand under `details`, which must be asked for; without them, an answer in one piece has them in its headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import invalid, not_allowed, object_of, smallest_cap
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, ReplyKind, Wording
from gateway.dialects.guard import guard_fields, guard_inputs
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.native_replies import data_event, error_of, reply
from gateway.dialects.output_caps import CAPS, OURS, lower
from gateway.dialects.received import write
from gateway.dialects.usage_report import NotBelieved, Report, inner, number
from gateway.metering.reader import Mark

SETTINGS: Final = frozenset({*CAPS, "model", "stream", "parameters"})
_PICTURE: Final = "!["
"""Markdown's sign of a picture: the server fetches what it names."""


class TgiGenerate:
    """The dialects `tgi.generate` and `tgi.generate_stream`."""

    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def __init__(self, name: str, *, streams: bool) -> None:
        self.name = name
        self._streams = streams

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        guard_fields(body, allowed)
        guard_inputs(body, "inputs")
        parameters = object_of(body, "parameters")
        guard_fields(parameters, allowed)
        if body.get("stream") not in (None, self._streams):
            raise invalid("stream", "as the path says")
        text = body.get("inputs")
        if not isinstance(text, str) or not text:
            raise invalid("inputs", "a text")
        if _PICTURE in text and "](" in text and "remote_images" not in allowed:
            raise not_allowed("inputs", "remote_images")
        caps = [cap for cap in (smallest_cap(parameters, CAPS), smallest_cap(body, CAPS)) if cap is not None]
        return CallRequest(
            model=model if isinstance(model := body.get("model"), str) else "",
            stream=self._streams,
            asked_output=min(caps) if caps else None,
            min_output=None,
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=(text, *(compact(value) for value in (parameters.get("grammar"),) if value is not None)),
            pictures=0,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=(text,),
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"model", "stream", "n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        parameters = {name: value for name, value in object_of(request.body, "parameters").items() if name not in CAPS}
        lower(parameters, ceiling_per_choice)
        body["parameters"] = {**parameters, facts.cap_name: ceiling_per_choice, "details": True}
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        return body

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return TokenReader()

    def reply(self, wording: Wording) -> Reply:
        plain = reply(wording)
        return Reply(plain.status, write(_typed(wording)), plain.headers)

    def error_event(self, wording: Wording) -> bytes:
        return data_event(_typed(wording))

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        details = {"finish_reason": "length", "generated_tokens": output or 0, "input_length": used.input_tokens or 0, "seed": None}
        token = {"id": 0, "text": "", "logprob": 0.0, "special": True}
        return data_event({"index": output or 0, "token": token, "generated_text": "", "details": details})


class TokenReader(MarkedReader):
    """One answer. One event, one token."""

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        token = inner(event.get("token"))
        seen = token.get("special") is not True and self.delivered.add_text(0, token.get("text"))
        if token:
            self.running = (self.running or 0) + 1
        details = event.get("details")
        if event.get("generated_text") is None and not isinstance(details, dict):
            return Mark.CONTENT if seen else Mark.PASS
        self._details(inner(details))
        self.end()
        return Mark.TERMINAL | Mark.CONTENT if seen else Mark.TERMINAL

    def body(self, answer: Any) -> bool:
        one = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        if not isinstance(one, dict) or not isinstance(one.get("generated_text"), str):
            return False
        self.delivered.add_text(0, one["generated_text"])
        self._details(inner(one.get("details")))
        self.end()
        return True

    def see_head(self, headers: Mapping[str, str]) -> None:
        """Counts of an answer in one piece; details go over them."""
        try:
            given = number(_whole(headers.get("x-prompt-tokens")), "prompt_tokens") or None
            output = number(_whole(headers.get("x-generated-tokens")), "generated_tokens")
        except NotBelieved as error:
            self.note(str(error))
            return
        if given is not None:
            self.report, self.final = Report(input_tokens=given, output_tokens=output), output is not None

    def _details(self, details: Mapping[str, Any]) -> None:
        self.delivered.add_finish(0, details.get("finish_reason"))
        prefill = details.get("prefill")
        try:
            given = number(details.get("input_length"), "input_length") or (len(prefill) if isinstance(prefill, list) else 0) or None
            output = number(details.get("generated_tokens"), "generated_tokens")
        except NotBelieved as error:
            self.note(str(error))
            return
        before = self.report
        given = given if given is not None or before is None else before.input_tokens
        output = output if output is not None or before is None else before.output_tokens
        if given is not None or output:
            self.report, self.running = Report(input_tokens=given, output_tokens=output), output
            self.final = self.report.whole


def _typed(wording: Wording) -> dict[str, object]:
    kind = "overloaded" if wording.kind is ReplyKind.PASSING else "generation" if wording.kind is ReplyKind.UNAVAILABLE else "validation"
    return {**error_of(wording), "error_type": kind}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None
