"""Why a call went as it did, from its entries alone, with the numbers that stood there at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.accounting.chain import encode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.usage import Outcome
from gateway.ledger.explaining import ENDS, explain

LIMIT = {"name": "run.output_tokens", "ceiling": 30, "settled": 12, "reserved": 4, "asked": 20}
RESERVE = {
    "kind": "reserve",
    "lane": "foreground",
    "model": "m",
    "at_ms": 5,
    "prompt_source": "engine",
    "ceiling": 14,
    "ceiling_from": "run.output_tokens",
    "reserved": {"requests": 1, "input_tokens": 100, "output_tokens": 14, "concurrent": 1},
}
SETTLE = {
    "kind": "settle",
    "outcome": "length",
    "source": "reported",
    "usage": {"input_tokens": 100},
    "charge": {"requests": 1, "input_tokens": 100, "output_tokens": 14},
}


def entry(content: Mapping[str, object]) -> LedgerEntry:
    whole = {"campaign": "c", "run": "r", "call": "call-1", "number": 1, "chain": "run:c/r", "sequence": 1, "at_ms": 5, **content}
    return LedgerEntry(
        number=1,
        chain="run:c/r",
        sequence=1,
        kind=str(content["kind"]),
        at_ms=5,
        campaign="c",
        run="r",
        call_id="call-1",
        body=encode(whole),
        previous_hash=b"",
        hash=b"",
    )


def explained(*contents: Mapping[str, object]) -> Any:
    return explain("call-1", [entry(content) for content in contents])


def test_a_clamp_and_a_wait_are_told_with_their_limits_numbers() -> None:
    decision = {"wanted": 20, "clamped_by": LIMIT, "waited_on": {**LIMIT, "name": "run.concurrent", "ceiling": 1}}
    why = explained({**RESERVE, "clamped": True, "waited_ms": 700, "details": {"decision": decision}}, SETTLE)
    assert why["clamped_by"] == LIMIT
    assert why["waited_on"]["name"] == "run.concurrent"
    assert why["why"] == [
        "reserved 100 input tokens (engine) and 14 output tokens",
        "waited 700 ms for run.concurrent = 1, settled 12, reserved 4, asked 20",
        "clamped to 14 output tokens of the 20 that it wanted, by run.output_tokens = 30, settled 12, reserved 4, asked 20",
        "length: it reached its ceiling",
        "used 100 input tokens, unknown output tokens (source reported); charged 1 requests, 100 input tokens, 14 output tokens",
    ]


def test_every_limit_that_it_waited_for_is_told_with_its_time() -> None:
    day = {"name": "campaign.day.requests", "ceiling": 9, "settled": 9, "reserved": 0, "asked": 1, "ms": 200}
    decision = {"waited_on": {**LIMIT, "ms": 500}, "then_waited_on": [day, {"name": "run.concurrent", "ceiling": 1}]}
    why = explained({**RESERVE, "waited_ms": 900, "details": {"decision": decision}}, SETTLE)
    assert [why["waited_on"]["ms"], *(one["name"] for one in why["then_waited_on"])] == [500, "campaign.day.requests", "run.concurrent"]
    assert why["why"][1] == (
        "waited 900 ms: 500 ms for run.output_tokens = 30, settled 12, reserved 4, asked 20, "
        "then 200 ms for campaign.day.requests = 9, settled 9, reserved 0, asked 1, then some ms for run.concurrent = 1"
    )


def test_what_the_entries_do_not_say_is_not_guessed() -> None:
    why = explained({**RESERVE, "waited_ms": 9, "ceiling_from": "default"})
    assert why["status"] == "reserved"
    assert "a slot of its engine" in why["why"][1]
    assert why["why"][2] == "its ceiling was 14 output tokens: the model's default_output_tokens"
    assert not {"outcome", "clamped_by", "waited_on", "cut_by", "limit"} & why.keys()


def test_a_refusal_names_the_limit_and_whether_to_stop() -> None:
    why = explained({"kind": "refuse", "lane": "foreground", "model": "", "code": "busy", "final": False, "limit": LIMIT, "waited_ms": 120_000})
    assert (why["status"], why["code"], why["final"], why["limit"]) == ("refused", "busy", False, LIMIT)
    assert "passing: it may try again" in why["why"][0]
    assert why["why"][1:] == ["in the way: run.output_tokens = 30, settled 12, reserved 4, asked 20", "it waited 120000 ms before that"]
    guard = explained({"kind": "refuse", "lane": "foreground", "model": "", "code": "not_allowed", "final": True, "field": "tools"})
    assert "the body's field tools made it so" in guard["why"]


def test_what_the_policy_dropped_is_named() -> None:
    why = explained({**RESERVE, "details": {"stripped": ["keep_alive", "tools.web_search"]}}, SETTLE)
    assert "dropped before it was sent, as guard.strip of the policy says: keep_alive, tools.web_search" in why["why"]


def test_a_cut_names_the_limit_that_cut() -> None:
    by = {"name": "run.wall_seconds", "ceiling": 1, "settled": 1}
    why = explained(RESERVE, {**SETTLE, "outcome": "deadline_cut", "details": {"cut_by": by}})
    assert why["cut_by"] == by
    assert "cut by run.wall_seconds = 1, settled 1" in why["why"]


def test_what_came_after_the_settlement_is_told_too() -> None:
    event = {"kind": "event", "name": "count_drift", "details": {"reserved": 100, "reported": 101}}
    adjust = {"kind": "adjust", "usage": {}, "charge": {"requests": 1}, "reason": "late_usage", "evidence": "log line 7"}
    why = explained(RESERVE, SETTLE, event, adjust)
    assert (why["status"], why["source"]) == ("adjusted", "corrected")
    assert "on record: count_drift (reported 101, reserved 100)" in why["why"] or "on record: count_drift (reserved 100, reported 101)" in why["why"]
    assert why["why"][-1] == "corrected: late_usage (log line 7); charged 1 requests"
    assert [each["kind"] for each in why["entries"]] == ["reserve", "settle", "event", "adjust"]
    lost = explained(RESERVE, {"kind": "expire", "outcome": "lost", "source": "unknown", "usage": {}, "charge": {}, "reason": "process ended"})
    assert (lost["status"], lost["outcome"]) == ("lost", "lost")
    void = explained(RESERVE, {"kind": "void", "reason": "connect failed"})
    assert void["status"] == "void" and void["why"][-1].startswith("void: connect failed")


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_its_words(outcome: Outcome) -> None:
    assert outcome in ENDS
