"""Counting with a shipped vocabulary, whatever the text is."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tokenizers import bpe
from gateway.tokenizers.bpe import COMPOSED_CHARACTERS, PIECE_CHARACTERS, BpeTokenizer, composed, pieces
from gateway.tokenizers.vocabulary import VOCABULARIES


@pytest.fixture(scope="module", params=VOCABULARIES)
def tokenizer(request: pytest.FixtureRequest) -> BpeTokenizer:
    return BpeTokenizer(request.param)


def test_composing_takes_no_time_by_the_square_of_a_row_of_marks() -> None:
    begun = time.monotonic()
    composed("a" + "\u0315\u0300" * 200_000)
    assert time.monotonic() - begun < 30  # 0.4 s; by the square it would be minutes


def test_names_of_special_tokens_are_ordinary_text(tokenizer: BpeTokenizer) -> None:
    assert all(tokenizer.count_now([name]) > 1 for name in ("<|endoftext|>", "<|im_start|>", "<think>"))


async def test_counting_leaves_the_event_loop_alone_and_adds_up_parts(tokenizer: BpeTokenizer) -> None:
    assert await tokenizer.count(["hello world", "", "hello world"]) == 4


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_text_has_at_most_a_token_a_byte(tokenizer: BpeTokenizer, text: str) -> None:
    assert tokenizer.count_now([text]) <= len(text.encode("utf-8", "surrogatepass")) * (3 if unicodedata.normalize("NFC", text) != text else 1)


def test_of_a_conversation_that_grows_only_what_is_new_is_encoded(tokenizer: BpeTokenizer) -> None:
    parts = [f"turn {number} " * 200 for number in range(20)]
    whole, new = tokenizer.count_now(parts), tokenizer.count_now(["and now?"])
    before = tokenizer.characters_encoded
    assert tokenizer.count_now([*parts, "and now?"]) == whole + new
    assert tokenizer.characters_encoded - before == len("and now?")


def test_what_was_counted_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "REMEMBERED_PIECES", 3)
    tokenizer = BpeTokenizer("cl100k_base")
    texts = [f"text {number} " * 200 for number in range(4)]
    tokenizer.count_now([*texts[:3], texts[0], texts[3]])  # the second is the oldest
    for text, encoded in ((texts[0], 0), (texts[2], 0), (texts[1], len(texts[1]))):
        before = tokenizer.characters_encoded
        tokenizer.count_now([text])
        assert tokenizer.characters_encoded - before == encoded


def test_pieces_are_bounded_and_lose_nothing() -> None:
    text = "x" * PIECE_CHARACTERS + "y"
    assert [len(piece) for piece in pieces(text)] == [PIECE_CHARACTERS, 1]
    assert "".join(pieces(text)) == text


@given(st.text(alphabet="ae\u0301\u0308\u0315 漢\u1100\u1161", max_size=COMPOSED_CHARACTERS))
@settings(max_examples=60, deadline=None)
def test_a_text_is_composed_as_unicode_says(text: str) -> None:
    assert composed(text) == unicodedata.normalize("NFC", text)
