"""How a call is settled: a test for each row of the table, and what holds for every reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.accounting.quantity import Amounts
from gateway.accounting.settling import ENDED, ChargeRules, Ending, Held, How, OwnCount, Terms, needs_own_count, settle_terms
from gateway.accounting.usage import NO_USAGE, ErrorClass, MeterSource, Outcome, Reading, Source, Usage

HELD = Held(prompt_tokens=100, prompt_exact=True, ceiling=50, context_tokens=4_096)
BOUND = replace(HELD, prompt_exact=False)
LEFT = Ending(how=How.CLIENT_LEFT)
DEADLINE = Ending(how=How.CUT, cut=Outcome.DEADLINE_CUT)
DIED = Ending(how=How.FAILED, failure="died")
OWN = OwnCount(output_tokens=12, counted_by="engine")
RESERVED = ChargeRules(cut_streams="reserved")
FULL = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, reasoning_tokens=5, tool_calls=0)


def reading(**fields: object) -> Reading:
    given: dict[str, object] = {"usage": Usage(tool_calls=0), "source": MeterSource.MISSING, "status": 200, "completed": False} | fields
    return Reading(**given)  # type: ignore[arg-type]


def reported(usage: Usage = FULL, **fields: object) -> Reading:
    return reading(**({"usage": usage, "source": MeterSource.REPORTED, "completed": True, "finish_reason": "stop", "content_seen": True} | fields))


def charged(input_tokens: int, output_tokens: int) -> Amounts:
    return Amounts(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)


WHOLE = charged(100, 50)
PROMPT = charged(100, 0)
BROKEN = reading(error_class=ErrorClass.TRUNCATED)
HALFWAY = reading(error_class=ErrorClass.TRUNCATED, content_seen=True)


def brief(terms: Terms) -> tuple[Outcome, Source, Amounts]:
    return terms.outcome, terms.source, terms.charge


# Row: the engine refused before working


@pytest.mark.parametrize("status", [302, 400, 401, 404, 422, 429, 503, 529])
def test_a_status_by_which_the_engine_refused_costs_one_request_and_no_tokens(status: int) -> None:
    for ending in (ENDED, LEFT, DEADLINE, DIED):
        terms = settle_terms(reading(status=status, error_class=ErrorClass.OVERLOADED), ending, stream=True, held=HELD)
        assert brief(terms) == (Outcome.ENGINE_REFUSED, Source.NONE, charged(0, 0))
        assert terms.usage == NO_USAGE


@pytest.mark.parametrize(("code", "refused"), [(503, True), (529, True), (400, True), (500, False), (None, False)])
def test_an_error_as_the_first_event_of_a_200_refuses_by_its_own_code(code: int | None, refused: bool) -> None:
    first = reading(error_class=ErrorClass.MID_STREAM_ERROR, error_code=code, error_first=True)
    terms = settle_terms(first, ENDED, stream=True, held=HELD)
    assert brief(terms) == ((Outcome.ENGINE_REFUSED, Source.NONE, charged(0, 0)) if refused else (Outcome.ENGINE_ERROR, Source.UNKNOWN, PROMPT))


def test_a_503_after_other_events_is_no_refusal() -> None:
    later = reading(error_class=ErrorClass.MID_STREAM_ERROR, error_code=503)
    assert brief(settle_terms(later, ENDED, stream=True, held=HELD)) == (Outcome.ENGINE_ERROR, Source.UNKNOWN, PROMPT)


def test_an_error_by_which_the_engine_refused_but_then_reported_work_is_charged_as_reported() -> None:
    worked = reported(completed=False, error_class=ErrorClass.MID_STREAM_ERROR, error_code=503, error_first=True)
    assert brief(settle_terms(worked, ENDED, stream=True, held=HELD)) == (Outcome.ENGINE_ERROR, Source.REPORTED, charged(100, 20))


# Row: the engine's final counters


def test_final_counters_are_usage_and_charge() -> None:
    terms = settle_terms(reported(), ENDED, stream=True, held=HELD)
    assert terms == Terms(outcome=Outcome.COMPLETED, source=Source.REPORTED, usage=FULL, charge=charged(100, 20))


def test_final_counters_stand_however_the_call_ended() -> None:
    for ending, outcome in ((LEFT, Outcome.CLIENT_CANCELLED), (DEADLINE, Outcome.DEADLINE_CUT), (DIED, Outcome.COMPLETED)):
        assert brief(settle_terms(reported(), ending, stream=True, held=HELD, rules=RESERVED)) == (outcome, Source.REPORTED, charged(100, 20))


def test_an_error_after_the_final_counters_stays_the_outcome_and_the_counters_stay_the_charge() -> None:
    failed = reported(completed=False, error_class=ErrorClass.MID_STREAM_ERROR)
    for ending in (ENDED, LEFT, DEADLINE):
        assert brief(settle_terms(failed, ending, stream=True, held=HELD)) == (Outcome.ENGINE_ERROR, Source.REPORTED, charged(100, 20))


def test_a_call_that_does_not_stream_and_was_drained_is_settled_as_reported() -> None:
    drained = Ending(how=How.CLIENT_LEFT, drained=True)
    assert brief(settle_terms(reported(), drained, stream=False, held=HELD)) == (Outcome.CLIENT_CANCELLED, Source.REPORTED, charged(100, 20))


# Row: cut short after its first content, incomplete, or content without counters


@pytest.mark.parametrize(
    ("ending", "outcome"), [(LEFT, Outcome.CLIENT_CANCELLED), (DEADLINE, Outcome.DEADLINE_CUT), (DIED, Outcome.ENGINE_DIED), (ENDED, Outcome.ENGINE_DIED)]
)
def test_content_without_counters_is_counted(ending: Ending, outcome: Outcome) -> None:
    terms = settle_terms(HALFWAY, ending, stream=True, held=HELD, own=OWN)
    assert brief(terms) == (outcome, Source.COUNTED, charged(100, 12))
    assert terms.counted_by == "engine"
    assert terms.usage == Usage(input_tokens=100, output_tokens=12, tool_calls=0)


def test_the_larger_of_running_total_and_own_count_stands_and_the_source_names_it() -> None:
    running = reading(
        usage=Usage(input_tokens=90, output_tokens=30), source=MeterSource.ESTIMATED, error_class=ErrorClass.TRUNCATED, content_seen=True, running_output=30
    )
    terms = settle_terms(running, DIED, stream=True, held=HELD, own=OWN)
    assert (terms.source, terms.charge, terms.counted_by) == (Source.RUNNING, charged(90, 30), "")
    larger = settle_terms(running, DIED, stream=True, held=HELD, own=OwnCount(output_tokens=31, counted_by="tiktoken:o200k_base"))
    assert (larger.source, larger.charge, larger.counted_by) == (Source.COUNTED, charged(90, 31), "tiktoken:o200k_base")


def test_a_prompt_that_was_only_bounded_stays_unknown_and_is_charged_as_reserved() -> None:
    terms = settle_terms(HALFWAY, DIED, stream=True, held=BOUND, own=OWN)
    assert terms.usage.input_tokens is None
    assert terms.charge == charged(100, 12)


def test_a_stream_that_the_client_left_is_charged_whole_where_the_policy_says_so_and_only_then() -> None:
    terms = settle_terms(HALFWAY, LEFT, stream=True, held=HELD, own=OWN, rules=RESERVED)
    assert (terms.charge, terms.usage.output_tokens) == (WHOLE, 12)
    for ending in (DEADLINE, DIED):
        assert settle_terms(HALFWAY, ending, stream=True, held=HELD, own=OWN, rules=RESERVED).charge == charged(100, 12)


def test_a_whole_body_without_counters_is_counted() -> None:
    whole = reading(completed=True, finish_reason="stop", content_seen=True)
    assert brief(settle_terms(whole, ENDED, stream=False, held=HELD, own=OWN)) == (Outcome.COMPLETED, Source.COUNTED, charged(100, 12))


def test_content_that_nobody_could_count_is_charged_whole() -> None:
    assert brief(settle_terms(HALFWAY, DIED, stream=True, held=HELD)) == (Outcome.ENGINE_DIED, Source.UNKNOWN, WHOLE)


# Row: the engine failed before its first content


@pytest.mark.parametrize(
    ("failed", "ending", "outcome"),
    [
        (reading(status=500, error_class=ErrorClass.SERVER_ERROR), ENDED, Outcome.ENGINE_ERROR),
        (reading(status=502, error_class=ErrorClass.SERVER_ERROR, anomalies=("bad_json_body",)), ENDED, Outcome.ENGINE_ERROR),
        (reading(error_class=ErrorClass.ERROR_IN_200), ENDED, Outcome.ENGINE_ERROR),
        (reading(error_class=ErrorClass.MID_STREAM_ERROR), ENDED, Outcome.ENGINE_ERROR),
        (BROKEN, ENDED, Outcome.ENGINE_DIED),
        (reading(error_class=ErrorClass.EMPTY_STREAM), ENDED, Outcome.ENGINE_DIED),
        (BROKEN, DIED, Outcome.ENGINE_DIED),
        (reading(status=0, error_class=ErrorClass.EMPTY_STREAM), Ending(how=How.FAILED, failure="closed"), Outcome.ENGINE_CLOSED),
        (reading(status=0, error_class=ErrorClass.EMPTY_STREAM), Ending(how=How.FAILED, failure="timeout"), Outcome.ENGINE_TIMEOUT),
    ],
)
def test_what_the_engine_caused_before_its_first_content_costs_the_prompt_or_what_the_policy_says(failed: Reading, ending: Ending, outcome: Outcome) -> None:
    charges = {"prompt": PROMPT, "reserved": WHOLE, "nothing": charged(0, 0)}
    for rule in get_args(Literal["prompt", "reserved", "nothing"]):
        for stream in (True, False):
            terms = settle_terms(failed, ending, stream=stream, held=HELD, rules=ChargeRules(engine_errors=rule))
            assert brief(terms) == (outcome, Source.UNKNOWN, charges[rule])
            assert terms.usage == Usage(input_tokens=100, tool_calls=0)
    assert settle_terms(failed, ending, stream=True, held=BOUND).usage == Usage(tool_calls=0)


# Row: the client left a stream, or we cut it, before its first content


def test_a_stream_that_ended_on_our_side_before_its_first_content_costs_the_prompt() -> None:
    assert brief(settle_terms(BROKEN, LEFT, stream=True, held=HELD)) == (Outcome.CLIENT_CANCELLED, Source.UNKNOWN, PROMPT)
    assert brief(settle_terms(BROKEN, DEADLINE, stream=True, held=HELD)) == (Outcome.DEADLINE_CUT, Source.UNKNOWN, PROMPT)
    nothing = ChargeRules(engine_errors="nothing")
    assert settle_terms(BROKEN, LEFT, stream=True, held=HELD, rules=nothing).charge == PROMPT


def test_where_the_client_left_before_the_first_content_the_policy_may_charge_the_reservation() -> None:
    assert settle_terms(BROKEN, LEFT, stream=True, held=HELD, rules=RESERVED).charge == WHOLE
    assert settle_terms(BROKEN, DEADLINE, stream=True, held=HELD, rules=RESERVED).charge == PROMPT


# Row: lost sight of


@pytest.mark.parametrize(("ending", "outcome"), [(LEFT, Outcome.CLIENT_CANCELLED), (DEADLINE, Outcome.DEADLINE_CUT)])
def test_a_call_that_does_not_stream_and_was_not_drained_costs_the_whole_reservation(ending: Ending, outcome: Outcome) -> None:
    terms = settle_terms(reading(error_class=ErrorClass.EMPTY_STREAM), ending, stream=False, held=HELD)
    assert (brief(terms), terms.usage) == ((outcome, Source.UNKNOWN, WHOLE), Usage())


def test_an_error_status_that_was_seen_before_the_client_left_costs_the_prompt() -> None:
    seen = reading(status=500, error_class=ErrorClass.SERVER_ERROR)
    assert brief(settle_terms(seen, LEFT, stream=False, held=HELD)) == (Outcome.ENGINE_ERROR, Source.UNKNOWN, PROMPT)


@pytest.mark.parametrize("anomaly", ["bad_json_body", "body_too_large"])
def test_a_whole_answer_that_could_not_be_read_costs_the_whole_reservation(anomaly: str) -> None:
    unreadable = reading(error_class=ErrorClass.TRUNCATED, anomalies=(anomaly,))
    assert brief(settle_terms(unreadable, ENDED, stream=False, held=HELD)) == (Outcome.ENGINE_ERROR, Source.UNKNOWN, WHOLE)
    assert brief(settle_terms(unreadable, DIED, stream=False, held=HELD)) == (Outcome.ENGINE_DIED, Source.UNKNOWN, PROMPT)


# Outcomes and flags


@pytest.mark.parametrize(("reason", "output", "outcome"), [("length", 20, Outcome.LENGTH), ("stop", 50, Outcome.LENGTH), ("stop", 49, Outcome.COMPLETED)])
def test_length_is_what_the_engine_says_or_what_its_counters_say(reason: str, output: int, outcome: Outcome) -> None:
    said = reported(Usage(input_tokens=100, output_tokens=output), finish_reason=reason, finish_reasons=(reason,))
    assert settle_terms(said, ENDED, stream=True, held=HELD).outcome is outcome


def test_a_cut_at_the_cap_goes_before_length() -> None:
    past = reading(content_seen=True, error_class=ErrorClass.TRUNCATED, running_output=51, finish_reason="length")
    terms = settle_terms(past, Ending(how=How.CUT, cut=Outcome.CAP_CUT), stream=True, held=HELD)
    assert brief(terms) == (Outcome.CAP_CUT, Source.RUNNING, charged(100, 51))
    assert terms.flags == ("overshoot", "cap_ignored")


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_engine_that_ends_by_saying_that_it_failed_did_not_complete(reason: str) -> None:
    assert settle_terms(reported(finish_reason=reason), ENDED, stream=True, held=HELD).outcome is Outcome.ENGINE_ERROR


def test_a_charge_above_the_reservation_is_an_overshoot() -> None:
    over = settle_terms(reported(Usage(input_tokens=101, output_tokens=20, tool_calls=0)), ENDED, stream=True, held=BOUND)
    assert over.flags == ("overshoot",)
    ignored = settle_terms(reported(Usage(input_tokens=100, output_tokens=51, tool_calls=0)), ENDED, stream=False, held=HELD)
    assert (ignored.flags, ignored.outcome) == (("overshoot", "cap_ignored"), Outcome.LENGTH)


def test_a_report_that_differs_from_an_exact_count_has_drifted() -> None:
    assert settle_terms(reported(Usage(input_tokens=99, output_tokens=1, tool_calls=0)), ENDED, stream=True, held=HELD).flags == ("count_drift",)
    assert settle_terms(reported(Usage(input_tokens=99, output_tokens=1, tool_calls=0)), ENDED, stream=True, held=BOUND).flags == ()


def test_a_part_larger_than_its_whole_is_clamped_and_flagged() -> None:
    terms = settle_terms(
        reported(Usage(input_tokens=100, output_tokens=20, cached_tokens=120, reasoning_tokens=21, tool_calls=0)), ENDED, stream=True, held=HELD
    )
    assert (terms.usage.cached_tokens, terms.usage.reasoning_tokens) == (100, 20)
    assert terms.flags == ("clamped_part",)
    assert settle_terms(reported(anomalies=("cached_exceeds_input",)), ENDED, stream=True, held=HELD).flags == ("clamped_part",)


# Tool calls: what was delivered of them


def test_tool_calls_are_charged_as_they_were_delivered_whatever_the_source() -> None:
    called = replace(FULL, tool_calls=3)
    assert settle_terms(reported(called), ENDED, stream=True, held=HELD).charge.tool_calls == 3
    for ending in (LEFT, DEADLINE, DIED):
        cut = reading(usage=Usage(tool_calls=2), content_seen=True, error_class=ErrorClass.TRUNCATED)
        for rules in (ChargeRules(), RESERVED):
            terms = settle_terms(cut, ending, stream=True, held=HELD, own=OWN, rules=rules)
            assert (terms.usage.tool_calls, terms.charge.tool_calls) == (2, 2)
            assert "tool_calls_unknown" not in terms.flags


def test_a_call_of_which_nothing_was_delivered_called_no_tool() -> None:
    silent = reading(usage=Usage(), error_class=ErrorClass.EMPTY_STREAM)
    for ending in (LEFT, DEADLINE, DIED):
        terms = settle_terms(silent, ending, stream=True, held=HELD)
        assert (terms.usage.tool_calls, terms.charge.tool_calls, terms.flags) == (0, 0, ())


def test_tool_calls_that_nobody_saw_are_unknown_charged_as_none_and_flagged() -> None:
    unread = settle_terms(reading(anomalies=("bad_json_body",), completed=True), ENDED, stream=False, held=HELD)
    abandoned = settle_terms(reading(), LEFT, stream=False, held=HELD)
    for terms in (unread, abandoned, settle_terms(reported(replace(FULL, tool_calls=None)), ENDED, stream=True, held=HELD)):
        assert (terms.usage.tool_calls, terms.charge.tool_calls, terms.flags) == (None, 0, ("tool_calls_unknown",))


IMPOSSIBLE = [replace(FULL, input_tokens=-1), replace(FULL, cached_tokens=-1), replace(FULL, input_tokens=4_097), replace(FULL, output_tokens=4_097)]


@pytest.mark.parametrize("usage", IMPOSSIBLE)
def test_a_report_that_cannot_be_is_as_if_it_were_missing(usage: Usage) -> None:
    terms = settle_terms(reported(usage), ENDED, stream=True, held=HELD, own=OWN)
    assert (terms.source, terms.charge) == (Source.COUNTED, charged(100, 12))
    assert "report_discredited" in terms.flags
    assert needs_own_count(reported(usage), HELD)
    assert not needs_own_count(reported(), HELD)


NUMBERS = st.none() | st.integers(-5, 6_000)
CALLED = st.none() | st.integers(-1, 4)
USAGES = st.builds(
    Usage,
    input_tokens=NUMBERS,
    output_tokens=NUMBERS,
    cached_tokens=NUMBERS,
    cache_write_tokens=NUMBERS,
    reasoning_tokens=NUMBERS,
    tool_calls=CALLED,
)
READINGS = st.builds(
    Reading,
    usage=USAGES,
    source=st.sampled_from(MeterSource),
    status=st.sampled_from([0, 200, 302, 400, 429, 500, 503]),
    completed=st.booleans(),
    error_class=st.none() | st.sampled_from(ErrorClass),
    error_code=st.sampled_from([None, 400, 500, 503]),
    error_first=st.booleans(),
    finish_reason=st.sampled_from([None, "stop", "length", "error"]),
    content_seen=st.booleans(),
    running_output=NUMBERS,
    anomalies=st.sampled_from([(), ("bad_json_body",), ("reader_choked_ValueError",)]),
)
ENDINGS = st.sampled_from([ENDED, LEFT, DEADLINE, DIED, Ending(how=How.CLIENT_LEFT, drained=True), Ending(how=How.CUT, cut=Outcome.CAP_CUT)])
RULES = st.builds(ChargeRules, cut_streams=st.sampled_from(["known", "reserved"]), engine_errors=st.sampled_from(["prompt", "reserved", "nothing"]))


@given(READINGS, ENDINGS, st.booleans(), st.sampled_from([HELD, BOUND]), st.sampled_from([None, OWN]), RULES)
def test_whatever_was_read_a_charge_is_known_and_a_usage_is_never_a_guess(
    seen: Reading, ending: Ending, stream: bool, held: Held, own: OwnCount | None, rules: ChargeRules
) -> None:
    terms = settle_terms(seen, ending, stream=stream, held=held, own=own, rules=rules)
    usage = terms.usage
    assert terms.charge.requests == 1
    assert terms.charge.concurrent == 0
    assert min(terms.charge.input_tokens, terms.charge.output_tokens) >= 0
    for part, whole in ((usage.cached_tokens, usage.input_tokens), (usage.reasoning_tokens, usage.output_tokens)):
        assert part is None or part >= 0
        assert part is None or whole is None or part <= whole
    match terms.source:
        case Source.NONE:
            assert (usage, terms.charge) == (NO_USAGE, charged(0, 0))
        case Source.REPORTED:
            assert charged(usage.input_tokens or 0, usage.output_tokens or 0) == replace(terms.charge, tool_calls=0)
        case Source.UNKNOWN:
            assert usage.output_tokens is None
            assert usage.input_tokens in (None, held.prompt_tokens)
        case Source.RUNNING | Source.COUNTED:
            assert usage.output_tokens is not None
            assert terms.charge.output_tokens >= usage.output_tokens
    assert terms.charge.tool_calls == (usage.tool_calls or 0) >= 0
    assert ("tool_calls_unknown" in terms.flags) == (usage.tool_calls is None)
    within = terms.charge.input_tokens <= held.prompt_tokens and terms.charge.output_tokens <= held.ceiling
    assert ("overshoot" in terms.flags) == (not within)
    assert (terms.outcome is Outcome.ENGINE_REFUSED) == (terms.source is Source.NONE)


# Calls that generate nothing, and calls with several prompts


INPUT_ONLY = Held(prompt_tokens=300, prompt_exact=False, ceiling=0, context_tokens=128, prompts=3)


def test_a_call_that_generates_nothing_never_reaches_a_ceiling() -> None:
    terms = settle_terms(reported(Usage(input_tokens=250, output_tokens=0, tool_calls=0), finish_reason=None), ENDED, stream=False, held=INPUT_ONLY)
    assert brief(terms) == (Outcome.COMPLETED, Source.REPORTED, charged(250, 0))
    assert terms.flags == ()


def test_an_embedding_without_usage_is_its_counted_prompt_and_no_output() -> None:
    told_nothing = reading(usage=Usage(output_tokens=0, tool_calls=0), completed=True)
    assert not needs_own_count(told_nothing, INPUT_ONLY)
    terms = settle_terms(told_nothing, ENDED, stream=False, held=replace(INPUT_ONLY, prompt_tokens=240, prompt_exact=True))
    assert (brief(terms), terms.usage.input_tokens, terms.usage.output_tokens) == ((Outcome.COMPLETED, Source.COUNTED, charged(240, 0)), 240, 0)
    bound = settle_terms(told_nothing, ENDED, stream=False, held=INPUT_ONLY)
    assert (bound.charge, bound.usage.input_tokens) == (charged(300, 0), None)


def test_each_of_several_prompts_has_a_context_of_its_own() -> None:
    used = Usage(input_tokens=384, output_tokens=0, tool_calls=0)
    assert settle_terms(reported(used), ENDED, stream=False, held=INPUT_ONLY).source is Source.REPORTED
    too_much = settle_terms(reported(replace(used, input_tokens=385)), ENDED, stream=False, held=INPUT_ONLY)
    assert "report_discredited" in too_much.flags


def test_an_input_that_is_the_first_prompts_alone_is_no_input() -> None:
    first = reading(usage=Usage(input_tokens=2, output_tokens=4, tool_calls=0), source=MeterSource.ESTIMATED, completed=True, content_seen=True,
                    running_output=4, anomalies=("usage_first_prompt_only",))  # fmt: skip
    held = Held(prompt_tokens=9, prompt_exact=True, ceiling=8, choices=2, prompts=2)
    terms = settle_terms(first, ENDED, stream=False, held=held, own=replace(OWN, output_tokens=7))
    assert (terms.usage.input_tokens, terms.charge, terms.source) == (9, charged(9, 7), Source.COUNTED)
    terms = settle_terms(first, ENDED, stream=False, held=replace(held, prompt_exact=False), own=replace(OWN, output_tokens=3))
    assert (terms.usage.input_tokens, terms.charge, terms.source) == (2, charged(9, 4), Source.RUNNING)


@pytest.mark.parametrize("word", ["length", "max_output_tokens", "max_tokens"])
def test_every_formats_word_for_the_ceiling_is_length(word: str) -> None:
    assert settle_terms(reported(finish_reason=word), ENDED, stream=True, held=HELD).outcome is Outcome.LENGTH
