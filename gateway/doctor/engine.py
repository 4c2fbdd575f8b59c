"""Asks one engine all that the doctor judges: what it says of itself, one call of three tokens, one that is left, and its count of a small conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gateway.doctor.seen import CounterKey, EngineSeen
from gateway.doctor.trial import CALL_S, DIALECT, LEFT_CAP, left_call, request_of, short_call
from gateway.engines import ENGINES
from gateway.errors import EngineFailure, GatewayError
from gateway.settings.declaration import UpstreamSettings
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.upstream.forward import Upstream
from gateway.upstream.probe import Probed, probe
from gateway.upstream.watch import Timeouts

COUNT_S = 30.0
"""Of each counter."""


async def look_at(name: str, settings: UpstreamSettings, credential: str | None, counters: Iterable[CounterKey]) -> EngineSeen:
    ca_file = str(settings.ca_file) if settings.ca_file is not None else None
    health_path = settings.health_path or ENGINES[settings.engine].health_path
    try:
        probed = await probe(settings.address, credential=credential, ca_file=ca_file, health_path=health_path)
    except EngineFailure as failure:
        return EngineSeen(failure=failure)
    model = next((own for own in settings.models.values() if not probed.identity.models or own in probed.identity.models), "")
    if not model or probed.shut or not probed.listing.good:
        return EngineSeen(probed=probed)
    times = Timeouts(connect_s=settings.timeouts.connect_s, first_byte_s=CALL_S, between_chunks_s=CALL_S, whole_s=CALL_S)
    upstream = Upstream(name=name, address=settings.address, engine=ENGINES[settings.engine], timeouts=times, credential=credential, ca_file=ca_file)
    try:
        return await _try(upstream, probed, model, counters)
    finally:
        await upstream.close()


async def _try(upstream: Upstream, probed: Probed, model: str, counters: Iterable[CounterKey]) -> EngineSeen:
    if DIALECT not in upstream.engine.paths:
        return EngineSeen(probed=probed)
    short = await short_call(upstream, model)
    if short.reading is None or short.status != 200:
        return EngineSeen(probed=probed, model=model, short=short)
    counts = {key: await _count(upstream, model, *key) for key in dict.fromkeys(counters)}
    cap = min(LEFT_CAP, probed.context_tokens // 2) if probed.context_tokens else LEFT_CAP
    return EngineSeen(probed=probed, model=model, short=short, counts=counts, left=await left_call(upstream, model, cap))


async def _count(upstream: Upstream, model: str, word: str, overhead: int | None) -> int | str:
    encodings = Encodings()
    try:
        counter = choose_counter(word, upstream.engine, upstream.post_json, encodings, RenderedCache(), None, overhead, model)
        request = request_of(model)
        async with asyncio.timeout(COUNT_S):
            await counter.ready(request)
            return await counter.count(request, "doctor")
    except GatewayError as error:
        return str(error)
    except TimeoutError:
        return f"it took longer than {COUNT_S:g} s"
    finally:
        encodings.close()
