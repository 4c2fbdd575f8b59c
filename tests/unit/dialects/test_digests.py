"""What was hashed once is not hashed again, and every digest is that of its bytes."""

from __future__ import annotations

import hashlib

from gateway.dialects.digests import Beginnings, Continued

TEXT = b'[{"a":1},{"b":2}],"z":[]}'


def digest(*pieces: bytes) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def test_beginnings_have_their_digests_in_whatever_order_they_are_asked_for() -> None:
    beginnings = Beginnings(memoryview(TEXT))
    for end in (8, 20, 3, 8, 24, 0):
        assert beginnings.sha256(end) == digest(TEXT[:end])
    assert beginnings.known[3] == digest(TEXT[:3])


def test_an_item_ends_at_a_comma_or_a_bracket_within_the_text() -> None:
    beginnings = Beginnings(memoryview(TEXT))
    assert [at for at in range(len(TEXT) + 2) if beginnings.ends_item(at)] == [at for at, sign in enumerate(TEXT) if sign in b",]"]


def test_two_texts_may_continue_the_same_one() -> None:
    first = Continued({}, lambda: b"old", ())
    assert first.sha256(b"head", b"tail") == digest(b"headoldtail")
    for new in (b"one", b"other", b""):
        following = Continued(first.behind, lambda: b"never asked for", (b",", new))
        assert following.sha256(b"head", b"]") == digest(b"headold,", new, b"]")
        assert following.sha256(b"head", b"}") == digest(b"headold,", new, b"}")
    assert first.sha256(b"head", b"tail") == digest(b"headoldtail")


def test_behind_another_head_the_old_part_is_hashed_anew() -> None:
    first = Continued({}, lambda: b"old", ())
    first.sha256(b"head", b"")
    assert Continued(first.behind, lambda: b"old", (b"new",)).sha256(b"heads", b"]") == digest(b"headsoldnew]")
