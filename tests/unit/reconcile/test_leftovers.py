"""Why a call has no row and a row no call: one world a reason, and what must not be taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.reconcile.known_ids import KnownIds, Place
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal, LedgerSide, RunFacts
from gateway.reconcile.match import Match
from gateway.reconcile.matching import match
from gateway.reconcile.record import DispatchRecord, RecordKind

T = 1_796_000_000_000
HEX = "0123456789abcdef01234567"


def call(number: int, **more: object) -> LedgerCall:
    given: dict[str, object] = {
        "call_id": f"call-{number:028x}",
        "campaign": "c",
        "run": "r",
        "lane": "foreground",
        "model": "m",
        "upstream": "u",
        "dialect": "openai.chat",
        "stream": True,
        "number": number,
        "admitted_ms": T + number * 10_000,
        "ended_ms": T + number * 10_000 + 5_000,
        "status": "settled",
        "outcome": "completed",
        "source": "reported",
        "usage": Usage(input_tokens=100 * number, output_tokens=number),
        "response_id": f"chatcmpl-{number:032x}",
        "tools": True,
        "conversation": f"conversation {number}",
    }
    return LedgerCall(**given | more)  # type: ignore[arg-type]


def row(of: LedgerCall, **more: object) -> DispatchRecord:
    given: dict[str, object] = {
        "session": "s",
        "source": f"f:{of.number}",
        "order": of.number,
        "at_ms": of.until_ms,
        "usage": of.usage,
        "response_id": of.response_id,
    }
    return DispatchRecord(agent="a", **given | more)  # type: ignore[arg-type]


def matched(calls: list[LedgerCall], rows: list[DispatchRecord], *, ids: KnownIds | None = None, **side: object) -> list[Match]:
    facts = RunFacts(campaign="c", run="r", opened_ms=T, closing_ms=T + 3_600_000)
    given: dict[str, object] = {"runs": {"c/r": facts}, "calls": calls}
    whole = LedgerSide(campaign="c", run="r", **given | side)  # type: ignore[arg-type]
    return match(whole, rows, lambda _wanted: ids or KnownIds())


def name_of(number: int, matches: list[Match]) -> str:
    return next(each.name.value for each in matches if any(item.number == number for item in each.items))


FIRST, LAST = call(1), call(9)
TOLD = [row(FIRST), row(LAST)]


@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        (call(5), "record_lost"),
        (call(5, source="counted"), "no_usage"),
        (call(5, tools=False), "side_call"),
        (call(5, dialect="openai.embeddings"), "side_call"),
        (call(5, outcome="client_cancelled", source="running"), "client_aborted"),
        (call(5, outcome="deadline_cut"), "gateway_cut"),
        (call(5, outcome="closed_cut"), "gateway_cut"),
        (call(5, outcome="cap_cut"), "gateway_cut"),
        (call(5, outcome="shutdown_cut"), "gateway_cut"),
        (call(5, outcome="not_delivered"), "gateway_cut"),
        (call(5, outcome="lost", status="expired", source="unknown", usage=UNKNOWN_USAGE), "gateway_cut"),
        (call(5, outcome="engine_died", source="counted"), "engine_cut"),
        (call(5, outcome="engine_timeout", source="unknown"), "engine_cut"),
        (call(5, outcome="engine_refused", source="none", http_status=503), "refused"),
        (call(5, outcome="engine_died", source="counted", conversation="conversation 9"), "retried_attempt"),
        (call(5, outcome="engine_refused", source="none", conversation="conversation 9"), "retried_attempt"),
        (call(5, conversation="conversation 9", empty=True), "retried_attempt"),
        (call(5, conversation="conversation 9"), "record_lost"),  # as well a second sample of the same
        (call(5, outcome="", status="reserved", ended_ms=None, source="", usage=UNKNOWN_USAGE, response_id=""), "open"),
    ],
)
def test_a_call_that_no_row_tells_of_has_its_reason(middle: LedgerCall, expected: str) -> None:
    matches = matched([FIRST, middle, LAST], TOLD)
    assert name_of(5, matches) == expected
    assert [each.name.value for each in matches if each.items[0].number != 5] == ["equal", "equal"]


def test_an_answer_that_was_sent_again_by_its_agents_library_is_a_retried_attempt() -> None:
    again = call(9, conversation="conversation 5", retry=True)
    assert name_of(5, matched([FIRST, call(5), again], [row(FIRST), row(again)])) == "retried_attempt"


@pytest.mark.parametrize(
    ("exit_code", "turn_end", "expected"),
    [(137, "", "agent_killed"), (-9, "", "agent_killed"), (None, "aborted", "agent_killed"), (1, "failed", "record_lost")],
)
def test_after_the_last_row_of_an_agent_that_was_killed_a_call_without_a_row_is_explained(exit_code: int | None, turn_end: str, expected: str) -> None:
    facts = RunFacts(campaign="c", run="r", opened_ms=T, exit=exit_code, turn_end=turn_end)
    matches = matched([FIRST, call(5), LAST], [row(FIRST), row(call(5))], runs={"c/r": facts})
    assert name_of(9, matches) == expected
    before = matched([FIRST, call(5), LAST], [row(LAST), row(call(5))], runs={"c/r": facts})
    assert name_of(1, before) == "record_lost"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"kind": RecordKind.LOCAL_ERROR}, "local_error_row"),
        ({"kind": RecordKind.PLACEHOLDER}, "placeholder"),
        ({"kind": RecordKind.ERROR, "status": 500}, "local_error_row"),
        ({"kind": RecordKind.ABORTED, "response_id": f"chatcmpl-{HEX}ffffffff"}, "aborted_partial"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff"}, "foreign"),
        ({"response_id": "chatcmpl-7"}, "unidentified"),
        ({"response_id": "made-up-by-the-agent-4711"}, "unidentified"),
        ({}, "unidentified"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff", "source": "g:1", "session": "t", "at_ms": T - 86_400_000}, "other_session"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff", "source": "g:1", "session": "t"}, "foreign"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff", "at_ms": T - 86_400_000}, "other_session"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff", "at_ms": T + 86_400_000}, "foreign"),
        ({"response_id": f"chatcmpl-{HEX}ffffffff", "at_ms": None}, "foreign"),
        ({"response_id": f"chatcmpl-{HEX}eeeeeeee"}, "other_run"),
        ({"response_id": f"chatcmpl-{HEX}eeeeeeee", "source": "g:1", "session": "t"}, "other_session"),
        ({"kind": RecordKind.ERROR, "request_ids": ("call-0193d2c4a7e1aa02c47bd2290e5d",)}, "refused"),
    ],
)
def test_a_row_of_no_call_has_its_reason(more: dict[str, object], expected: str) -> None:
    ids = KnownIds()
    for number in range(1, 10):
        ids.learn(ids.answer_forms, f"chatcmpl-{HEX}{number:08x}")
        ids.learn(ids.request_forms, f"call-0193d2c4a7e10f3b9a5c6d7e8f{number:02x}")
    ids.found(f"chatcmpl-{HEX}eeeeeeee", Place(campaign="c", run="another", call_id="call-x", number=77))
    given: dict[str, object] = {"response_id": "", "source": "f:5", "order": 5, "at_ms": T + 50_000, "usage": Usage(input_tokens=7, output_tokens=7)}
    odd = row(FIRST, **given | more)
    matches = matched([FIRST, LAST], [*TOLD, odd], ids=ids)
    assert [each.name.value for each in matches] == ["equal", "equal", expected]


def test_an_answer_of_which_the_gateway_lost_sight_is_no_alarm() -> None:
    ids = KnownIds()
    ids.learn(ids.answer_forms, f"chatcmpl-{5:032x}")
    lost = call(5, outcome="lost", status="expired", source="unknown", usage=UNKNOWN_USAGE, response_id="")
    kept = row(lost, usage=Usage(input_tokens=500, output_tokens=5), response_id=f"chatcmpl-{HEX}ffffffff")
    matches = matched([FIRST, lost, LAST], [*TOLD, kept], ids=ids)
    assert [each.name.value for each in matches] == ["equal", "gateway_cut", "equal"]


def test_failures_take_the_last_try_before_they_were_written_and_the_other_tries_are_refused() -> None:
    tries = [
        LedgerRefusal(call_id=f"call-{n:028x}", campaign="c", run="r", number=n, at_ms=T + n * 10_000, code="run_budget_reached", final=True)
        for n in (10, 11, 12, 13)
    ]
    failed = row(FIRST, kind=RecordKind.ERROR, response_id="", source="f:12", order=12, at_ms=T + 120_040, usage=UNKNOWN_USAGE, status=402)
    matches = matched([FIRST, LAST], [*TOLD, failed], refusals=tries)
    assert [(each.items[0].number, each.name.value, bool(each.records)) for each in matches if each.items[0].number >= 10] == [
        (10, "refused", False),
        (11, "refused", False),
        (12, "refused", True),
        (13, "refused", False),
    ]


def test_an_answer_in_the_record_of_a_call_that_was_refused_is_a_difference() -> None:
    refusal = LedgerRefusal(call_id=f"call-{5:028x}", campaign="c", run="r", number=5, at_ms=T + 50_000, code="busy", final=False)
    odd = row(FIRST, response_id="", request_ids=(refusal.call_id,), source="f:5", order=5)
    matches = matched([FIRST, LAST], [*TOLD, odd], refusals=[refusal])
    assert name_of(5, matches) == "differs"


def test_an_error_in_the_record_of_a_whole_answer_is_a_difference() -> None:
    odd = replace(row(call(5)), kind=RecordKind.ERROR, status=500)
    matches = matched([FIRST, call(5), LAST], [*TOLD, odd])
    assert name_of(5, matches) == "differs"
    assert [str(each) for each in next(each for each in matches if each.name == "differs").differences] == ["ending: ledger completed, record error"]


def test_a_corrected_usage_is_what_a_row_is_held_against() -> None:
    corrected = call(5, source="corrected", status="adjusted")
    assert name_of(5, matched([FIRST, corrected, LAST], [*TOLD, row(corrected)])) == "equal"


def test_a_session_that_has_nothing_but_the_hour_in_common_does_not_take_a_call_that_was_lost() -> None:
    stranger = row(call(5), source="g:1", session="t", order=0, response_id="", usage=Usage(input_tokens=77, output_tokens=78))
    matches = matched([FIRST, call(5), LAST], [*TOLD, stranger])
    assert [each.name.value for each in matches] == ["equal", "record_lost", "equal", "unidentified"]
    akin = replace(stranger, usage=Usage(input_tokens=500, output_tokens=78))
    assert name_of(5, matched([FIRST, call(5), LAST], [*TOLD, akin])) == "differs"


def test_a_row_between_two_of_its_run_tells_of_no_other_runs_call() -> None:
    other = call(5, run="s")
    facts = {f"c/{run}": RunFacts(campaign="c", run=run, opened_ms=T, closing_ms=T + 3_600_000) for run in ("r", "s")}
    stray = row(other, response_id="", usage=Usage(input_tokens=77, output_tokens=78))
    whole = LedgerSide(campaign="c", run="", runs=facts, calls=[FIRST, other, LAST])
    matches = match(whole, [*TOLD, stray], lambda _wanted: KnownIds())
    assert [each.name.value for each in matches] == ["equal", "record_lost", "equal", "unidentified"]


def test_a_row_with_the_numbers_and_time_of_another_runs_call_is_that_runs() -> None:
    ids = KnownIds()
    stray = row(call(5), response_id="", usage=Usage(input_tokens=500, output_tokens=78))
    ids.by_numbers[stray.source] = [Place(campaign="c", run="s")]
    matches = matched([FIRST, call(5), LAST], [*TOLD, stray], ids=ids)
    assert [each.name.value for each in matches] == ["equal", "record_lost", "equal", "other_run"]


def test_a_row_with_an_engines_id_of_its_own_does_not_take_the_place_of_a_call_that_was_lost() -> None:
    ids = KnownIds()
    ids.learn(ids.answer_forms, f"chatcmpl-{HEX}00000001")
    bypass = row(call(5), response_id=f"chatcmpl-{HEX}ffffffff", usage=Usage(input_tokens=77, output_tokens=78))
    matches = matched([FIRST, call(5), LAST], [*TOLD, bypass], ids=ids)
    assert [each.name.value for each in matches] == ["equal", "record_lost", "equal", "foreign"]


def test_sessions_that_ran_side_by_side_with_the_same_numbers_are_told_apart_by_what_they_sent_along() -> None:
    numbers = Usage(input_tokens=100, output_tokens=1)
    one, two = (call(number, usage=numbers, admitted_ms=T + number, ended_ms=T + 5_000, session=frozenset({f"session-{number}"})) for number in (1, 2))
    rows = [row(each, response_id="", session=name, session_ids=(name,), order=0) for each, name in ((one, "session-1"), (two, "session-2"))]
    rows = [replace(rows[0], at_ms=T + 5_200), replace(rows[1], at_ms=T + 5_100)]  # written in the other order
    more = [replace(each, call_id=f"{each.call_id[:-1]}f", number=each.number + 10) for each in (one, two)]
    later = [replace(rows[place], source=f"f:{place + 11}", order=1, at_ms=T + 5_300) for place in (0, 1)]
    for calls, told in (([one, two], rows), ([one, two, *more], [*rows, *later])):
        found = [(sorted(each.items[0].session)[0], each.records[0].session) for each in matched(calls, told) if each.records]  # type: ignore[union-attr]
        assert len(found) == len(told) and all(ours == theirs for ours, theirs in found)
