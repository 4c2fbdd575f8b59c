"""Reads the answers of Anthropic Messages: events and bodies.

The input side is a set (uncached, read from cache, written to cache): the latest event that has a prompt replaces it whole, the prompt being the sum. Output is
cumulative: the latest stands. `message_stop` alone is success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.dialects.json_text import compact
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.usage_report import NotBelieved, Report, inner, number, within
from gateway.metering.reader import Mark

_NOTHING = Report(input_tokens=None, output_tokens=None)


class MessageReader(MarkedReader):
    """One answer."""

    text_names = (b'"text"', b'"thinking"', b'"partial_json"', b'"name"', b'"input"', b'"usage"')

    def __init__(self) -> None:
        super().__init__()
        self._message_id: str | None = None
        self._blocks = 0
        self._offset = 0
        """Blocks of an earlier message in the same stream."""
        self._told = False
        """A `message_delta` gave an output."""

    def event(self, event: Mapping[str, Any], name: str) -> Mark:
        match event.get("type") or name:
            case "message_start":
                self._start(inner(event.get("message")))
            case "content_block_start":
                return self._begin(event.get("index"), inner(event.get("content_block")))
            case "content_block_delta":
                return self._delta(inner(event.get("delta")))
            case "content_block_stop":
                self.open_block = None
            case "message_delta":
                reason = inner(event.get("delta")).get("stop_reason")
                self.delivered.add_finish(0, reason)
                self._take(event.get("usage"), bool(reason))
            case "message_stop":
                self.final = self.final or (self.running is not None and self._told)
                self.end()
                return Mark.TERMINAL
        return Mark.PASS

    def _start(self, message: Mapping[str, Any]) -> None:
        given = message.get("id")
        if self._message_id is not None or self._ended:
            self.note("second_message_start")
            if given != self._message_id:
                self.report, self.running, self.final, self._told = None, None, False, False
                self.delivered.finish.clear()
                self._ended.clear()
            self._offset = self._blocks
        self._message_id = given if isinstance(given, str) else self._message_id
        self.delivered.head(message)
        self._snapshot(message.get("usage"))

    def _begin(self, index: object, block: Mapping[str, Any]) -> Mark:
        place = self._offset + (index if isinstance(index, int) else self._blocks)
        self._blocks = max(self._blocks, place + 1)
        self.open_block = index if isinstance(index, int) else None
        return Mark.CONTENT if self._block(place, block) else Mark.PASS

    def _block(self, place: int, block: Mapping[str, Any]) -> bool:
        """A block as it begins, or whole. True where something was delivered."""
        delivered = self.delivered
        match block.get("type"):
            case "text":
                return delivered.add_text(0, block.get("text"))
            case "thinking":
                return delivered.add_reasoning(block.get("thinking"))
            case "tool_use":
                delivered.add_call(0, place, block.get("id"))
                seen = delivered.add_arguments(block.get("name"))
                given = block.get("input")
                return (bool(given) and delivered.add_arguments(_text(given))) or seen
        return False

    def _delta(self, delta: Mapping[str, Any]) -> Mark:
        delivered = self.delivered
        seen = delivered.add_text(0, delta.get("text"))
        seen = delivered.add_reasoning(delta.get("thinking")) or seen
        seen = delivered.add_arguments(delta.get("partial_json")) or seen
        return Mark.CONTENT if seen else Mark.PASS

    def body(self, answer: Any) -> bool:
        if not isinstance(answer, dict) or not isinstance(answer.get("content"), list):
            return False
        self.delivered.head(answer)
        for place, block in enumerate(answer["content"]):
            if isinstance(block, dict):
                self._block(place, block)
        self.delivered.add_finish(0, answer.get("stop_reason"))
        self._take(answer.get("usage"), True)
        self.end()
        return True

    def after_error(self, event: Mapping[str, Any]) -> None:
        self._take(event.get("usage"), False)

    def running_output(self) -> int | None:
        """What a message begins with is no total that runs: who watches a ceiling must count."""
        return self.running if self._told else None

    # -- counts

    def _snapshot(self, usage: object) -> None:
        """Of a message that begins: its output is what was made so far."""
        report = self._read(usage)
        if report is not None:
            self.report, self.running = report, report.output_tokens

    def _take(self, usage: object, ends: bool) -> None:
        report = self._read(usage)
        if report is None:
            return
        self.report = report
        if isinstance(usage, dict) and usage.get("output_tokens") is not None:
            self.running, self._told = report.output_tokens, True
            self.final = ends

    def _read(self, usage: object) -> Report | None:
        """This event's counts laid over what was known. None: it says nothing that can be believed."""
        if not isinstance(usage, dict) or not usage:
            return None
        known = self.report or _NOTHING
        try:
            plain = number(usage.get("input_tokens"), "input_tokens")
            read = number(usage.get("cache_read_input_tokens"), "cached_tokens")
            written = number(usage.get("cache_creation_input_tokens"), "cache_write_tokens")
            output = number(usage.get("output_tokens"), "output_tokens")
            thinking = number(inner(usage.get("output_tokens_details")).get("thinking_tokens"), "reasoning_tokens")
        except NotBelieved as error:
            self.note(str(error))
            return None
        whole = (plain or 0) + (read or 0) + (written or 0)
        if plain is not None and whole:
            known = replace(known, input_tokens=whole, cached_tokens=read, cache_write_tokens=written)
        output = known.output_tokens if output is None else output
        thinking = known.reasoning_tokens if thinking is None else thinking
        if known.input_tokens is None and not output:
            return None
        return replace(known, output_tokens=output, reasoning_tokens=within(thinking, output, self.note, "reasoning_exceeds_output"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else compact(value)
