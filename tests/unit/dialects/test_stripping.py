"""What a policy strips: whole fields and tools, in every format; all else stays the same object, so that its bytes go on as they came."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects import DIALECTS
from gateway.dialects.barred import BARRED, GUARDED, HOLDERS, OWN, THING_OF, asks, own_asks, tool_thing
from gateway.dialects.dialect import BodyError
from gateway.dialects.stripping import strip
from tests.support.every_api import PLAINEST
from tests.unit.dialects.allowing import allowing

STRIPPABLE = sorted(name for name, thing in BARRED.items() if not thing.stays)
MESSAGES = [{"role": "user", "content": "hi"}]


def value_of(name: str) -> Any:
    """Something that asks for it."""
    return {"store": True, "background": True, "echo": True, "n": 2, "priority": 5, "id_slot": 3}.get(name, "x")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("field", sorted(field for field, thing in THING_OF.items() if not BARRED[thing].stays))
def test_a_stripped_field_is_gone_and_the_body_passes(dialect: str, field: str) -> None:
    body = {**PLAINEST[dialect], field: value_of(field)}
    kept, removed = strip(body, dialect, frozenset({THING_OF[field]}))
    assert removed == (field,) and field not in kept
    assert all(kept[name] is value for name, value in body.items() if name != field)
    assert DIALECTS[dialect].read_request(kept)


@pytest.mark.parametrize("dialect", OWN)
def test_what_one_format_alone_calls_so_is_stripped_there(dialect: str) -> None:
    for field, thing in OWN[dialect].items():
        if not BARRED[thing].stays:
            value = {"n": 2, "context_length": 9, "multi_agent": {"x": 1}}.get(field, "x")
            assert own_asks(field, value)
            with pytest.raises(BodyError) as refused:
                DIALECTS[dialect].read_request({**PLAINEST[dialect], field: value})
            assert (refused.value.code, refused.value.field_name) == ("not_allowed", field)
            kept, removed = strip({**PLAINEST[dialect], field: value}, dialect, frozenset({thing}))
            assert removed == (field,)
            assert DIALECTS[dialect].read_request(kept)


@pytest.mark.parametrize(("dialect", "holder"), HOLDERS.items())
def test_the_object_of_sampling_parameters_is_held_to_the_same(dialect: str, holder: str) -> None:
    body = {**PLAINEST[dialect], holder: {"temperature": 0.5, "priority": 7}}
    with pytest.raises(BodyError) as refused:
        DIALECTS[dialect].read_request(body)
    assert refused.value.field_name == "priority"
    kept, removed = strip(body, dialect, frozenset({"priority"}))
    assert (kept[holder], removed) == ({"temperature": 0.5}, (f"{holder}.priority",))
    assert body[holder] == {"temperature": 0.5, "priority": 7}, "what came in is not changed"


def test_options_for_which_a_model_is_loaded_anew_are_stripped_by_name() -> None:
    kept, removed = strip({"model": "m", "messages": MESSAGES, "options": {"num_gpu": 0, "seed": 1}}, "ollama.chat", frozenset({"runner_options"}))
    assert (kept["options"], removed) == ({"seed": 1}, ("options.num_gpu",))


@pytest.mark.parametrize("field", sorted(GUARDED))
def test_what_asks_for_nothing_is_left_as_it_is(field: str) -> None:
    for harmless in (None, *GUARDED[field]):
        body = {**PLAINEST["openai.chat"], field: harmless}
        assert not asks(field, harmless)
        assert strip(body, "openai.chat", frozenset(BARRED)) == (body, ())


def test_nothing_named_nothing_stripped() -> None:
    body = {**PLAINEST["openai.chat"], "store": True, "tools": [{"type": "web_search"}]}
    kept, removed = strip(body, "openai.chat", frozenset())
    assert kept is body and removed == ()


FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "function": {"name": "f"}}
CUSTOM: dict[str, Any] = {"name": "f", "input_schema": {}}


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages", "ollama.chat"])
@pytest.mark.parametrize("kind", ["web_search", "web_search_preview_2025_03_11", "web_search_20250305", "code_execution_20250522", "mcp", "anything_new"])
def test_a_hosted_tool_is_taken_out_of_the_list_by_its_kind_or_by_all_kinds(dialect: str, kind: str) -> None:
    own = CUSTOM if dialect == "anthropic.messages" else FUNCTION
    body = {**PLAINEST[dialect], "tools": [own, {"type": kind, "name": "w"}], "tool_choice": "auto"}
    for names in (frozenset({tool_thing(kind)}), frozenset({"hosted_tools"})):
        kept, removed = strip(body, dialect, names)
        assert (kept["tools"], removed, kept["tool_choice"]) == ([own], (f"tools.{kind}",), "auto")
        assert kept["tools"][0] is own
        assert DIALECTS[dialect].read_request(kept).tool_names == ("f",)
    assert strip(body, dialect, frozenset({"memory"})) == (body, ())


def test_where_no_tool_is_left_nothing_speaks_of_tools() -> None:
    body = {**PLAINEST["openai.responses"], "tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": False}
    kept, removed = strip(body, "openai.responses", frozenset({"web_search"}))
    assert kept == PLAINEST["openai.responses"]
    assert removed == ("tools.web_search", "tool_choice", "parallel_tool_calls")


def test_the_wish_for_a_tool_that_is_gone_goes_with_it() -> None:
    body = {**PLAINEST["openai.responses"], "tools": [FUNCTION, {"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    assert "tool_choice" not in strip(body, "openai.responses", frozenset({"web_search"}))[0]
    body["tool_choice"] = {"type": "function", "name": "f"}
    assert strip(body, "openai.responses", frozenset({"web_search"}))[0]["tool_choice"] == {"type": "function", "name": "f"}


def test_tools_within_a_namespace_are_stripped_there() -> None:
    inner = [{"type": "function", "name": "g"}, {"type": "mcp", "server_url": "http://h"}]
    body = {
        **PLAINEST["openai.responses"],
        "tools": [{"type": "namespace", "name": "n", "tools": inner}, {"type": "namespace", "name": "o", "tools": inner[1:]}],
    }
    kept, removed = strip(body, "openai.responses", frozenset({"mcp"}))
    assert (kept["tools"], removed) == ([{"type": "namespace", "name": "n", "tools": inner[:1]}], ("tools.mcp", "tools.mcp"))
    assert DIALECTS["openai.responses"].read_request(kept).tool_names == ("g",)


def test_a_kind_that_is_allowed_goes_before_the_word_for_all_kinds() -> None:
    body = {**PLAINEST["openai.responses"], "tools": [{"type": "mcp", "server_url": "http://h"}, {"type": "web_search"}]}
    kept, removed = strip(body, "openai.responses", frozenset({"hosted_tools"}), frozenset({"mcp"}))
    assert ([tool["type"] for tool in kept["tools"]], removed) == (["mcp"], ("tools.web_search",))
    assert DIALECTS["openai.responses"].read_request(kept, allowing("mcp"))


@pytest.mark.parametrize("tools", [None, "x", {}, [1, "x", None], [{"type": 5}], [[]]])
def test_what_is_no_list_of_tools_is_left_to_the_guard(tools: Any) -> None:
    body = {**PLAINEST["openai.chat"], "tools": tools}
    assert strip(body, "openai.chat", frozenset(BARRED)) == (body, ())


def test_every_name_either_may_be_allowed_or_stripped() -> None:
    assert [name for name, thing in BARRED.items() if thing.never and thing.stays] == []
    assert set(STRIPPABLE) >= {"web_search", "keep_alive", "store", "cache_salt", "hosted_tools"}
