from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

from gateway.accounting.limit import Shortfall
from gateway.control import bodies, notes
from gateway.control.bodies import Body, OpenCampaignBody
from gateway.control.problems import STATUS, problem_of
from gateway.errors import ClockUncertain, CommandRejected, ConfigurationError, LedgerCorrupt, LedgerLocked, LedgerUnavailable, MixedLabels, NotFound
from gateway.runs.declined import Declined


def bad_body() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        OpenCampaignBody.model_validate_json(b'{"campaign": "pilot", "polici": "small"}')
    return caught.value


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Declined("p.", "c.", "m."), 409, "conflict"),
        (Declined("p.", "c.", "m.", code="not_found"), 404, "not_found"),
        (Declined("p.", "c.", "m.", code="invalid"), 400, "invalid"),
        (ConfigurationError("small.toml:3: no such key"), 400, "invalid"),
        (NotFound("no receipt of pilot/r1"), 404, "not_found"),
        (MixedLabels("run r1 covers two labels"), 400, "mixed_labels"),
        (CommandRejected("run pilot/r1 is open"), 409, "conflict"),
        (LedgerUnavailable("disk full"), 503, "ledger_unavailable"),
        (LedgerLocked("pid 7"), 503, "ledger_unavailable"),
        (ClockUncertain("behind"), 503, "clock"),
        (LedgerCorrupt("entry 7"), 500, "ledger_corrupt"),
        (RuntimeError("a secret inside"), 500, "internal"),
    ],
)
def test_each_error_has_its_status_its_code_and_three_parts(error: Exception, status: int, code: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert problem.problem and problem.cause and problem.mend
    assert "secret" not in problem.problem + problem.cause + problem.mend


def test_every_code_of_a_declined_request_has_a_status() -> None:
    assert set(STATUS) == {"invalid", "not_found", "conflict", "run_budget_reached", "window_over"}


def test_a_body_that_cant_be_read_names_each_field() -> None:
    problem = problem_of(bad_body())
    assert problem.status == 400
    assert "policy: " in problem.cause
    assert "polici: " in problem.cause


BODIES = [each for room in (bodies, notes) for each in vars(room).values() if isinstance(each, type) and issubclass(each, Body) and each is not Body]
KINDS: list[object] = [5, -5, 1.5, True, None, "", "x" * 300, [], [1], {}, {"a": 1}, {"": "x"}, 10**20, ["a"] * 100]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_a_body_says_wrongly_is_told_in_our_words_for_every_field_and_kind(body: type[Body]) -> None:
    said = [json.dumps({name: value}) for name in (*body.model_fields, "nope") for value in KINDS] + ["[]", "{", "5"]
    causes = []
    for text in said:
        try:
            body.model_validate_json(text)
        except ValidationError as error:
            causes.append(problem_of(error).cause)
    assert len(causes) > 10
    words = r"must be|must have|there is no such field|is no JSON"
    assert [cause for cause in causes if not all(re.search(rf": ({words})", part) for part in cause.split("; "))] == []


def test_a_limit_that_stood_in_the_way_is_told_with_its_numbers() -> None:
    shortfall = Shortfall(name="campaign.day.runs", ceiling=7, settled=6, reserved=1, asked=1, resets_at_ms=5, origin="small.toml:19")
    body = problem_of(Declined("p.", "c.", "m.", code="run_budget_reached", shortfall=shortfall)).response().body
    assert isinstance(body, bytes)
    error = json.loads(body)["error"]
    assert error["message"] == "p. c. m."
    assert error["limit"] == {
        "name": "campaign.day.runs",
        "ceiling": 7,
        "settled": 6,
        "reserved": 1,
        "asked": 1,
        "resets_at_ms": 5,
        "origin": "small.toml:19",
    }
