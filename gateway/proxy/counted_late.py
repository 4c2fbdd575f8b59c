"""A prompt of which a complete answer did not tell how long it was, counted when the call is settled.

The rule: only where the engine's own tokenizer counts is the figure taken for its report; else it is an estimate, and stands as one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from gateway.accounting.settling import Held
from gateway.accounting.usage import MeterSource, Reading
from gateway.errors import EngineFailure
from gateway.proxy.delivered import COUNT_S
from gateway.proxy.under_way import UnderWay
from gateway.tokenizers.tokenizer import CannotCount, PromptRejected

INPUT_COUNTED: Final = "input_counted"
"""Anomaly: the engine told its output alone (llama.cpp leaves the event with the prompt out where the first token is half a character)."""


def counts_late(reservation: UnderWay, reading: Reading, held: Held) -> bool:
    """Whether one of the two below has something to do."""
    return _lacks_its_input(reservation, reading) or _told_nothing(reservation, reading, held)


def _lacks_its_input(reservation: UnderWay, reading: Reading) -> bool:
    call, usage = reservation.call, reading.usage
    told = reading.completed and usage.input_tokens is None and usage.output_tokens is not None
    return told and call.request.generates and call.counter.exact and not call.request.pictures


def _told_nothing(reservation: UnderWay, reading: Reading, held: Held) -> bool:
    call = reservation.call
    unknown = not call.request.generates and reading.completed and reading.usage.input_tokens is None
    return unknown and not held.prompt_exact and call.counter.can_count


async def with_input(reservation: UnderWay, reading: Reading) -> Reading:
    """An answer that told its output alone, with the prompt as the engine's own tokenizer counts it."""
    usage = reading.usage
    if not _lacks_its_input(reservation, reading):
        return reading
    admission = reservation.admission
    tokens = admission.prompt_tokens if admission.prompt_exact else await _count(reservation)
    if tokens is None:
        return reading
    usage = replace(usage, input_tokens=tokens)
    return replace(reading, usage=usage, source=MeterSource.REPORTED, anomalies=(*reading.anomalies, INPUT_COUNTED))


async def held_late(reservation: UnderWay, reading: Reading, held: Held) -> Held:
    """An embedding or a rerank whose engine told nothing: its prompt is counted now."""
    if not _told_nothing(reservation, reading, held):
        return held
    tokens = await _count(reservation)
    return held if tokens is None else replace(held, prompt_tokens=tokens, prompt_exact=True)


async def _count(reservation: UnderWay) -> int | None:
    call = reservation.call
    if not call.may_count:
        return None
    try:
        async with asyncio.timeout(COUNT_S):
            return await call.counter.count(call.request, call.run_key)
    except (CannotCount, PromptRejected, EngineFailure, TimeoutError):
        return None
