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


async def with_input(reservation: UnderWay, reading: Reading) -> Reading:
    """An answer that told its output alone, with the prompt as the engine's own tokenizer counts it."""
    call, usage = reservation.call, reading.usage
    told = reading.completed and usage.input_tokens is None and usage.output_tokens is not None
    if not (told and call.request.generates and call.counter.exact and not call.request.pictures):
        return reading
    admission = reservation.admission
    tokens = admission.prompt_tokens if admission.prompt_exact else await _count(reservation)
    if tokens is None:
        return reading
    usage = replace(usage, input_tokens=tokens)
    return replace(reading, usage=usage, source=MeterSource.REPORTED, anomalies=(*reading.anomalies, INPUT_COUNTED))


async def held_late(reservation: UnderWay, reading: Reading, held: Held) -> Held:
    """An embedding or a rerank whose engine told nothing: its prompt is counted now."""
    call = reservation.call
    if call.request.generates or not reading.completed or reading.usage.input_tokens is not None or held.prompt_exact or not call.counter.can_count:
        return held
    tokens = await _count(reservation)
    return held if tokens is None else replace(held, prompt_tokens=tokens, prompt_exact=True)


async def _count(reservation: UnderWay) -> int | None:
    call = reservation.call
    try:
        async with asyncio.timeout(COUNT_S):
            return await call.counter.count(call.request, call.run_key)
    except (CannotCount, PromptRejected, EngineFailure, TimeoutError):
        return None
