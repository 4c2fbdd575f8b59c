"""Made-up runs of made-up agents: calls, the rows that tell of them, and which is which."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from gateway.accounting.usage import Usage
from gateway.reconcile.ledger_side import LedgerCall, LedgerSide, RunFacts
from gateway.reconcile.record import DispatchRecord, RecordKind

START_MS = 1_796_000_000_000
HABITS = ("response", "short", "tools", "session", "nothing")
"""What ids an agent keeps: the answer's, one that collides by chance, its tool calls', only its session's, none."""


@dataclass(slots=True)
class World:
    side: LedgerSide
    records: list[DispatchRecord] = field(default_factory=list)
    truth: dict[str, str] = field(default_factory=dict)
    """Source of a row -> call id."""
    habits: dict[str, str] = field(default_factory=dict)
    """Session -> what its agent keeps."""


def make(seed: int, *, runs: int = 2, sessions: int = 2, calls: int = 8, few: bool = False) -> World:
    """`few`: few different numbers, so that they collide."""
    dice = random.Random(seed)
    world = World(LedgerSide(campaign="c", run=""))
    for run in range(runs):
        name = f"r{run}"
        world.side.runs[f"c/{name}"] = RunFacts(campaign="c", run=name, opened_ms=START_MS - 1_000)
        for number in range(sessions):
            _session(world, dice, name, f"session-{run}-{number}-{dice.getrandbits(64):016x}", calls, few)
    world.side.calls.sort(key=lambda call: call.admitted_ms)
    for number, call in enumerate(world.side.calls):
        call.number = number + 1
    dice.shuffle(world.records)
    return world


def _session(world: World, dice: random.Random, run: str, session: str, calls: int, few: bool) -> None:
    habit = world.habits[session] = dice.choice(HABITS)
    at_ms = START_MS + dice.randrange(3_600_000)
    for order in range(dice.randint(1, calls)):
        at_ms += dice.randint(50, 20_000)
        call = _call(world, dice, run, session, at_ms, few)
        call.session = frozenset({session}) if habit == "session" or dice.random() < 0.3 else frozenset()
        if habit == "short":
            call.response_id = f"chatcmpl-{dice.randrange(1000)}"
        at_ms = call.until_ms
        world.side.calls.append(call)
        row = _row(call, habit, session, order, at_ms + dice.randint(0, 400))
        world.records.append(row)
        world.truth[row.source] = call.call_id


def _call(world: World, dice: random.Random, run: str, session: str, at_ms: int, few: bool) -> LedgerCall:
    tokens = (lambda: dice.randint(1, 3)) if few else (lambda: dice.randint(1, 100_000))
    number = len(world.side.calls)
    return LedgerCall(
        call_id=f"call-{number:012x}{dice.getrandbits(64):016x}",
        campaign="c",
        run=run,
        lane="foreground",
        model="m",
        upstream="u",
        dialect="openai.chat",
        stream=True,
        number=0,
        admitted_ms=at_ms,
        ended_ms=at_ms + dice.randint(10, 30_000),
        status="settled",
        outcome="completed",
        source="reported",
        usage=Usage(input_tokens=tokens(), output_tokens=tokens(), cached_tokens=0),
        response_id=f"chatcmpl-{dice.getrandbits(128):032x}",
        tool_call_ids=(f"call_{dice.getrandbits(96):024x}",),
        tools=True,
        conversation=f"{number}",
    )


def _row(call: LedgerCall, habit: str, session: str, order: int, at_ms: int) -> DispatchRecord:
    row = DispatchRecord(
        agent="agent", source=f"/records/{session}.jsonl:{order + 1}", kind=RecordKind.ANSWER, session=session, order=order, at_ms=at_ms, usage=call.usage
    )
    if habit in ("response", "short"):
        return replace(row, response_id=call.response_id)
    if habit == "tools":
        return replace(row, tool_call_ids=call.tool_call_ids)
    return replace(row, session_ids=(session,)) if habit == "session" else row
