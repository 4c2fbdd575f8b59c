"""Reads answers of formats whose success has a marker of its own: the frame of every such reader. A format says what an event means.

Snapshots replace, they are never added. An error, in whatever form, is the end of the call's success and never of its reading: counts may follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.accounting.usage import MeterSource, Reading
from gateway.dialects.answer_errors import EngineError, error_of
from gateway.dialects.json_text import parse
from gateway.dialects.openai_answer import Delivered
from gateway.dialects.readings import error_class_of, read, refused, source_of
from gateway.dialects.usage_report import Report
from gateway.metering.framing import Frame, FrameKind
from gateway.metering.reader import Mark

ERROR: Final = Mark.TERMINAL | Mark.ERROR


class MarkedReader(ABC):
    """One answer. `wants`: how many parts of it (choices, prompts) must reach their end."""

    def __init__(self, wants: int = 1) -> None:
        self._wants = wants
        self.delivered = Delivered()
        self.report: Report | None = None
        self.final = False
        """The report is the engine's last word, not a snapshot."""
        self.running: int | None = None
        self.open_block: int | None = None
        self._ended: set[int] = set()
        self._anomalies: dict[str, None] = {}
        self._anything = False
        self._body = False
        self._events = 0
        self._error: EngineError | None = None
        self._error_first = False

    @abstractmethod
    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        """One event that is no error. `name`: the event's own, empty where it has none."""

    @abstractmethod
    def body(self, answer: Any) -> bool:
        """A whole body that is no error. False: it is not one of this format."""

    def after_error(self, event: Mapping[str, Any]) -> None:
        """The event that is an error may hold counts."""
        return None

    def end(self, index: int = 0) -> None:
        """The format's own success marker, of one part of the answer."""
        self._ended.add(index)

    @property
    def all_ended(self) -> bool:
        return len(self._ended) >= self._wants

    def note(self, anomaly: str) -> None:
        self._anomalies[anomaly] = None

    # -- what a meter asks

    def see(self, frame: Frame) -> Mark:
        self._anything = True
        if frame.kind is FrameKind.COMMENT or (not frame.data and frame.event != "error"):
            return Mark.PASS
        if frame.data.strip() == b"[DONE]":
            return Mark.TERMINAL
        self._events += 1
        try:
            event = parse(frame.data)
        except ValueError:
            if frame.event != "error":
                self.note("bad_json_frame")
                return Mark.PASS
            event = None
        if event is None and frame.event != "error":
            return Mark.PASS  # llama.cpp's own, in the place of half a character
        error = error_of(event, frame.event)
        if error is not None:
            self._fail(error)
            if isinstance(event, dict):
                self.after_error(event)
            return ERROR
        if not isinstance(event, dict):
            self.note("event_not_an_object")
            return Mark.PASS
        return self.event(event, frame.event)

    def see_body(self, body: bytes) -> None:
        self._body = self._anything = True
        try:
            answer = parse(body)
        except ValueError:
            self.note("bad_json_body")
            return
        self._error = error_of(answer)
        self._error_first = self._error is not None
        if self._error is None and not self.body(answer):
            self.note("body_of_another_format")
            self._error, self._error_first = EngineError(), True

    def reading(self, status: int, truncated: bool) -> Reading:
        if status and not 200 <= status < 300:
            return refused(status, self._error, [anomaly for anomaly in self._anomalies if anomaly != "body_of_another_format"])
        completed = self._error is None and self.all_ended
        source = source_of(self.report, final=self.final and self.report is not None and self.report.exact)
        if source is MeterSource.MISSING and completed:
            self.note("usage_missing")
        return read(
            self.delivered,
            self.report,
            source,
            status=status,
            error_class=None if completed else error_class_of(self._error, body=self._body, anything=self._anything),
            error=self._error,
            error_first=self._error_first,
            running=self.running,
            anomalies=self._anomalies,
            open_block=self.open_block,
        )

    def running_output(self) -> int | None:
        return self.running

    def delivered_bytes(self) -> int:
        return self.delivered.text_bytes + self.delivered.reasoning_bytes + self.delivered.tool_argument_bytes

    def delivered_text(self) -> str:
        return self.delivered.everything()

    def _fail(self, error: EngineError) -> None:
        if self._error is None:
            self._error = error
            self._error_first = self._events == 1


def added(reports: list[Report]) -> Report | None:
    """Reports of prompts that were answered in one call: all add up. None of none."""
    if not reports:
        return None
    return replace(
        reports[0],
        input_tokens=_sum([report.input_tokens for report in reports]),
        output_tokens=_sum([report.output_tokens for report in reports]),
        cached_tokens=_sum([report.cached_tokens for report in reports]),
        exact=all(report.exact for report in reports),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
