"""Reads the answers of llama.cpp's own `/completion`: events, a body, or a list of bodies where several prompts were asked.

`stop: true` is success, of each prompt. `tokens_evaluated` is the whole prompt; what came from the cache is `timings.cache_n`, never `tokens_cached`, which is
how full the slot is afterwards. Every event has running counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.marked_reader import MarkedReader, added
from gateway.dialects.usage_report import NotBelieved, Report, inner, number, within
from gateway.metering.reader import Mark


class CompletionReader(MarkedReader):
    """One answer."""

    def __init__(self, prompts: int) -> None:
        super().__init__(prompts)
        self._reports: dict[int, Report] = {}
        self._finals: set[int] = set()

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        index = event.get("index")
        index = index if isinstance(index, int) else 0
        self.delivered.head({"model": event.get("model")})
        seen = self.delivered.add_text(index, event.get("content"))
        self.delivered.finish.setdefault(index, None)
        stops = event.get("stop") is True
        if stops:
            self.delivered.add_finish(index, event.get("stop_type"))
            self.end(index)
        self._take(index, event, stops)
        if stops and self.all_ended:
            return Mark.TERMINAL | Mark.CONTENT if seen else Mark.TERMINAL
        return Mark.CONTENT if seen else Mark.PASS

    def body(self, answer: Any) -> bool:
        answers = answer if isinstance(answer, list) else [answer]
        if not answers or not all(isinstance(one, dict) and "content" in one for one in answers):
            return False
        self._wants = len(answers)
        for place, one in enumerate(answers):
            self.event({**one, "index": one.get("index", place), "stop": True}, "")
        return True

    def after_error(self, event: Mapping[str, Any]) -> None:
        self._take(0, event, False)

    def _take(self, index: int, event: Mapping[str, Any], final: bool) -> None:
        report = self._read(event)
        if report is None:
            return
        if index in self._finals and not final:
            return
        self._reports[index] = report
        if final:
            self._finals.add(index)
        outputs = [one.output_tokens for one in self._reports.values() if one.output_tokens is not None]
        self.running = sum(outputs) if outputs else None
        self.report = added([self._reports[place] for place in sorted(self._reports)])
        self.final = len(self._finals) >= self._wants and len(self._finals) == len(self._reports)

    def _read(self, event: Mapping[str, Any]) -> Report | None:
        timings = inner(event.get("timings"))
        try:
            given = number(event.get("tokens_evaluated"), "tokens_evaluated") or None
            output = number(event.get("tokens_predicted"), "tokens_predicted")
            cached = number(timings.get("cache_n"), "cache_n")
            read = number(timings.get("prompt_n"), "prompt_n")
            made = number(timings.get("predicted_n"), "predicted_n")
        except NotBelieved as error:
            self.note(str(error))
            return None
        if given is None and read is not None and cached is not None:
            given = read + cached or None
        output = made if output is None else output
        if given is None and not output:
            return None
        return Report(input_tokens=given, output_tokens=output, cached_tokens=within(cached, given, self.note, "cached_exceeds_input"))
