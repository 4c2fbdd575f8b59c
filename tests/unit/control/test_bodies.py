from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.accounting.commands import Results
from gateway.control.bodies import CloseRunBody, OpenRunBody


def test_results_that_say_nothing_are_no_results() -> None:
    assert CloseRunBody.model_validate_json(b"{}").results.results() is None
    assert CloseRunBody.model_validate_json(b'{"results": {"exit": null, "outcomes": {}}}').results.results() is None


def test_an_exit_of_0_is_said_and_not_unknown() -> None:
    assert CloseRunBody.model_validate_json(b'{"results": {"exit": 0}}').results.results() == Results(exit=0)


def test_results_are_what_a_driver_declares_with_named_outcomes_in_order() -> None:
    body = CloseRunBody.model_validate_json(b'{"results": {"turn_end": "budget", "judge": "error", "outcomes": {"b": "2", "a": "1"}}}')
    assert body.results.results() == Results(turn_end="budget", judge="error", outcomes=(("a", "1"), ("b", "2")))


@pytest.mark.parametrize(
    "body",
    [
        b'{"results": {"turn_end": "done"}}',
        b'{"results": {"exit": "0"}}',
        b'{"results": {"exit": true}}',
        b'{"results": {"exit": 2147483648}}',
        b'{"results": {"outcomes": {"": "x"}}}',
        b'{"results": {"outcomes": {"score": 3}}}',
        b'{"drain_seconds": 1.5}',
        b'{"drain_seconds": 86401}',
        b'{"drain": 3}',
    ],
)
def test_nothing_is_coerced_and_nothing_undeclared_is_let_through(body: bytes) -> None:
    with pytest.raises(ValidationError):
        CloseRunBody.model_validate_json(body)


@pytest.mark.parametrize("body", [b'{"lanes": "foreground"}', b'{"lanes": null}', b'{"run": 3}', b'{"labels": "x"}', b'{"task": "' + b"x" * 201 + b'"}'])
def test_an_opening_says_only_what_it_may(body: bytes) -> None:
    with pytest.raises(ValidationError):
        OpenRunBody.model_validate_json(body)
