"""What was counted before of a conversation that grows."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tokenizers.rendered_cache import TEXTS_PER_RUN, Mark, RenderedCache, common_prefix

SPECIAL = re.compile(rb"<s>|<e>")


def marks_of(text: bytes) -> list[Mark]:
    """As a tokenizer of one token a byte would have them, special tokens one each."""
    marks: list[Mark] = []
    for found in SPECIAL.finditer(text):
        tokens = len(SPECIAL.sub(b"x", text[: found.start()]))
        marks.append(Mark(found.start(), found.end(), tokens))
    return marks


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 200_000))
@settings(max_examples=100, deadline=None)
def test_the_common_prefix_is_the_longest(first: bytes, second: bytes, shared: int) -> None:
    first, second = b"a" * shared + first, b"a" * shared + second
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]


def test_a_text_that_goes_on_is_cut_before_the_last_special_token_that_is_whole_in_both() -> None:
    cache = RenderedCache()
    old = b"<s>user hi<e><s>assistant"
    cache.put("r", old, marks_of(old))
    assert cache.find("r", b"<s>user hi<e><s>assistant fine<e>") == Mark(13, 16, 9)
    assert cache.find("r", b"<s>user ho<e>") == Mark(0, 3, 0)
    assert cache.find("r", b"<s>user hi<e><s") == Mark(10, 13, 8)
    assert cache.find("r", b"other") is None
    assert cache.find("another run", old) is None


def test_the_past_may_be_rendered_anew() -> None:
    cache = RenderedCache()
    old = b"<s>a<e><s>think b<e><s>"
    cache.put("r", old, marks_of(old))
    assert cache.find("r", b"<s>a<e><s>b<e><s>") == Mark(7, 10, 3)


parts = st.lists(st.sampled_from([b"<s>", b"<e>", b"<", b"s>", b"a", b"bb", b"<s"]), max_size=12).map(b"".join)


@given(st.lists(parts, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_known_part_and_rest_are_the_whole_count(texts: list[bytes]) -> None:
    cache = RenderedCache()
    for text in texts:
        whole = len(SPECIAL.sub(b"x", text))
        cut = cache.find("r", text)
        if cut is not None:
            rest = text[cut.offset :]
            assert cut.tokens_before + len(SPECIAL.sub(b"x", rest)) == whole
            known = cache.marks_before("r", text, cut)
            assert [*known, *(Mark(m.offset + cut.offset, m.end + cut.offset, m.tokens_before + cut.tokens_before) for m in marks_of(rest))] == marks_of(text)
        cache.put("r", text, marks_of(text))


def test_it_is_bounded_and_the_oldest_run_goes_first() -> None:
    cache = RenderedCache(max_bytes=5_000)
    text = b"<s>" + b"x" * 1_000
    for number in range(10):
        cache.put(f"r{number}", text, marks_of(text))
        assert cache.bytes_held <= 5_000
    assert cache.find("r0", text) is None
    assert cache.find("r9", text) is not None


def test_a_text_larger_than_the_cache_is_not_kept() -> None:
    cache = RenderedCache(max_bytes=1_000)
    text = b"<s>" + b"x" * 2_000
    cache.put("r", text, marks_of(text))
    assert cache.bytes_held == 0
    assert cache.find("r", text) is None


def test_a_run_keeps_a_few_conversations_and_a_growing_one_takes_one_place() -> None:
    cache = RenderedCache()
    for number in range(TEXTS_PER_RUN + 3):
        text = b"%d<s>other<e><s>" % number
        cache.put("r", text, marks_of(text))
    text = b"<s>grows<e><s>"
    for _ in range(20):
        cache.put("r", text, marks_of(text))
        text += b"a<e><s>"
    assert cache.bytes_held < (TEXTS_PER_RUN + 1) * 1_200
    assert cache.find("r", b"%d<s>other<e><s>" % (TEXTS_PER_RUN + 2)) is not None
