"""Reads the answers of OpenAI chat completions and of plain completions: streams of chunks, or one body.

Snapshots of usage replace, they are never added, but where a server reports each choice by itself. Only `usage` on an event without choices, or on one that
finishes its choice, is final; anything else is a running total. `[DONE]` is neither needed nor enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from gateway.accounting.usage import MeterSource, Reading
from gateway.dialects.answer_errors import EngineError, error_of
from gateway.dialects.json_text import parse
from gateway.dialects.openai_answer import Delivered
from gateway.dialects.openai_counts import Counts
from gateway.dialects.readings import error_class_of, read, refused, source_of
from gateway.metering.framing import Frame, FrameKind
from gateway.metering.reader import Mark


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if index.__class__ is int else 0


_COUNTS = (b'"usage"', b'"timings"')
_TEXT_NAMES = (b'"content"', b'"reasoning_content"', b'"reasoning"', b'"refusal"', b'"arguments"', b'"input"', b'"name"', *_COUNTS)
_PLAIN_TEXT_NAMES = (b'"text"', *_COUNTS)

_PASS = Mark.PASS
_CONTENT = Mark.CONTENT
_END = Mark.TERMINAL
_ERROR = Mark.TERMINAL | Mark.ERROR


class ChunkReader:
    """One answer. `choices`: how many were asked for, of each of the `prompts`; `by_choice`: the server is known to report each choice by itself (llama.cpp).

    `plain`: a choice holds its text itself, as plain completions have it.
    """

    def __init__(self, *, choices: int, usage_asked: bool, by_choice: bool, prompts: int = 1, plain: bool = False) -> None:
        self._choices = choices * prompts
        self._prompts = prompts
        self._usage_asked = usage_asked
        self._by_choice = by_choice
        self._plain = plain
        self.text_names = _PLAIN_TEXT_NAMES if plain else _TEXT_NAMES
        self.delivered = Delivered()
        self._counts = Counts(by_choice and self._choices > 1, choices=choices, prompts=prompts)
        self._anomalies: dict[str, None] = {}
        self._anything = False
        self._events = 0
        self._done = False
        self._body = False
        self._whole_body = False
        self._error: EngineError | None = None
        self._error_first = False

    def see(self, frame: Frame) -> Mark:
        self._anything = True
        if frame.kind is FrameKind.COMMENT:
            return Mark.PASS
        data = frame.data
        if not data and frame.event != "error":
            return Mark.PASS
        if data[:6] == b"[DONE]" and data.strip() == b"[DONE]":
            self._done = True
            if self._error is not None:
                self._note("done_despite_error")
            return _END
        self._events += 1
        try:
            event = orjson.loads(data)
        except ValueError:
            return self._read_odd(frame)
        if event.__class__ is not dict or frame.event == "error" or "choices" not in event or event.get("error"):
            return self._read_other(event, frame.event)
        return self._chunk(event)

    def _read_odd(self, frame: Frame) -> Mark:
        """What is no JSON at first sight."""
        try:
            return self._read_other(parse(frame.data), frame.event)
        except ValueError:
            if frame.event == "error":
                return self._read_other(None, "error")
            self._note("bad_json_frame")
            return Mark.PASS

    def _read_other(self, event: object, name: str) -> Mark:
        """An error, or an event that is no plain chunk."""
        error = error_of(event, name)
        if error is not None:
            self._fail(error)
            return _ERROR
        if not isinstance(event, dict):
            self._note("event_not_an_object")
            return Mark.PASS
        return self._chunk(event)

    def _chunk(self, event: Mapping[str, Any]) -> Mark:
        delivered = self.delivered
        if delivered.response_id is None or delivered.model is None:
            delivered.head(event)
        seen = False
        choices = event.get("choices")
        if choices.__class__ is list:
            for choice in choices:
                if choice.__class__ is dict:
                    part = {"content": choice.get("text")} if self._plain else choice.get("delta")
                    seen = delivered.choice(_index(choice), choice, part) or seen
        usage, timings = event.get("usage"), event.get("timings")
        if usage is None and timings is None:
            return _CONTENT if seen else _PASS
        indexes = [_index(choice) for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
        self._counts.take(usage, timings, indexes, all(delivered.finish.get(index) for index in indexes), self._note)
        if not indexes and isinstance(usage, dict) and not self._usage_asked:
            return Mark.HIDE
        return Mark.CONTENT if seen else Mark.PASS

    def see_body(self, body: bytes) -> None:
        self._body = self._anything = True
        try:
            answer = parse(body)
        except ValueError:
            self._note("bad_json_body")
            return
        self._error = error_of(answer)
        self._error_first = self._error is not None
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            if self._error is None:
                self._note("body_without_choices")
                self._error = EngineError()
            return
        if self._error is None:
            self._whole_body = True
            self._take_body(answer, answer["choices"])

    def _take_body(self, answer: Mapping[str, Any], choices: list[object]) -> None:
        self.delivered.head(answer)
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                index = choice.get("index")
                index = index if isinstance(index, int) else position
                self.delivered.choice(index, choice, {"content": choice.get("text")} if self._plain else choice.get("message"))
        self._counts.take(answer.get("usage"), answer.get("timings"), [], True, self._note)
        if len(choices) > 1 and (self._by_choice or answer.get("timings") is not None):
            # llama.cpp reports the first choice alone in a body.
            self._note("usage_first_choice_only" if self._prompts == 1 else "usage_first_prompt_only")
            self._counts.incomplete = True

    def reading(self, status: int, truncated: bool) -> Reading:
        if status and not 200 <= status < 300:
            return refused(status, self._error, self._anomalies)
        finish = self.delivered.finish
        counts = self._counts.result(finish, self._done)
        final = counts is not None and counts.final
        completed = self._error is None and (self._whole_body or self._finished(final, truncated))
        report = counts.report if counts is not None else None
        source = source_of(report, final=final)
        return read(
            self.delivered,
            report,
            source,
            status=status,
            error_class=None if completed else error_class_of(self._error, body=self._body, anything=self._anything),
            error=self._error,
            error_first=self._error_first,
            running=self._counts.running,
            anomalies=self._flags(source),
        )

    def running_output(self) -> int | None:
        return self._counts.running

    def delivered_bytes(self) -> int:
        return self.delivered.text_bytes + self.delivered.reasoning_bytes + self.delivered.tool_argument_bytes

    def delivered_text(self) -> str:
        return self.delivered.everything()

    def _finished(self, final_usage: bool, truncated: bool) -> bool:
        """Every choice has its finish reason; failing that, final usage and [DONE] came."""
        finish = self.delivered.finish
        if self._done and final_usage:
            return True
        if not finish or not all(finish.values()):
            return False
        return self._done or len(finish) >= self._choices or (not truncated and final_usage)

    def _flags(self, source: MeterSource) -> Iterable[str]:
        flags, reasons = dict(self._anomalies), self.delivered.finish.values()
        if source is MeterSource.MISSING and (self.delivered.finish or self._whole_body):
            flags["usage_missing"] = None
        if not self._body and (self._events or self._done):
            if not self._done:
                flags["missing_done"] = None
            elif self._error is None and not (reasons and all(reasons)):
                flags["done_without_finish"] = None
        return flags

    def _fail(self, error: EngineError) -> None:
        if self._error is None:
            self._error = error
            self._error_first = self._events == 1
        if self._done:
            self._note("error_after_done")

    def _note(self, anomaly: str) -> None:
        self._anomalies[anomaly] = None
