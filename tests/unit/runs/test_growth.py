"""What is new in a conversation that is sent again."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.body_record import bytes_by_role
from gateway.runs import growth
from gateway.runs.growth import Growth


def said(*texts: str) -> list[object]:
    return [{"role": "user", "content": text} for text in texts]


def size(*texts: str) -> int:
    return sum(len('{"role":"user","content":""}') + len(text.encode()) for text in texts)


def test_the_first_call_is_new_and_then_only_what_was_added() -> None:
    growth = Growth()
    assert growth.new_bytes("c/r", "foreground", said("one", "two")) == size("one", "two")
    assert growth.new_bytes("c/r", "foreground", said("one", "two", "drei ü")) == size("drei ü")
    assert growth.new_bytes("c/r", "foreground", said("one", "two", "drei ü")) == 0


def test_from_the_first_message_that_differs_all_is_new() -> None:
    growth = Growth()
    growth.new_bytes("c/r", "foreground", said("one", "two", "three"))
    assert growth.new_bytes("c/r", "foreground", said("one", "2", "three")) == size("2", "three")


def test_lanes_and_runs_are_conversations_of_their_own() -> None:
    growth = Growth()
    growth.new_bytes("c/r", "foreground", said("one"))
    assert growth.new_bytes("c/r", "background", said("one")) == size("one")
    assert growth.new_bytes("c/s", "foreground", said("one")) == size("one")


def test_it_remembers_so_many_and_no_more(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(growth, "CONVERSATIONS_MAX", 2)
    seen = Growth()
    for run in ("a", "b", "c"):
        seen.new_bytes(run, "", said("one"))
    assert seen.new_bytes("c", "", said("one")) == 0
    assert seen.new_bytes("a", "", said("one")) == size("one")


def test_text_that_is_no_unicode_is_counted_too() -> None:
    assert Growth().new_bytes("c/r", "", said("\ud800")) > 0


@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "],[", "ü"]), max_size=4), max_size=6))
def test_a_list_as_it_was_sent_tells_the_same_as_its_messages_one_by_one(talks: list[list[str]]) -> None:
    knowing, unknowing = Growth(), Growth()
    for talk in talks:
        messages = said(*talk)
        expected = unknowing.new_bytes("c/r", "", messages), bytes_by_role(messages)
        assert knowing.of_short("c/r", "", messages, orjson.dumps(messages)) == expected
