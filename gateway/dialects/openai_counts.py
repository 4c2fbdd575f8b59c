"""Which of the reports of one OpenAI-shaped answer stands: final ones for the request, snapshots for each choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.dialects.openai_usage import read_timings, read_usage
from gateway.dialects.usage_report import Note, Report


@dataclass(frozen=True, slots=True)
class Standing:
    """The report that stands, and whether it is final."""

    report: Report
    final: bool


class Counts:
    """Takes every report of an answer, in order. `by_choice`: final reports are one for each choice, and their outputs add up.

    `choices` were asked for of each of the `prompts`; choice i answers prompt i // choices.
    """

    def __init__(self, by_choice: bool, *, choices: int = 1, prompts: int = 1) -> None:
        self._by_choice = by_choice
        self._choices = choices
        self._prompts = prompts
        self._finals: list[Report] = []
        self._snapshots: dict[int, tuple[Report, bool]] = {}
        """By choice: the last snapshot, and whether it came with the end of its choice."""
        self.running: int | None = None
        self.incomplete = False

    def take(self, usage: object, timings: object, indexes: list[int], finished: bool, note: Note) -> None:
        """The reports of one event. `indexes`: the choices that it carries; `finished`: it ends them."""
        report = read_usage(usage, note) if isinstance(usage, dict) else None
        if isinstance(timings, dict):
            measured = read_timings(timings, note)
            if report is None or not report.whole:
                report = measured or report
        if report is None:
            return
        if not indexes:
            if self._finals and not self._by_choice:
                note("duplicate_usage" if self._finals[-1] == report else "usage_replaced")
            self._finals.append(report)
        else:
            self._snapshots[indexes[0]] = (report, finished)
        self.running = self._total()

    def _total(self) -> int | None:
        if self._finals and not self._by_choice:
            return self._finals[-1].output_tokens
        given = self._finals if self._finals and len(self._finals) >= len(self._snapshots) else [report for report, _ in self._snapshots.values()]
        outputs = [report.output_tokens for report in given if report.output_tokens is not None]
        return sum(outputs) if outputs else None

    def result(self, finish: Mapping[int, str | None], done: bool = False) -> Standing | None:
        """`finish`: the finish reason of each choice that was seen. `done`: the answer has its end, there is no choice beside these."""
        choices = max(1, len(finish))
        if self._finals:
            if not self._by_choice:
                last = self._finals[-1]
                return Standing(last, last.exact and not self.incomplete)
            last = added(dict(enumerate(self._finals[-choices:])))
            return Standing(last, last.exact and not self.incomplete and len(self._finals) >= choices)
        if not self._snapshots:
            return None
        # One report alone, on the event that ends the last choice, is the request's (servers that merge the two).
        asked = self._choices * self._prompts
        given = len(self._snapshots)
        ended = all(ends for _, ends in self._snapshots.values()) and all(finish.values())
        every = given >= asked if self._by_choice else (given == 1 or given >= choices) and (len(finish) >= asked or done)
        single = given == 1 and not self._by_choice
        report = added({index: self._snapshots[index][0] for index in sorted(self._snapshots)}, self._choices if self._prompts > 1 and not single else 0)
        return Standing(report, report.exact and ended and every)


def added(reports: Mapping[int, Report], per_prompt: int = 0) -> Report:
    """Reports of single choices: outputs add up, each prompt is counted once. `per_prompt`: choices of each of several prompts; 0: there is but one."""
    every = list(reports.values())
    if len(every) == 1:
        return every[0]
    first = every[0]
    summed = replace(
        first,
        output_tokens=_sum([report.output_tokens for report in every]),
        reasoning_tokens=_sum([report.reasoning_tokens for report in every]),
        exact=all(report.exact for report in every),
    )
    if not per_prompt:
        return summed
    once = list({index // per_prompt: report for index, report in reversed(list(reports.items()))}.values())
    return replace(
        summed,
        input_tokens=_sum([report.input_tokens for report in once]),
        cached_tokens=_sum([report.cached_tokens for report in once]),
        cache_write_tokens=_sum([report.cache_write_tokens for report in once]),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
