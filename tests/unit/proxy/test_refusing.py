"""What agents are told: every code has its status and its words, and the words of a refusal that is no invitation to try again hold nothing to retry on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.limit import Shortfall
from gateway.accounting.usage import Outcome
from gateway.dialects import DIALECTS
from gateway.dialects.barred import GUARDED, THING_OF, key_of
from gateway.dialects.body_fields import invalid, not_allowed
from gateway.dialects.dialect import BodyError, ReplyKind, Wording
from gateway.dialects.retry_words import RETRY_WORDS, is_final_wording
from gateway.errors import EngineFailure
from gateway.proxy.body import BodyRefused
from gateway.proxy.refused import INTERNAL, limit_numbers
from gateway.proxy.refusing import (
    BAD_REQUEST,
    CUT_WORDS,
    ENGINE_DIED,
    ENGINE_ERROR,
    FINAL_WORDS,
    PASSING_WORDS,
    UNAUTHORIZED,
    UNAVAILABLE_WORDS,
    UNDECLARED,
    UPSTREAM_AUTH,
    cut_wording,
    engine_wording,
    guard_wording,
    refusal_wording,
    template_words,
)
from gateway.upstream.call import Refusal

CODES: dict[str, tuple[bool, int]] = {
    "run_budget_reached": (True, 404),
    "prompt_above_cap": (True, 404),
    "run_closed": (True, 404),
    "window_over": (True, 404),
    "preflight_required": (True, 404),
    "busy": (False, 429),
    "campaign_halted": (False, 429),
    "shutting_down": (False, 429),
    "ledger_unavailable": (False, 503),
    "clock": (False, 503),
    "engine_unavailable": (False, 503),
    "overloaded": (False, 503),
}
"""Code -> (final, status in the chat format)."""
SHORTFALL = Shortfall(name="run.requests", ceiling=7, settled=5, reserved=2, asked=1)


def told(wording: Wording, dialect: str = "openai.chat") -> tuple[int, dict[str, str], dict[str, Any]]:
    reply = DIALECTS[dialect].reply(wording)
    return reply.status, dict(reply.headers), json.loads(reply.body)["error"]


def words_of(body: bytes) -> set[str]:
    """Every text in a body, or in the events of a stream; numbers are of the form, not of what is said."""
    found: set[str] = set()
    left: list[object] = [json.loads(line.removeprefix(b"data:")) for line in body.splitlines() if b"{" in line]
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str):
            found.add(value)
    return found


def test_every_word_of_the_tables_is_a_code_that_has_a_status() -> None:
    assert {*FINAL_WORDS, *PASSING_WORDS, *UNAVAILABLE_WORDS} == set(CODES)
    assert {code for code, (final, _) in CODES.items() if final} == set(FINAL_WORDS)


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_has_the_status_and_headers_of_its_kind(code: str) -> None:
    final, status = CODES[code]
    got, headers, error = told(refusal_wording(Refusal(code=code, final=final)))
    assert (got, error["code"]) == (status, code)
    assert headers.get("x-should-retry") == ("false" if final else None)
    assert headers.get("retry-after") == ("2" if status == 429 else None)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [code for code, (final, _) in CODES.items() if final])
def test_no_final_refusal_holds_a_digit_or_a_word_to_retry_on(code: str, dialect: str) -> None:
    wording = refusal_wording(Refusal(code=code, final=True, shortfall=SHORTFALL))
    assert words_of(DIALECTS[dialect].reply(wording).body) >= {wording.message}
    for body in (DIALECTS[dialect].reply(wording).body, DIALECTS[dialect].error_event(wording)):
        assert all(map(is_final_wording, words_of(body))), words_of(body)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("outcome", CUT_WORDS)
def test_a_cut_has_the_words_of_a_final_refusal(outcome: Outcome, dialect: str) -> None:
    wording = cut_wording(outcome)
    assert wording.kind is ReplyKind.FINAL and wording.code in {*FINAL_WORDS, "shutting_down"}
    for body in (DIALECTS[dialect].reply(wording).body, DIALECTS[dialect].error_event(wording)):
        assert wording.message in words_of(body)
        assert all(map(is_final_wording, words_of(body))), words_of(body)


def test_an_unknown_final_code_is_told_as_a_used_up_budget() -> None:
    _, _, error = told(refusal_wording(Refusal(code="something_new", final=True)))
    assert error["message"] == FINAL_WORDS["run_budget_reached"]


@pytest.mark.parametrize("status", [400, 402, 404, 429])
@pytest.mark.parametrize("code", CODES)
def test_the_policys_status_is_that_of_final_refusals_and_of_no_other(code: str, status: int) -> None:
    final, own = CODES[code]
    got, headers, _ = told(refusal_wording(Refusal(code=code, final=final), status))
    assert got == (status if final else own)
    assert headers.get("x-should-retry") == ("false" if final else None)


GUARD_ERRORS: list[tuple[BodyError | BodyRefused, int]] = [
    *((not_allowed(name, THING_OF[name]), 400) for name in GUARDED),
    (invalid("messages", "a list of objects"), 400),
    (BodyError("model_not_found", "There is no such model here.", "model"), 404),
    (BodyRefused("body_too_large", "The body is larger than this gateway takes."), 400),
    (BodyRefused("body_invalid", "The body is not plain JSON: it is not valid Unicode."), 400),
]


@pytest.mark.parametrize(("error", "status"), GUARD_ERRORS, ids=lambda value: str(value)[:40])
def test_the_guard_refuses_for_good_and_names_the_field_and_the_policys_key(error: BodyError | BodyRefused, status: int) -> None:
    got, headers, body = told(guard_wording(error))
    assert (got, headers["x-should-retry"], body["code"]) == (status, "false", error.code)
    assert "retry-after" not in headers
    assert is_final_wording(body["message"]), body["message"]
    if isinstance(error, BodyError):
        assert body["param"] == (error.field_name or None)
        if error.code == "not_allowed":
            assert key_of(THING_OF[error.field_name]) in body["message"]


BAD_BODIES: list[dict[str, Any]] = [
    {},
    {"model": 1},
    {"model": "m"},
    {"model": "m", "messages": "x"},
    {"model": "m", "messages": []},
    {"model": "m", "messages": [1]},
    {"model": "m", "messages": [{"content": "x"}]},
    {"model": "m", "messages": [{"role": "user", "content": 1}]},
    {"model": "m", "messages": [{"role": "user", "content": [1]}]},
    {"model": "m", "messages": [{"role": "user", "content": [{"type": 1}]}]},
    {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1:80/busy"}}]}]},
    {"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "timeout-1"}}]}]},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": 1},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 0},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 1_000_000},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 1.5},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": -2},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": "100"},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "min_tokens": -1},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream_options": []},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": {}},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": 7}]},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "code_interpreter_429"}]},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
    {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {}}]},
    {"model": "m", "messages": [{"role": "user", "content": "x", "audio": {"id": "a1"}}]},
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: json.dumps(body)[-60:])
def test_no_format_puts_a_digit_or_what_the_agent_said_into_a_refusal_of_its_body(body: dict[str, Any]) -> None:
    with pytest.raises(BodyError) as caught:
        DIALECTS["openai.chat"].read_request(body)
    _, _, error = told(guard_wording(caught.value))
    assert is_final_wording(error["message"]), error["message"]


@pytest.mark.parametrize(
    ("wording", "status"),
    [(UNAUTHORIZED, 401), (UNDECLARED, 404), (BAD_REQUEST, 400)],
    ids=lambda value: getattr(value, "code", value),
)
def test_what_is_refused_before_there_is_a_call_is_refused_for_good(wording: Wording, status: int) -> None:
    got, headers, error = told(wording)
    assert (got, headers["x-should-retry"]) == (status, "false")
    assert is_final_wording(error["message"])


@pytest.mark.parametrize(
    ("failure", "code", "status"),
    [
        (EngineFailure("unreachable"), "engine_unreachable", 502),
        (EngineFailure("closed"), "engine_closed", 502),
        (EngineFailure("timeout", "first_byte"), "engine_timeout", 504),
        (EngineFailure("died"), "engine_died", 502),
        (EngineFailure("timeout", "connect", "http://10.0.0.1:8080 did not answer"), "engine_timeout", 504),
    ],
    ids=str,
)
def test_an_engine_that_fails_is_told_as_something_that_may_pass_without_its_details(failure: EngineFailure, code: str, status: int) -> None:
    got, headers, error = told(engine_wording(failure))
    assert (got, error["code"]) == (status, code)
    assert "x-should-retry" not in headers
    assert "10.0" not in error["message"]


@pytest.mark.parametrize(("wording", "status"), [(ENGINE_DIED, 502), (ENGINE_ERROR, 502), (UPSTREAM_AUTH, 502), (INTERNAL, 500)], ids=str)
def test_what_is_the_operators_to_mend_may_be_tried_again(wording: Wording, status: int) -> None:
    got, headers, _ = told(wording)
    assert got == status
    assert "x-should-retry" not in headers


def overflow(engine: str, *, tell: bool = True) -> dict[str, Any]:
    shortfall = Shortfall(name="context", ceiling=4096, settled=0, reserved=0, asked=5000)
    got, _, error = told(refusal_wording(Refusal(code="context_overflow", final=True, shortfall=shortfall, engine=engine), tell=tell))
    assert got == 400
    return error


def test_an_overflow_has_the_form_of_its_engine_with_both_numbers() -> None:
    assert (overflow("llama.cpp")["type"], overflow("llama.cpp")["n_prompt_tokens"], overflow("llama.cpp")["n_ctx"]) == (
        "exceed_context_size_error",
        5000,
        4096,
    )
    other = overflow("generic")
    assert other["code"] == "context_length_exceeded"
    assert "4096" in other["message"] and "5000" in other["message"]


@pytest.mark.parametrize("engine", ["", "llama.cpp", "generic"])
def test_an_overflow_without_numbers_where_agents_may_not_see_them(engine: str) -> None:
    text = json.dumps(overflow(engine, tell=False))
    assert "4096" not in text and "5000" not in text


def test_the_numbers_of_a_shortfall_are_headers() -> None:
    assert limit_numbers(SHORTFALL) == {"x-gateway-ceiling": "7", "x-gateway-settled": "5", "x-gateway-reserved": "2", "x-gateway-asked": "1"}
    later = Shortfall(name="run.day.requests", ceiling=7, settled=7, reserved=0, asked=1, resets_at_ms=1_767_225_600_000)
    assert limit_numbers(later)["x-gateway-resets-at"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("word", [*RETRY_WORDS, *(word.upper() for word in RETRY_WORDS), "7", "٣"])
def test_each_retry_word_and_digit_is_found_anywhere(word: str) -> None:
    assert not is_final_wording(f"Run{word}over")


@given(
    st.text(max_size=300) | st.sampled_from(["Please try again", "role must alternate", "at /srv/model/template.jinja", "see http://10.0.0.1:8080/x", "line 7"])
)
@settings(max_examples=150, deadline=None)
def test_a_templates_own_reason_is_told_only_where_it_is_clean_and_final(reason: str) -> None:
    words = template_words(reason)
    assert words.startswith("The model's template can't render this conversation")
    assert is_final_wording(words)
    assert "/srv" not in words and "10.0" not in words


def test_a_templates_reason_helps_to_mend_the_conversation() -> None:
    assert template_words("roles must alternate").endswith(": roles must alternate")
