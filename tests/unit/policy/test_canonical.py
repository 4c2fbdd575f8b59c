from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ConfigurationError
from gateway.policy import Policy, canonical, canonical_json, parse_canonical, policy_from_text, policy_hash
from gateway.policy.reserved import may_name_a_lane

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
LANES = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True).filter(may_name_a_lane)
QUANTITIES = ("requests", "input_tokens", "output_tokens", "total_tokens", "tool_calls")
AMOUNTS = st.integers(0, 2**53 - 1)
DAY = st.fixed_dictionaries({}, optional=dict.fromkeys(QUANTITIES, AMOUNTS))
PART = st.fixed_dictionaries({}, optional={**dict.fromkeys(QUANTITIES, AMOUNTS), "concurrent": AMOUNTS, "day": DAY})
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False)
FIELDS = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.floats(-(2.0**53) + 1, 2.0**53 - 1), NAMES),
    lambda below: st.one_of(st.lists(below, max_size=2), st.dictionaries(NAMES, below, max_size=2)),
    max_leaves=5,
)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Policies as parsed TOML: only the shape matters here, not whether a cap can bind."""
    models = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    lanes = draw(st.lists(LANES, max_size=2, unique=True))
    by_model = st.dictionaries(st.sampled_from(models), PART, max_size=2)
    lane = st.builds(lambda part, model: {**part, "model": model}, PART, by_model)

    def scope() -> dict[str, Any]:
        return {**draw(PART), "model": draw(by_model), **{name: draw(lane) for name in lanes if draw(st.booleans())}}

    return {
        "apis": draw(st.permutations(["openai.chat", "openai.models"])),
        "timezone": "Europe/Berlin",
        "models": {name: draw(st.sampled_from([{}, {"counter": "bytes"}, {"default_output_tokens": 5}])) for name in models},
        "lanes": {name: {"models": draw(st.lists(st.sampled_from(models), max_size=2))} for name in lanes},
        "run": {**scope(), "wall_seconds": draw(st.integers(1, 9)), "wall_from": draw(st.sampled_from(["first_call", "opening"]))},
        "campaign": {**scope(), "span_seconds": 9},
        "call": {"context_tokens": draw(st.integers(1, 9))},
        "agent": {"warn_at": draw(st.floats(0, 1))},
    }


def shuffled(value: Any, draw: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw.draw(st.permutations(list(value)))}
    return value


@given(policies(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_hash_does_not_depend_on_the_order_of_keys(raw: dict[str, Any], data: st.DataObject) -> None:
    assert policy_hash(Policy.model_validate(shuffled(raw, data))) == policy_hash(Policy.model_validate(raw))


@given(policies())
@settings(max_examples=60, deadline=None)
def test_the_canonical_form_gives_back_the_policy(raw: dict[str, Any]) -> None:
    policy = Policy.model_validate(raw)
    again = parse_canonical(canonical(policy))
    assert again == policy
    assert again.declared == policy.declared
    assert canonical(again) == canonical(policy)


@given(policies())
@settings(max_examples=60, deadline=None)
def test_the_canonical_form_is_rfc_8785(raw: dict[str, Any]) -> None:
    text = canonical(Policy.model_validate(raw))
    assert text.encode() == rfc8785.dumps(json.loads(text))


@given(st.dictionaries(NAMES, FIELDS, max_size=2))
@settings(max_examples=60, deadline=None)
def test_the_fields_of_a_body_come_back_from_the_canonical_form(fields: dict[str, Any]) -> None:
    policy = Policy.model_validate({"apis": ["openai.chat"], "models": {"m": {}}, "body": {"force": fields}})
    text = canonical(policy)
    assert text.encode() == rfc8785.dumps(json.loads(text))
    assert parse_canonical(text).body.force == fields
    assert canonical(parse_canonical(text)) == text


@given(FRACTIONS)
@settings(max_examples=200, deadline=None)
def test_a_number_is_written_as_rfc_8785_wants_it(value: float) -> None:
    assert canonical_json({"x": value}).encode() == rfc8785.dumps({"x": value})


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1e20, 1e21, 1.5e21, 1e-6, 1e-7, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 333333333.3333333, 2.0**53])
def test_a_number_at_an_edge_too(value: float) -> None:
    assert canonical_json({"x": value}).encode() == rfc8785.dumps({"x": value})


def test_keys_are_ordered_by_utf_16() -> None:
    assert canonical_json({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'


SMALLEST = 'apis = ["openai.chat"]\n[models.m]\n'


def test_a_comment_or_a_blank_does_not_change_the_hash() -> None:
    assert policy_from_text(SMALLEST, "a.toml").hash == policy_from_text("# hello\n\n" + SMALLEST.replace("=", "  = "), "b.toml").hash


def test_every_default_is_filled_in_and_the_schema_number_stands() -> None:
    form = json.loads(policy_from_text(SMALLEST, "a.toml").canonical)
    assert form["schema"] == 1
    assert form["admission"] == {
        "over": "clamp",
        "min_output_tokens": 1024,
        "enough_output_tokens": 4096,
        "clamp_after_seconds": 10,
        "queue_seconds": 120,
        "over_prompt": "stop",
    }
    assert form["charging"] == {"cut_streams": "known", "engine_errors": "prompt"}
    assert form["models"] == {"m": {"counter": "engine"}}
    assert form["agent"] == {"tell_agent": True, "refusal_status": {}, "warn_at": 0.9, "require_preflight": False, "utility_calls": 10_000}
    assert form["body"] == {"force": {}, "default": {}, "forbid": []}
    assert (form["run"]["wall_from"], form["run"]["require_room"]) == ("first_call", "refuse")


def test_writing_a_default_out_does_not_change_the_hash() -> None:
    written = SMALLEST + '[admission]\nover = "clamp"\nqueue_seconds = 120\n[charging]\ncut_streams = "known"\n'
    assert policy_from_text(written, "b.toml").hash == policy_from_text(SMALLEST, "a.toml").hash


@pytest.mark.parametrize(
    "change",
    [
        "[run]\nrequests = 1\n",
        "[admission]\nmin_output_tokens = 1025\n",
        '[charging]\ncut_streams = "reserved"\n',
        "[agent]\ntell_agent = false\n",
        "[agent]\nwarn_at = 0.5\n",
        "[agent]\nrequire_preflight = true\n",
        '[run]\nwall_from = "opening"\n',
        '[run]\nrequire_room = "off"\n',
        "[run]\nattempts_per_task = 1\n",
        "[run]\nwall_seconds = 1\n",
        "[run]\ntool_calls = 1\n",
        "[call]\ncontext_tokens = 1\n",
        "[campaign]\nspan_seconds = 1\n",
        "[body.force]\ntop_p = 0.5\n",
        "[body.default]\ntop_p = 0.5\n",
        '[body]\nforbid = ["top_p"]\n',
        "[lanes.foreground]\n",
    ],
)
def test_every_change_of_meaning_changes_the_hash(change: str) -> None:
    assert policy_from_text(SMALLEST + change, "b.toml").hash != policy_from_text(SMALLEST, "a.toml").hash


def test_a_canonical_form_of_another_schema_is_not_served() -> None:
    with pytest.raises(ConfigurationError, match="schema 2"):
        parse_canonical('{"schema":2}')


def test_the_order_of_apis_and_of_a_lane_s_models_has_no_meaning() -> None:
    text = 'apis = ["openai.chat", "openai.models"]\n[models]\na = {}\nb = {}\n[lanes.background]\nmodels = ["a", "b"]\n'
    other = text.replace('"openai.chat", "openai.models"', '"openai.models", "openai.chat", "openai.chat"').replace('"a", "b"', '"b", "a"')
    assert policy_from_text(other, "b.toml").hash == policy_from_text(text, "a.toml").hash
