"""tiktoken's encodings from the shipped vocabulary."""

from __future__ import annotations

import gzip
import socket
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ConfigurationError
from gateway.tokenizers.bpe import PIECE_CHARACTERS, VOCABULARIES, BpeTokenizer, pieces, read_ranks


@pytest.fixture(scope="module")
def o200k() -> BpeTokenizer:
    return BpeTokenizer("o200k_base")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        ("Hello, World! It's 2024.", 9),
        ("zażółć gęślą jaźń", 11),
        ("def f(x):\n    return x + 1\n", 11),
        ("こんにちは世界", 2),
    ],
)
def test_known_texts_have_their_known_counts(o200k: BpeTokenizer, text: str, tokens: int) -> None:
    assert o200k.count_now([text]) == tokens


def test_no_network_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/nowhere")
    assert BpeTokenizer("o200k_base").count_now(["hello world"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_000_000,
        "a" * 10_000_000,
        "\ud800" * 1_000 + "\udfff x",
        "<|endoftext|><|endofprompt|>" * 100,
        "\n" * 300_000,
        "\x00\x01\ufffe" * 1_000,
        "é" * 200_000,
        "👩‍👩‍👧‍👦" * 20_000,
    ],
    ids=["a million blanks", "10 MB of one letter", "lone surrogates", "names of special tokens", "line ends", "control", "accents", "emoji"],
)
def test_hostile_text_is_counted_and_never_more_than_its_bytes(o200k: BpeTokenizer, text: str) -> None:
    assert 0 < o200k.count_now([text]) <= len(text.encode("utf-8", "surrogatepass"))


def test_names_of_special_tokens_are_ordinary_text(o200k: BpeTokenizer) -> None:
    assert o200k.count_now(["<|endoftext|>"]) > 1


async def test_counting_leaves_the_event_loop_alone_and_adds_up_parts(o200k: BpeTokenizer) -> None:
    assert await o200k.count(["hello world", "", "hello world"]) == 4


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_has_at_most_a_token_a_byte(o200k: BpeTokenizer, text: str) -> None:
    assert o200k.count_now([text]) <= len(text.encode("utf-8", "surrogatepass"))


def test_pieces_are_bounded_and_lose_nothing() -> None:
    text = "x" * PIECE_CHARACTERS + "y"
    assert [len(piece) for piece in pieces(text)] == [PIECE_CHARACTERS, 1]
    assert "".join(pieces(text)) == text


def test_a_vocabulary_that_was_changed_is_not_used() -> None:
    vocabulary = VOCABULARIES["o200k_base"]
    packed = resources.files("gateway.tokenizers.vocabularies").joinpath(vocabulary.file).read_bytes()
    raw = bytearray(gzip.decompress(packed))
    raw[-2] ^= 1
    with pytest.raises(ConfigurationError, match="SHA-256"):
        read_ranks(vocabulary, gzip.compress(bytes(raw), 1))
    with pytest.raises(ConfigurationError, match="unpacked"):
        read_ranks(vocabulary, packed[:-100])


def test_a_vocabulary_that_is_not_shipped_is_told() -> None:
    with pytest.raises(ConfigurationError, match="o200k_base"):
        BpeTokenizer("cl100k_base")
