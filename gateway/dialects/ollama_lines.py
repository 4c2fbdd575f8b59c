"""Reads the answers of Ollama's own API: JSON lines, and bodies of one.

`done: true` is success, and so is a `done_reason` alone: some builds leave the other out. A count that is 0 is left out: a missing output beside a prompt is 0
where nothing was delivered, a missing prompt is unknown (the engine had it in its cache).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.json_text import compact
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.usage_report import NotBelieved, Report, inner, number, within
from gateway.metering.reader import Mark


class LineReader(MarkedReader):
    """One answer of `/api/chat` or `/api/generate`."""

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        self.delivered.head(event)
        seen = self._content(event)
        if event.get("done") is not True and not event.get("done_reason"):
            return Mark.CONTENT if seen else Mark.PASS
        self.delivered.add_finish(0, event.get("done_reason"))
        report = self._counts(event)
        if report is not None:
            if self.report is not None:
                self.note("usage_replaced")
            self.report, self.final, self.running = report, True, report.output_tokens
        self.end()
        return Mark.TERMINAL | Mark.CONTENT if seen else Mark.TERMINAL

    def body(self, answer: Any) -> bool:
        if not isinstance(answer, dict) or not ("message" in answer or "response" in answer):
            return False
        self.event(answer, "")
        self.end()
        return True

    def after_error(self, event: Mapping[str, Any]) -> None:
        self.report = self._counts(event) or self.report

    def _content(self, event: Mapping[str, Any]) -> bool:
        delivered, message = self.delivered, inner(event.get("message"))
        seen = delivered.add_text(0, message.get("content"))
        seen = delivered.add_text(0, event.get("response")) or seen
        seen = delivered.add_reasoning(message.get("thinking") or event.get("thinking")) or seen
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = inner(inner(call).get("function"))
            delivered.add_call(0, len(delivered.calls), inner(call).get("id"))
            seen = delivered.add_arguments(function.get("name")) or seen
            if given := function.get("arguments"):
                seen = delivered.add_arguments(given if isinstance(given, str) else compact(given)) or seen
        return seen

    def _counts(self, event: Mapping[str, Any]) -> Report | None:
        try:
            given = number(event.get("prompt_eval_count"), "prompt_eval_count") or None
            cached = number(event.get("prompt_eval_cached_count"), "cached_tokens")
            output = number(event.get("eval_count"), "eval_count")
        except NotBelieved as error:
            self.note(str(error))
            return None
        if output is None and given is not None and not self.delivered.anything:
            output = 0
        if given is None and not output:
            return None
        return Report(input_tokens=given, output_tokens=output, cached_tokens=within(cached, given, self.note, "cached_exceeds_input"))
