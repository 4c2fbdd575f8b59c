"""The canonical form against another implementation of RFC 8785, and what may not stand in it."""

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting import chain
from gateway.accounting.usage import Outcome

KEYS = st.text(st.characters(max_codepoint=127), max_size=8)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAVES = TEXT | st.booleans() | st.integers(-chain.INTEGER_MAX, chain.INTEGER_MAX)
MATERIAL = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20)


@given(MATERIAL)
@settings(max_examples=300)
def test_the_canonical_form_is_rfc_8785_to_the_byte(value):
    assert chain.canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [None, 1.5, 2**53, -(2**53), b"x", {"é": 1}, {1: 2}, {"a": None}, [[None]], "\ud800", {"a": ["\udcff"]}, {"a": {1, 2}}, object(), float("nan")],
    ids=lambda value: repr(value).partition(" object at")[0],
)
def test_what_may_not_stand_in_an_entry_is_an_error(value):
    with pytest.raises(ValueError, match=r"entry|deep"):
        chain.canonical(value)


def test_nesting_is_bounded():
    value: object = 1
    for _ in range(100):
        value = [value]
    with pytest.raises(ValueError, match="deep"):
        chain.canonical(value)


def test_a_member_of_an_enumeration_stands_as_its_string():
    assert chain.canonical({"outcome": Outcome.LENGTH}) == b'{"outcome":"length"}'


@given(st.binary(max_size=40))
def test_bytes_that_are_not_unicode_are_escaped_and_can_be_had_back(raw):
    escaped = chain.escape(raw)
    assert chain.canonical(escaped)
    assert chain.unescape(escaped).encode("utf-8", "surrogateescape") == raw


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_texts_are_never_escaped_to_the_same(one, other):
    assert (chain.escape(one) == chain.escape(other)) == (one == other)


def test_text_without_surrogates_stands_as_it_is():
    assert chain.escape('naïve "\\ud800" 🙂') == 'naïve "\\ud800" 🙂'


def test_the_hash_is_over_the_one_before_and_the_body():
    assert chain.link(chain.FIRST_HASH, b"{}").hex() == "fb1634c4e6cd4b1f1afe3ce2d6ef080f7ac5d1f357d723ad4dfca782733b62db"
    assert chain.link(b"\1" * 32, b"{}") != chain.link(b"\2" * 32, b"{}")
