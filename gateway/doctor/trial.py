"""Two calls as the gateway would send them: one of three tokens that is read to its end, and one that is left at its first word."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.dialects import DIALECTS
from gateway.dialects.dialect import CallRequest, ForwardFacts
from gateway.doctor.seen import CAP, Left, Short
from gateway.errors import EngineFailure
from gateway.metering.meter import Meter, meter_of
from gateway.metering.reader import Mark
from gateway.upstream.at_work import Found, found_of, read_work
from gateway.upstream.cancelling import ANSWER_BYTES, LOOK_AFTER_S, LOOK_S
from gateway.upstream.forward import Upstream

DIALECT: Final = "openai.chat"
CALL_S: Final = 60
"""Of each call: a model may have to be loaded first."""
LEFT_CAP: Final = 1_999
"""No agent asks for just that: by it the call is known among others."""
EVENT_BYTES: Final = 1 << 20
BODY_BYTES: Final = 4 << 20
_MESSAGES: Final = (
    {"role": "system", "content": "You count."},
    {"role": "user", "content": "Write the numbers from 1 to 5000 in words, one a line. Leave none out and do not stop."},
)


def conversation(model: str, cap: int) -> dict[str, Any]:
    return {"model": model, "messages": list(_MESSAGES), "max_tokens": cap, "stream": True}


def request_of(model: str, cap: int = CAP) -> CallRequest:
    return DIALECTS[DIALECT].read_request(conversation(model, cap))


async def short_call(upstream: Upstream, model: str) -> Short:
    """Never raises EngineFailure: it is told."""
    request = request_of(model)
    pieces = 0
    try:
        async with asyncio.timeout(CALL_S), upstream.send(upstream.engine.paths[DIALECT], _body(upstream, request, model, CAP)) as answer:
            meter = _meter(upstream, request, answer.status, answer.headers)
            async for chunk in answer.chunks():
                pieces += sum(bool(mark & Mark.CONTENT) for _, mark in meter.feed(chunk))
            meter.end()
            said = "" if answer.status == 200 else meter.delivered_text()
            return Short(status=answer.status, reading=meter.reading(answer.status, truncated=False), pieces=pieces, said=said)
    except EngineFailure as failure:
        return Short(failure=failure)
    except TimeoutError:
        return Short(failure=EngineFailure("timeout", "whole", f"it took longer than {CALL_S} s"))


async def left_call(upstream: Upstream, model: str, cap: int = LEFT_CAP) -> Left:
    """Starts a stream, leaves it at its first content, looks once three seconds later. Never raises EngineFailure."""
    if not upstream.engine.work_path:
        return Left(found=Found.CANNOT_BE_ASKED, why=f"an engine of kind {upstream.engine.kind} does not tell what it works on")
    request = request_of(model, cap)
    try:
        async with asyncio.timeout(CALL_S), upstream.send(upstream.engine.paths[DIALECT], _body(upstream, request, model, cap)) as answer:
            if answer.status != 200:
                return Left(why=f"the call was answered {answer.status}")
            meter = _meter(upstream, request, answer.status, answer.headers)
            begun = False
            async for chunk in answer.chunks():
                begun = any(mark & Mark.CONTENT for _, mark in meter.feed(chunk))
                if begun:
                    break
            if not begun:
                return Left(why="the stream ended before its first content")
    except EngineFailure as failure:
        return Left(why=str(failure))
    except TimeoutError:
        return Left(why=f"no content came within {CALL_S} s")
    await asyncio.sleep(LOOK_AFTER_S)
    return await _look(upstream, cap)


async def _look(upstream: Upstream, cap: int) -> Left:
    path = upstream.engine.work_path
    try:
        async with asyncio.timeout(LOOK_S), upstream.send(path, b"", method="GET") as answer:
            status, data = answer.status, await answer.read(ANSWER_BYTES)
    except (EngineFailure, TimeoutError):
        return Left(found=Found.NO_ANSWER, why=f"{path} gave no answer")
    work = read_work(upstream.engine, data) if status == 200 else None
    if work is None:
        return Left(found=Found.CANNOT_BE_ASKED, why=f"{path} answers {status}")
    found = found_of(cap, 1, work, ())
    if found is Found.AT_WORK and any(one.ceiling is None for one in work):
        found = Found.ONE_OF_SEVERAL  # others may use this engine now
    return Left(found=found, why=f"{path} tells of {len(work)} at work", lags=upstream.engine.work_lags)


def _body(upstream: Upstream, request: CallRequest, model: str, cap: int) -> bytes:
    engine = upstream.engine
    facts = ForwardFacts(
        model=model,
        cap_name=engine.cap_names[DIALECT],
        strip_fields=engine.strip_fields,
        pin_fields=engine.pin_fields,
        asks_usage=engine.asks_usage,
        request_id_field=engine.request_id_field,
    )
    return orjson.dumps(DIALECTS[DIALECT].forward_body(request, facts, ceiling_per_choice=cap))


def _meter(upstream: Upstream, request: CallRequest, status: int, headers: Mapping[str, str]) -> Meter:
    reader = DIALECTS[DIALECT].reader(request, upstream.engine.kind)
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return meter_of(reader, status=status, content_type=kind, max_event_bytes=EVENT_BYTES, max_response_bytes=BODY_BYTES)
