"""`kill -9` under load, at every named place of a call's way and at random: afterwards the ledger, the engine's log and the clients agree.

`GATEWAY_KILLS` says how many kills (`make kill-test KILLS=50`); a tenth of them, at least one, at each place, and the rest at random moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.proxy.fault_points import POINTS, VARIABLE
from tests.conftest import GatewayMaker
from tests.support.gateway_process import GatewayProcess
from tests.support.load import Load, Seen
from tests.support.mock_process import MockProcess

KILLS = int(os.environ.get("GATEWAY_KILLS", "10"))
CLIENTS = 6
SCRIPT = {"prefill_ms": 20, "gap_ms": 8, "chunk_tokens": 2, "finish_before_done_ms": 5}
CLOSINGS = ("settle", "void", "expire", "adjust")
RANDOM = "random"


def kinds_of_kills(kills: int) -> list[str]:
    """In random order; the same order each time."""
    each = max(1, kills // 10)
    kinds = list(POINTS) * each + [RANDOM] * max(0, kills - each * len(POINTS))
    random.Random(kills).shuffle(kinds)
    return kinds


@dataclass(slots=True)
class Book:
    """What stands in the ledger about calls."""

    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    closings: Counter[str] = field(default_factory=Counter)
    """Closing entries by call that no later one replaced."""
    problem: str = ""


def read(gateway: GatewayProcess) -> Book:
    with LedgerReader(gateway.ledger) as reader:
        entries = reader.query(f"SELECT call_id, kind FROM journal WHERE call_id <> '' AND kind IN {CLOSINGS}")
        return Book(
            calls={str(row["call_id"]): dict(row) for row in reader.calls()},
            closings=Counter(str(row["call_id"]) for row in entries),
            problem=reader.verify().problem,
        )


@dataclass(slots=True)
class Kill:
    """One kill and what was seen of it."""

    kind: str
    seen: list[Seen]
    open: int
    """Calls under way, as their clients know it."""
    engine: dict[str, dict[str, Any]]
    """The engine's record by call id, of all calls so far."""
    before: Book
    after: Book

    @property
    def new(self) -> set[str]:
        return self.after.calls.keys() - self.before.calls.keys()

    @property
    def lost(self) -> set[str]:
        return {call for call in self.new if self.after.calls[call]["outcome"] == "lost"}


def check(kill: Kill) -> None:
    """The four things that must hold after any kill."""
    after, engine = kill.after, kill.engine
    assert all(after.calls[call]["status"] != "reserved" for call in after.calls), "a call stays open after a start"
    for call in engine:
        assert call in after.calls, f"the engine saw {call}, the ledger did not"
        assert after.closings[call] == 1, f"{call} is closed {after.closings[call]} times"
        assert after.calls[call]["status"] in ("settled", "expired"), f"the engine saw a call that is {after.calls[call]['status']}"
    for call in after.calls.keys() - engine.keys():
        row = after.calls[call]
        assert row["status"] == "voided" or row["outcome"] == "lost", f"the engine never saw this call: {row}"
    assert len(kill.lost) <= kill.open, "more calls are lost than were in flight"
    for one in kill.seen:
        if one.terminal and one.status == 200:
            row = after.calls[one.call_id]
            assert one.usage is not None and row["status"] == "settled", f"{one} has its end and is not settled: {row}"
            told = one.usage["prompt_tokens"], one.usage["completion_tokens"]
            assert (row["input_tokens"], row["output_tokens"]) == told and row["source"] == "reported", f"{one} was told another usage than {row}"
    assert after.problem == "", after.problem


def check_point(kill: Kill) -> None:
    """The place was where its name says: else a kill there would show nothing."""
    lost, engine = kill.lost, kill.engine
    done = {one.call_id for one in kill.seen if one.terminal}
    match kill.kind:
        case "reserved":
            assert lost - engine.keys(), "a call was reserved and not sent"
        case "sent":
            assert lost & engine.keys(), "a call was sent and not settled"
        case "mid_stream":
            assert any(one.stream and one.body_bytes and not one.terminal for one in kill.seen), "a client had a part of its answer"
        case "terminal_held":
            assert any(engine[call]["end"] == "completed" for call in lost & engine.keys()), "an answer was read to its end and not settled"
        case "settled":
            assert any(kill.after.calls[call]["status"] == "settled" and call not in done for call in kill.new), "a settled call whose client had no end"


