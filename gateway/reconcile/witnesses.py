"""The third witness: what the engine itself counted between two looks at its metrics, held against the sums of ledger and records. Pure.

Engines count differently: llama.cpp's prompt counter leaves out what came from the cache, the others' hold it. A counter counts all that the engine did,
also for others and for calls that were broken off: where such are known, more than the ledger's sum is no contradiction, less always is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from gateway.accounting.usage import Source
from gateway.errors import RecordProblem
from gateway.reconcile.comparing import MEASURED
from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.record import DispatchRecord, RecordKind

BYTES_MAX: Final = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    names: tuple[str, ...]
    """As engines of this kind call it, the newest first."""
    what: str
    """`input`, `uncached_input`, `cached`, `output`."""


ENGINES: Final[dict[str, tuple[Counter, ...]]] = {
    "llama.cpp": (
        Counter(names=("llamacpp:prompt_tokens_total",), what="uncached_input"),
        Counter(names=("llamacpp:prompt_tokens_cached_total",), what="cached"),
        Counter(names=("llamacpp:tokens_predicted_total",), what="output"),
    ),
    "vLLM": (
        Counter(names=("vllm:prompt_tokens_total",), what="input"),
        Counter(names=("vllm:generation_tokens_total",), what="output"),
    ),
    "SGLang": (
        Counter(names=("sglang:prompt_tokens_total",), what="input"),
        Counter(names=("sglang:cached_tokens_total",), what="cached"),
        Counter(names=("sglang:generation_tokens_total",), what="output"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    engine: str
    values: dict[str, int]
    """By what they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    engine: str
    what: str
    counted: int
    """By the engine, between the two looks."""
    ledger: int
    """Over calls whose usage the engine reported."""
    unmeasured: int
    """Calls that an engine worked on and did not report (all of) this of."""
    records: int | None
    """Over the rows; None where some row does not know."""

    @property
    def agrees(self) -> bool:
        return self.counted == self.ledger

    @property
    def explained(self) -> bool:
        """Equal, or more because of calls that were broken off or never reported."""
        return self.agrees or (self.counted > self.ledger and self.unmeasured > 0)

    @property
    def says(self) -> str:
        if self.agrees:
            return "agrees"
        gap = self.counted - self.ledger
        if self.explained:
            return f"{gap} more than the ledger's reported sum; {self.unmeasured} calls are not fully reported"
        return f"{abs(gap)} {'more' if gap > 0 else 'less'} than the ledger's sum, and nothing in the ledger explains it"


def counters_in(text: str, source: str) -> Counters:
    """Of one Prometheus text. Raises RecordProblem where it is none, or no known engine's."""
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + float(sample.value)
    except (ValueError, KeyError, IndexError) as problem:
        raise RecordProblem(f"{source} is no Prometheus text: {str(problem)[:120] or type(problem).__name__}") from None
    for engine, known in ENGINES.items():
        values = {each.what: sums[name] for each in known for name in each.names if name in sums}
        if values:
            if "output" not in values:
                raise RecordProblem(f"{source} has metrics of {engine}, but not {known[-1].names[0]}: was the engine started with its metrics on?")
            return Counters(engine=engine, values={what: round(value) for what, value in values.items()})
    seen = ", ".join(sorted(sums)[:3]) or "nothing"
    wanted = ", ".join(known[-1].names[0] for known in ENGINES.values())
    raise RecordProblem(f"{source} holds metrics of no engine that is known here: found {seen}; known are those with {wanted}")


def witnesses(before: Counters, after: Counters, calls: Sequence[LedgerCall], records: Iterable[DispatchRecord]) -> list[Witness]:
    """Raises RecordProblem where the two looks are not of one engine that ran through."""
    if before.engine != after.engine:
        raise RecordProblem(f"the metrics before are {before.engine}'s, those after {after.engine}'s: give two looks at one engine")
    rows = [row for row in records if row.kind is RecordKind.ANSWER]
    found = []
    for what, last in after.values.items():
        if what not in before.values:
            continue
        counted = last - before.values[what]
        if counted < 0:
            raise RecordProblem(
                f"{after.engine}'s {what} counter went down, from {before.values[what]} to {last}: it was started anew between, or the files are swapped"
            )
        known = [_of_call(call, what) for call in calls if call.source != Source.NONE]
        told = [_of_row(row, what) for row in rows]
        found.append(
            Witness(
                engine=after.engine,
                what=what,
                counted=counted,
                ledger=sum(each for each in known if each is not None),
                unmeasured=sum(each is None for each in known),
                records=None if None in told or not told else sum(each for each in told if each is not None),
            )
        )
    return found


def _of_call(call: LedgerCall, what: str) -> int | None:
    usage = call.usage
    return _part(what, usage.input_tokens, usage.output_tokens, usage.cached_tokens) if call.source in MEASURED else None


def _of_row(row: DispatchRecord, what: str) -> int | None:
    return _part(what, row.usage.input_tokens, row.usage.output_tokens, row.usage.cached_tokens)


def _part(what: str, input_tokens: int | None, output_tokens: int | None, cached: int | None) -> int | None:
    if what == "output":
        return output_tokens
    if what == "cached":
        return cached
    if what == "uncached_input":
        return input_tokens - cached if input_tokens is not None and cached is not None else None
    return input_tokens
