"""Every key of both files, given a value of each wrong kind: what is printed is in the project's words and says what to write, never in those of a library."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from gateway.errors import ConfigurationError
from gateway.policy import policy_from_text
from gateway.policy.declaration import Policy
from gateway.policy.declared import Path
from gateway.policy.shape import Names, leaves, shape_of
from gateway.settings import settings_from_text
from gateway.settings.declaration import SettingsTable
from tests.support.toml import Tables, merged, to_toml

KINDS: list[object] = ["word", "", 5, -5, 1.5, True, [], ["a"], [1], {"a": 1}, 10**17]
PLAIN: dict[type[BaseModel], Tables] = {
    Policy: {"apis": ["openai.chat"], "models": {"m": {"counter": "bytes", "overhead_tokens": 1}}},
    SettingsTable: {"upstreams": {"u": {"address": "http://x:1", "models": {"m": "m"}}}},
}
LOAD: dict[type[BaseModel], Callable[[str, str], object]] = {Policy: policy_from_text, SettingsTable: settings_from_text}
NAMES = Names(("foreground",), ("m",), ("openai.chat",))


def paths(model: type[BaseModel]) -> list[Path]:
    own = {"lanes": "foreground", "upstreams": "u"}
    return [tuple(own.get(path[0], "m") if part == "NAME" else part for part in path) for path, _ in leaves(shape_of(model), NAMES)]


def said(model: type[BaseModel], path: Path, value: object) -> list[str]:
    tables: Tables = {path[-1]: value}
    for name in reversed(path[:-1]):
        tables = {name: tables}
    try:
        LOAD[model](to_toml(merged(PLAIN[model], tables)), "f.toml")
    except ConfigurationError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("model", PLAIN, ids=lambda model: model.__name__)
def test_a_value_of_a_wrong_kind_is_told_what_to_write(model: type[BaseModel]) -> None:
    lines = {line for path in paths(model) for value in KINDS for line in said(model, path, value)}
    assert len(lines) > 100
    assert [line for line in lines if re.search(r"(?i)input should|valid string|match pattern|does not fit|<class", line)] == []
    assert [line for line in lines if not re.match(r"f\.toml:\d+: [^ ]", line)] == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("apis",), "openai.chat", 'write a list: apis = ["openai.chat"]'),
        (("models", "m", "price_input"), 1.5, 'write a text: price_input = "1.5"'),
        (("models", "m", "price_input"), "1,50", "write digits"),
        (("models", "m", "price_currency"), "eur", "three capitals"),
        (("agent", "tell_agent"), "no", "write true or false"),
        (("agent", "warn_at"), "90%", "write a number"),
    ],
)
def test_the_mend_names_the_value_where_it_can_be_told(path: Path, value: object, words: str) -> None:
    (line,) = said(Policy, path, value)
    assert words in line


@pytest.mark.parametrize("load", LOAD.values())
def test_a_byte_order_mark_is_called_by_its_name(load: Callable[[str, str], object]) -> None:
    with pytest.raises(ConfigurationError, match="byte order mark"):
        load('\ufeffapis = ["openai.chat"]', "f.toml")