def kills(gateways: GatewayMaker, engine: MockProcess) -> Iterator[Kill]:
    """Each is followed by a start on the same ledger, which is the next one's gateway."""
    chance = random.Random(KILLS)
    gateway = gateways(engine.url, slots=4)
    key = gateway.opened("c1", "r1").key
    gateway.kill()
    before = Book()
    kinds = kinds_of_kills(KILLS)
    _start(gateway, kinds[0], chance)
    for kind, following in zip(kinds, [*kinds[1:], RANDOM], strict=True):
        load = Load(gateway.port, key, clients=CLIENTS, body={"max_tokens": 12}).start()
        if kind == RANDOM:
            time.sleep(chance.uniform(0.05, 0.8))
            gateway.kill()
        assert gateway.process.wait(timeout_s=20) == -signal.SIGKILL, gateway.process.output
        seen = load.join()
        _start(gateway, following, chance)
        log = {record["request_id"]: record for record in engine.calls()}
        after = read(gateway)
        yield Kill(kind=kind, seen=seen, open=load.open, engine=log, before=before, after=after)
        before = after
    assert gateway.stop() == 0


def _start(gateway: GatewayProcess, kind: str, chance: random.Random) -> None:
    gateway.env = {} if kind == RANDOM else {VARIABLE: f"{kind}:{chance.randint(1, 4 * CLIENTS)}"}
    gateway.start()


@pytest.mark.timeout(60 + 12 * KILLS)
def test_after_every_kill_ledger_engine_and_clients_agree(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SCRIPT)
    made: Counter[str] = Counter()
    calls = lost = 0
    for kill in kills(gateways, mock_process):
        check(kill)
        check_point(kill)
        made[kill.kind] += 1
        calls, lost = len(kill.after.calls), lost + len(kill.lost)
    print(f"\nkills: {sum(made.values())}, {', '.join(f'{kind} {made[kind]}' for kind in (*POINTS, RANDOM))}; {calls} calls, {lost} of them lost")
    assert sum(made.values()) == max(KILLS, len(POINTS))
    assert all(made[point] >= max(1, KILLS // 10) for point in POINTS)


def paper(**changed: object) -> Kill:
    """A kill after which all is well: one call settled and seen by all, one lost on the engine, one lost unsent, one void."""
    row: dict[str, Any] = {"status": "settled", "outcome": "length", "source": "reported", "input_tokens": 5, "output_tokens": 12}
    gone: dict[str, Any] = {"status": "expired", "outcome": "lost", "source": "unknown", "input_tokens": None, "output_tokens": None}
    calls: dict[str, dict[str, Any]] = {"done": row, "sent": gone, "unsent": gone, "void": {"status": "voided", "outcome": None}}
    book = Book(calls=calls, closings=Counter(list(calls)))
    told = Seen(stream=True, call_id="done", status=200, body_bytes=9, terminal=True, usage={"prompt_tokens": 5, "completion_tokens": 12})
    kill = Kill(kind=RANDOM, seen=[told, Seen(stream=False)], open=2, engine={"done": {"end": "completed"}, "sent": {"end": ""}}, before=Book(), after=book)
    for name, value in changed.items():
        setattr(kill if hasattr(kill, name) else kill.after, name, value)
    return kill


def test_the_check_passes_where_all_is_well() -> None:
    check(paper())


UNEQUAL = Seen(stream=True, call_id="done", status=200, terminal=True, usage={"prompt_tokens": 5, "completion_tokens": 13})


@pytest.mark.parametrize(
    ("wrong", "changed"),
    [
        ("closed 0 times", {"closings": Counter(["done", "unsent", "void"])}),
        ("closed 2 times", {"closings": Counter(["done", "done", "sent", "unsent", "void"])}),
        ("the engine saw a call that is voided", {"engine": {"done": {}, "sent": {}, "void": {}}}),
        ("the ledger did not", {"engine": {"done": {}, "sent": {}, "elsewhere": {}}}),
        ("the engine never saw", {"engine": {"sent": {}}}),
        ("more calls are lost", {"open": 1}),
        ("another usage", {"seen": [UNEQUAL]}),
        ("is not settled", {"seen": [Seen(stream=True, call_id="sent", status=200, terminal=True, usage={"prompt_tokens": 5, "completion_tokens": 12})]}),
        ("balances differ", {"problem": "balances differ"}),
        ("stays open", {"calls": paper().after.calls | {"void": {"status": "reserved", "outcome": None}}}),
    ],
)
def test_the_check_fails_where_one_thing_is_wrong(wrong: str, changed: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match=wrong):
        check(paper(**changed))
