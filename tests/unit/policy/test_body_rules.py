from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.dialect import BodyError
from gateway.policy import policy_from_text
from gateway.policy.body_rules import CAP_FIELDS, CONVERSATION_FIELDS, BodyRules, apply

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=2))
FIELDS = st.recursive(SCALARS, lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=8)
BODIES = st.dictionaries(NAMES, FIELDS, max_size=3)
TOML = st.recursive(st.one_of(st.booleans(), st.integers(-3, 3), st.text(max_size=2)), lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=8)
TABLES = st.dictionaries(NAMES, TOML, max_size=3)


def leaves(value: object, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    if isinstance(value, Mapping) and value:
        return {path: leaf for name, below in value.items() for path, leaf in leaves(below, (*above, name)).items()}
    return {above: value}


def at(body: object, path: tuple[str, ...]) -> object:
    for part in path:
        body = body.get(part) if isinstance(body, Mapping) else None
    return body


@given(BODIES, TABLES, TABLES)
@settings(max_examples=80, deadline=None)
def test_what_is_forced_stands_in_every_body_and_the_rest_is_the_agent_s_before_the_default(
    body: dict[str, Any], force: dict[str, Any], default: dict[str, Any]
) -> None:
    before = repr(body), repr(force), repr(default)
    made = apply(body, BodyRules(force=force, default=default))
    for path, value in leaves(force).items():
        if path and value != {}:
            assert at(made, path) == value
    for path, value in leaves(body).items():
        if path and value is not None and value != {} and not any(at(force, path[:end]) is not None for end in range(1, len(path) + 1)):
            assert at(made, path) == value
    for path, value in leaves(default).items():
        if path and value != {} and not any(at(sent, path[:end]) is not None for sent in (body, force) for end in range(1, len(path) + 1)):
            assert at(made, path) == value
    assert (repr(body), repr(force), repr(default)) == before, "what came in stays as it was"


@given(BODIES)
def test_without_rules_a_body_is_the_same_object(body: dict[str, Any]) -> None:
    assert apply(body, BodyRules()) is body


def test_tables_are_merged_and_anything_else_is_replaced() -> None:
    rules = BodyRules(force={"chat_template_kwargs": {"enable_thinking": False}, "stop": ["x"]})
    made = apply({"chat_template_kwargs": {"enable_thinking": True, "other": 1}, "stop": ["a", "b"], "seed": 3}, rules)
    assert made == {"chat_template_kwargs": {"enable_thinking": False, "other": 1}, "stop": ["x"], "seed": 3}
    assert apply({"chat_template_kwargs": "none"}, rules)["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_null_counts_as_not_sent() -> None:
    assert apply({"top_p": None}, BodyRules(default={"top_p": 0.5})) == {"top_p": 0.5}
    assert apply({"seed": None}, BodyRules(forbid=("seed",))) == {"seed": None}


@pytest.mark.parametrize(
    ("body", "forbidden"),
    [
        ({"logit_bias": {}}, "logit_bias"),
        ({"logit_bias": 0}, "logit_bias"),
        ({"logit_bias": False}, "logit_bias"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking"),
    ],
)
def test_a_forbidden_field_is_refused_with_its_name_and_the_key_of_the_policy(body: dict[str, Any], forbidden: str) -> None:
    with pytest.raises(BodyError) as caught:
        apply(body, BodyRules(forbid=(forbidden,), force={"logit_bias": {}}))
    error = caught.value
    assert (error.code, error.field_name, error.allow_key) == ("not_allowed", forbidden, "body.forbid")
    assert forbidden in str(error) and "body.forbid" in str(error)


@pytest.mark.parametrize("body", [{}, {"chat_template_kwargs": {}}, {"chat_template_kwargs": {"other": 1}}, {"chat_template_kwargs": "enable_thinking"}])
def test_what_is_not_forbidden_passes(body: dict[str, Any]) -> None:
    assert apply(body, BodyRules(forbid=("logit_bias", "chat_template_kwargs.enable_thinking"))) is body


@pytest.mark.parametrize("table", ["force", "default"])
@pytest.mark.parametrize("name", sorted({*CAP_FIELDS, *CONVERSATION_FIELDS, "model"}))
def test_no_cap_model_or_conversation_can_stand_in_a_policy_s_body(table: str, name: str) -> None:
    text = f'apis = ["openai.chat"]\n[models.m]\ndefault_output_tokens = 5\n[body.{table}]\n{name} = 1\n'
    with pytest.raises(Exception, match=rf"x.toml:5: body\.{table}\.{name}: .*(belongs|own)"):
        policy_from_text(text, "x.toml")
