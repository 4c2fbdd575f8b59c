"""The order that a ledger promises, held against a trace. Pure.

For each call: the reservation's entry was written, then a sync of the ledger's file began and returned, then the call's first byte went to the engine;
and the same for its settlement and the send that holds the first byte of the answer's end (an error event, `[DONE]`, or the body where it does not stream).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tests.support.strace import Syscall

CHAT = b"POST /v1/chat/completions "
_ID = rb"call-[0-9a-f]+"
_FORWARDED = re.compile(rb"\r\nX-Request-Id: (" + _ID + rb")\r\n", re.IGNORECASE)
_ANSWERED = re.compile(rb"HTTP/1\.1 200 .*?\r\nx-request-id: (" + _ID + rb")\r\n.*?\r\n\r\n", re.IGNORECASE | re.DOTALL)
_END = re.compile(rb'data: (?:\[DONE\]|\{"error")')
_ENTRY = re.compile(rb"(reserve|settle)[\x00-\xff]{6}(" + _ID + rb")")
"""As a journal row lies in a page: kind, moment (six bytes), call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`what`: wrote reserve, wrote settle, synced, helper, sent, ended."""

    what: str
    call: str = ""
    began: int
    returned: int | None


def steps_of(trace: Iterable[Syscall], *, ledger: str, data_port: int, engine_port: int) -> list[Step]:
    """What of a trace concerns the promise. `ledger`: the path of its file."""
    steps: list[Step] = []
    known: set[tuple[str, str]] = set()
    answers: dict[str, list[Syscall]] = {}
    for one in trace:
        if one.file in (ledger, f"{ledger}-wal"):
            if one.name in ("fsync", "fdatasync"):
                steps.append(Step(what="synced", began=one.began, returned=one.returned if one.result == 0 else None))
                continue
            for kind, call in _ENTRY.findall(one.data):
                if (entry := (f"wrote {kind.decode()}", call.decode())) not in known:
                    known.add(entry)
                    steps.append(Step(what=entry[0], call=entry[1], began=one.began, returned=one.returned))
        elif one.file.endswith(f":{engine_port}]"):
            found = _FORWARDED.search(one.data) if one.data.startswith(CHAT) else None
            steps.append(Step(what="sent" if found else "helper", call=found[1].decode() if found else "", began=one.began, returned=one.returned))
        elif re.match(rf"TCP:\[[^>]*:{data_port}->", one.file):
            answers.setdefault(one.file, []).append(one)
    for sends in answers.values():
        steps.extend(_ends(sends))
    return sorted(steps, key=lambda step: step.began)


def _ends(sends: Sequence[Syscall]) -> Iterable[Step]:
    """For each answer on a connection: the send with the first byte of its end."""
    edges = list(accumulate(len(one.data) for one in sends))
    stream = b"".join(one.data for one in sends)
    heads = list(_ANSWERED.finditer(stream))
    for head, following in zip(heads, [*(later.start() for later in heads[1:]), len(stream)], strict=True):
        at = head.end()
        if b"text/event-stream" in head[0]:
            end = _END.search(stream, head.end(), following)
            at = end.start() if end is not None else following
        if at < following:
            send = sends[next(index for index, edge in enumerate(edges) if edge > at)]
            yield Step(what="ended", call=head[1].decode(), began=send.began, returned=send.returned)


def calls_of(steps: Iterable[Step], what: str) -> list[str]:
    return [step.call for step in steps if step.what == what]


def faults(steps: Sequence[Step]) -> list[str]:
    """Where the order is broken; empty where it holds."""
    syncs = [step for step in steps if step.what == "synced"]
    first = _firsts(steps)
    found = []
    for (what, call), step in first.items():
        before = {"sent": "wrote reserve", "ended": "wrote settle"}.get(what)
        if before is None:
            continue
        entry = first.get((before, call))
        if entry is None or entry.returned is None or entry.returned > step.began:
            found.append(f"{call} was {what} before its ledger {before}")
        elif not any(entry.returned < sync.began and sync.returned is not None and sync.returned < step.began for sync in syncs):
            found.append(f"{call} was {what} after its ledger {before} and before a sync returned")
    return found


def _firsts(steps: Iterable[Step]) -> dict[tuple[str, str], Step]:
    first: dict[tuple[str, str], Step] = {}
    for step in steps:
        first.setdefault((step.what, step.call), step)
    return first
