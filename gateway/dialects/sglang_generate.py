"""SGLang's own `/generate`.

The rule: counts and text are cumulative on each event, so the last stands; prompts add up, samples of one prompt share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, object_of, smallest_cap, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own, guard_part
from gateway.dialects.known import Known
from gateway.dialects.marked_reader import MarkedReader, added
from gateway.dialects.native_replies import data_event, reply
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA, OURS, lower
from gateway.dialects.plain_prompt import PlainPrompt, read_prompt
from gateway.dialects.usage_report import NotBelieved, Report, inner, number, within
from gateway.metering.reader import Mark

SETTINGS: Final = frozenset({*CAPS, *MINIMA, *BUDGETS, "model", "stream", "sampling_params", "return_logprob", "top_logprobs_num", "logprob_start_len"})
CHOICES_MAX: Final = 128
_DONE: Final = b"data: [DONE]\n\n"
_MEDIA: Final = ("image_data", "audio_data", "video_data")


class SglangGenerate:
    """The dialect `sglang.generate`."""

    name = "sglang.generate"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        guard_fields(body, allowed)
        guard_own(body, self.name, allowed)
        guard_inputs(body, "text", "input_ids")
        sampling = object_of(body, "sampling_params")
        guard_fields(sampling, allowed)
        prompt = _prompt(body, allowed)
        choices = whole_number(sampling, "n", 1) or 1
        if choices > CHOICES_MAX:
            raise invalid("sampling_params.n", "at most one hundred and twenty-eight")
        caps = [cap for cap in (smallest_cap(sampling, CAPS), smallest_cap(body, CAPS)) if cap is not None]
        return CallRequest(
            model=model if isinstance(model := body.get("model"), str) else "",
            stream=flag(body, "stream"),
            asked_output=min(caps) if caps else None,
            min_output=whole_number(sampling, "min_new_tokens", 0),
            choices=choices,
            prompts=prompt.prompts,
            usage_asked=True,
            rendered_parts=tuple(prompt.texts),
            pictures=sum(_media(body, name, allowed) for name in _MEDIA),
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=tuple(prompt.texts),
            prompt_ids=prompt.ids,
            prompt_begins=prompt.begins,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"model", "n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        sampling = {name: value for name, value in object_of(request.body, "sampling_params").items() if name not in CAPS}
        lower(sampling, ceiling_per_choice)
        body["sampling_params"] = {**sampling, facts.cap_name: ceiling_per_choice}
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        if facts.request_id_field and call_id and request.choices * request.prompts == 1:
            body[facts.request_id_field] = call_id
        return body

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return GenerateReader(request.prompts, request.choices)

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return data_event({"error": {"message": wording.message, "code": wording.code}}) + _DONE

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        counts = {"prompt_tokens": used.input_tokens, "completion_tokens": output}
        known = {name: count for name, count in counts.items() if count is not None}
        told = {"id": reading.response_id or "", "finish_reason": {"type": "length"}, **known}
        return data_event({"text": "", "meta_info": told}) + _DONE


class GenerateReader(MarkedReader):
    """One answer. Index = prompt x choices + choice."""

    def __init__(self, prompts: int, choices: int) -> None:
        super().__init__(prompts * choices)
        self._choices = choices
        self._texts: dict[int, str] = {}
        self._reports: dict[int, Report] = {}

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        index = event.get("index")
        index = index if isinstance(index, int) else 0
        about = inner(event.get("meta_info"))
        self.delivered.head({"id": about.get("id")})
        reason = about.get("finish_reason")
        reason = reason.get("type") if isinstance(reason, dict) else reason
        self.delivered.finish.setdefault(index, None)
        if reason:
            self.delivered.add_finish(index, reason)
            self.end(index)
        seen = self._text(index, event.get("text"))
        self._take(index, about)
        return Mark.CONTENT if seen else Mark.PASS

    def body(self, answer: Any) -> bool:
        answers = answer if isinstance(answer, list) else [answer]
        if not answers or not all(isinstance(one, dict) and "meta_info" in one for one in answers):
            return False
        self._wants = len(answers)
        for place, one in enumerate(answers):
            self.event({**one, "index": place}, "")
            self.end(place)
        self.final = self.report is not None and len(self._reports) == len(answers)
        return True

    def _text(self, index: int, text: object) -> bool:
        """The whole text so far, or, as a server can be told, the new part alone."""
        if not isinstance(text, str) or not text:
            return False
        before = self._texts.get(index, "")
        if text.startswith(before):
            self._texts[index] = text
            return self.delivered.add_text(index, text[len(before) :])
        self._texts[index] = before + text
        return self.delivered.add_text(index, text)

    def _take(self, index: int, about: Mapping[str, Any]) -> None:
        try:
            given = number(about.get("prompt_tokens"), "prompt_tokens") or None
            output = number(about.get("completion_tokens"), "completion_tokens")
            cached = number(about.get("cached_tokens"), "cached_tokens")
            thought = number(about.get("reasoning_tokens"), "reasoning_tokens")
        except NotBelieved as error:
            self.note(str(error))
            return
        if given is None and not output:
            return
        self._reports[index] = Report(
            input_tokens=given,
            output_tokens=output,
            cached_tokens=within(cached, given, self.note, "cached_exceeds_input"),
            reasoning_tokens=within(thought, output, self.note, "reasoning_exceeds_output"),
        )
        outputs = [one.output_tokens for one in self._reports.values() if one.output_tokens is not None]
        self.running = sum(outputs) if outputs else None
        self.report = self._whole()
        self.final = self.all_ended and len(self._reports) >= self._wants

    def _whole(self) -> Report | None:
        by_prompt = {index // self._choices: report for index, report in sorted(self._reports.items(), reverse=True)}
        whole = added([by_prompt[prompt] for prompt in sorted(by_prompt)])
        return replace(whole, output_tokens=self.running) if whole is not None else None


def _prompt(body: Mapping[str, Any], allowed: Allowed) -> PlainPrompt:
    name = "text" if body.get("text") is not None else "input_ids"
    return read_prompt(body.get(name), name, allowed)


def _media(body: Mapping[str, Any], name: str, allowed: Allowed) -> int:
    value = body.get(name)
    if value is None:
        return 0
    guard_part({"data": value} if isinstance(value, str | list) else {"image": value}, name, allowed)
    return len(value) if isinstance(value, list) else 1
