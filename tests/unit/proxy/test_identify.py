"""Who calls: the key alone, in any of three headers; two that differ are nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.proxy.identify import KEY_HEADERS, SESSION_HEADERS, presented_key, session_headers

Pairs = list[tuple[str, str]]
KEY = "gw-abc_DEF-123"


def spelled(name: str, key: str) -> str:
    return f"Bearer {key}" if name == "authorization" else key


@pytest.mark.parametrize("name", KEY_HEADERS)
def test_each_of_the_three_headers_names_the_key(name: str) -> None:
    assert presented_key(CIMultiDict([(name.title(), spelled(name, KEY))])) == KEY


@pytest.mark.parametrize(
    ("pairs", "key"),
    [
        ([], None),
        ([("Authorization", "")], None),
        ([("Authorization", "Bearer")], None),
        ([("Authorization", "Bearer ")], None),
        ([("x-api-key", " ")], None),
        ([("Authorization", f"bearer {KEY}")], KEY),
        ([("Authorization", f"BEARER   {KEY} ")], KEY),
        ([("Authorization", KEY)], KEY),
        ([("x-api-key", f" {KEY} ")], KEY),
        ([("Authorization", f"Bearer {KEY}"), ("x-api-key", KEY), ("x-goog-api-key", KEY)], KEY),
        ([("Authorization", f"Bearer {KEY}"), ("x-api-key", "")], KEY),
        ([("Authorization", f"Bearer {KEY}"), ("x-api-key", "other")], None),
        ([("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer other")], None),
        ([("x-api-key", KEY), ("x-goog-api-key", KEY.lower())], None),
        ([("Authorization", f"Basic {KEY}")], f"Basic {KEY}"),
        ([("Cookie", KEY), ("api-key", KEY), ("Proxy-Authorization", f"Bearer {KEY}")], None),
    ],
)
def test_the_one_key_that_the_headers_name(pairs: Pairs, key: str | None) -> None:
    assert presented_key(CIMultiDict(pairs)) == key


keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(st.lists(st.tuples(st.sampled_from(KEY_HEADERS), keys), max_size=4))
@settings(max_examples=150, deadline=None)
def test_headers_agree_or_name_nobody(pairs: list[tuple[str, str]]) -> None:
    found = presented_key(CIMultiDict([(name, spelled(name, key)) for name, key in pairs]))
    named = {key for _, key in pairs}
    assert found == (named.pop() if len(named) == 1 else None)


def test_session_headers_are_recorded_within_bounds_and_as_text() -> None:
    headers = CIMultiDict({"X-Session-Id": "s" * 500, "x-initiator": "user", "Thread-Id": "\udcff", "Cookie": "secret", "Authorization": "Bearer x"})
    assert session_headers(headers) == {"x-session-id": "s" * 128, "x-initiator": "user", "thread-id": "\\udcff"}


@given(st.dictionaries(st.sampled_from(sorted(SESSION_HEADERS)), st.text(st.characters(codec=None), max_size=300)))
@settings(max_examples=100, deadline=None)
def test_a_session_header_is_valid_text_of_bounded_length(headers: dict[str, str]) -> None:
    found = session_headers(CIMultiDict(headers))
    assert found.keys() == headers.keys()
    for name, value in found.items():
        value.encode()
        assert len(value) <= SESSION_HEADERS[name]
