"""The mock engine's scripts: what they say is what is played, and a slip of the pen is an error."""

from __future__ import annotations

import pytest

from gateway.errors import ConfigurationError
from gateway.mock_engine import Die, Playbook, Script, UsageForm
from gateway.mock_engine.script import parse_playbook, parse_script


def test_a_script_is_read_from_json() -> None:
    script = parse_script({"output_tokens": 7, "gap_ms": 2, "usage": "cumulative", "die": "reset", "die_after": 3, "tool_calls": 2, "ignore_cap": True})
    assert script.output_tokens == 7 and script.gap_ms == 2 and script.ignore_cap
    assert script.usage is UsageForm.CUMULATIVE and script.die is Die.RESET
    assert [call.name for call in script.tool_calls] == ["tool_1", "tool_2"]


def test_raw_bytes_are_text_or_base64() -> None:
    assert parse_script({"raw": ["ab\n", {"base64": "/w=="}]}).raw == (b"ab\n", b"\xff")


def test_an_error_status_may_be_a_number() -> None:
    assert parse_script({"die": 503}).die is Die.STATUS_503


@pytest.mark.parametrize(
    "wrong",
    [{"outputtokens": 1}, {"output_tokens": "1"}, {"output_tokens": -1}, {"gap_ms": 1.5}, {"usage": "often"}, {"die": "slowly"}, {"gzip": 1}, [1], "x"],
    ids=str,
)
def test_an_unknown_field_or_a_wrong_type_is_an_error(wrong: object) -> None:
    with pytest.raises(ConfigurationError):
        parse_script(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": [1]}, {"models": {"a": 5}}, {"models": {"a": [5]}}, {"list": {}}, {"list": [1]}, {"served": "m"}, {"default": []}, {"slots": "2"},
        {"headers": 5}, {"tool_calls": [{"nam": "x"}]}, {"tool_calls": ["x"]}, {"tool_calls": {}}, {"tool_calls": -1}, {"raw": [{"x": 1}]}, {"raw": 5},
        {"raw": [5]}, {"raw": [{"base64": "?"}]}, "x", 5, None,
    ],
    ids=str,
)  # fmt: skip
def test_a_playbook_of_another_shape_is_an_error_and_no_crash(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="mock engine script"):
        parse_playbook(wrong)


def test_a_bare_script_is_the_default_of_all_calls() -> None:
    playbook = parse_playbook({"output_tokens": 3, "slots": 2})
    assert playbook.slots == 2
    assert [playbook.next_script("any").output_tokens for _ in range(2)] == [3, 3]


def test_a_list_is_used_up_in_order_and_then_the_default_holds() -> None:
    playbook = parse_playbook([{"output_tokens": 1}, {"output_tokens": 2}])
    assert [playbook.next_script("any").output_tokens for _ in range(3)] == [1, 2, None]


def test_a_models_own_scripts_come_first() -> None:
    playbook = parse_playbook(
        {"default": {"output_tokens": 9}, "models": {"a": {"output_tokens": 1}, "b": [{"output_tokens": 2}]}, "list": [{"output_tokens": 5}]}
    )
    assert playbook.next_script("b").output_tokens == 2
    assert playbook.next_script("b").output_tokens == 5
    assert playbook.next_script("a").output_tokens == 1
    assert playbook.next_script("b").output_tokens == 9


def test_script_fields_beside_a_default_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="gap_ms"):
        parse_playbook({"default": {}, "gap_ms": 1})


def test_an_empty_playbook_answers_by_the_plainest_script() -> None:
    assert Playbook().next_script("any") == Script()
