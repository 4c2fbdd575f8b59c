"""Reads the answers of OpenAI Responses: named events, of which one is terminal and holds the whole response; or that response as one body.

Text, reasoning and arguments come in deltas and once more whole; what came in deltas is not counted twice. Counts stand in the terminal event alone.
llama.cpp says `completed` also where the cap cut it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.accounting.usage import Reading
from gateway.dialects.answer_errors import EngineError, error_of
from gateway.dialects.json_text import parse
from gateway.dialects.marked_reader import ERROR, MarkedReader
from gateway.dialects.openai_usage import read_timings, read_usage
from gateway.dialects.usage_report import Report, inner
from gateway.metering.reader import Mark

_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_SUCCESS: Final = frozenset({"completed", "incomplete"})
_FAILURE: Final = frozenset({"failed", "cancelled"})
"""The engine's own end without success: one that was cancelled there is no answer that broke off."""
_ENDED: Final = _SUCCESS | _FAILURE
_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING: Final = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta"})
_ARGUMENTS_END: Final = ("_arguments.delta", "_input.delta", "_code.delta", "_diff.delta", "_command.delta")
_CALL_END: Final = "_call"
_NAMES: Final = ("name", "arguments", "input")


class ResponsesReader(MarkedReader):
    """One answer."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[str, None] = {}
        self._in_deltas: set[str] = set()
        """Items of which a delta came."""
        self._named: set[str] = set()

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        kind = event.get("type")
        kind = kind if isinstance(kind, str) and kind else name
        delta = event.get("delta")
        if delta and isinstance(delta, str):
            return Mark.CONTENT if self._delta(kind, event, delta) else Mark.PASS
        item = event.get("item")
        if isinstance(item, dict):
            return Mark.CONTENT if self._item(item, event, whole=kind.endswith(".done")) else Mark.PASS
        terminal = kind in _TERMINAL
        ended = kind.removeprefix("response.") if terminal else ""
        response = event.get("response")
        if isinstance(response, dict):
            self._response(response, event.get("timings"), ended)
        elif ended in _FAILURE:
            self._fail(EngineError())
        if ended in _FAILURE:
            return ERROR
        return Mark.TERMINAL if terminal else Mark.PASS

    def see_body(self, body: bytes) -> None:
        """A response that failed is one all the same: it may say what was used."""
        try:
            answer = parse(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("object") != "response":
            super().see_body(body)
            return
        self._body = self._anything = True
        self.body(answer)

    def body(self, answer: Any) -> bool:
        if not isinstance(answer, dict) or not (answer.get("object") == "response" or isinstance(answer.get("output"), list)):
            return False
        status = answer.get("status")
        self._response(answer, answer.get("timings"), status if isinstance(status, str) else "completed")
        return True

    def reading(self, status: int, truncated: bool) -> Reading:
        return replace(super().reading(status, truncated), item_ids=tuple(self._items))

    def _response(self, response: Mapping[str, Any], timings: object, status: str) -> None:
        """`status`: how it ended, empty while it runs."""
        self.delivered.head(response)
        ended = status in _ENDED
        if ended:
            output = response.get("output")
            for position, item in enumerate(output if isinstance(output, list) else ()):
                if isinstance(item, dict):
                    self._item(item, {"output_index": position}, whole=True)
            reason = inner(response.get("incomplete_details")).get("reason")
            self.delivered.add_finish(0, reason or status)
        self._take(self._counted(response, timings), ended)
        if status in _SUCCESS:
            self.end()
        elif status in _FAILURE:
            self._fail(error_of({"error": response.get("error") or status}) or EngineError())
            self._error_first = self._error_first or self._body

    def _counted(self, response: Mapping[str, Any], timings: object) -> Report | None:
        usage = response.get("usage")
        report = read_responses_usage(usage, self.note) if isinstance(usage, dict) else None
        if isinstance(timings, dict) and (report is None or not report.whole):
            report = read_timings(timings, self.note) or report
        return report

    def _take(self, report: Report | None, final: bool) -> None:
        """The last one stands; one that says nothing takes nothing away."""
        if report is not None:
            self.report, self.final = report, final
            self.running = report.output_tokens if report.output_tokens is not None else self.running

    def _delta(self, kind: str, event: Mapping[str, Any], delta: str) -> bool:
        key = self._key(event.get("item_id"), event)
        if kind in _TEXT:
            seen = self.delivered.add_text(0, delta)
        elif kind in _REASONING:
            seen = self.delivered.add_reasoning(delta)
        elif kind.endswith(_ARGUMENTS_END):
            seen = self.delivered.add_arguments(delta)
        else:
            return False
        self._in_deltas.add(key)
        return seen

    def _item(self, item: Mapping[str, Any], event: Mapping[str, Any], whole: bool) -> bool:
        """An item that begins, or is whole: only then is what it holds taken, unless it came in deltas."""
        kind = item.get("type")
        kind = kind if isinstance(kind, str) else ""
        given = item.get("id")
        if given and isinstance(given, str):
            self._items[given] = None
        key = self._key(given, event)
        seen = False
        if kind.endswith(_CALL_END):
            call = item.get("call_id")
            call = call if isinstance(call, str) and call else None
            self.delivered.add_call(0, call or key, call)
            if (call or key) not in self._named:
                self._named.add(call or key)
                seen = self.delivered.add_arguments(item.get("name"))
        if not whole or key in self._in_deltas:
            return seen
        self._in_deltas.add(key)
        if kind.endswith(_CALL_END):
            return self.delivered.add_arguments(item.get("arguments")) or self.delivered.add_arguments(item.get("input")) or seen
        return self._parts(item, kind) or seen

    def _parts(self, item: Mapping[str, Any], kind: str) -> bool:
        seen = False
        for name in ("summary", "content"):
            parts = item.get(name)
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict):
                    text = part.get("text") or part.get("refusal")
                    seen = (self.delivered.add_reasoning(text) if kind == "reasoning" else self.delivered.add_text(0, text)) or seen
        return seen

    @staticmethod
    def _key(given: object, event: Mapping[str, Any]) -> str:
        return given if isinstance(given, str) and given else f"#{event.get('output_index', 0)}"


def read_responses_usage(usage: Mapping[str, Any], note: Any) -> Report | None:
    """The same numbers as those of chat, under names of their own."""
    return read_usage(
        {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        },
        note,
    )
