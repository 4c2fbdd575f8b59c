"""JSON lines and whole bodies: every byte out in order, in one frame, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.metering.framing import BodyFramer, EventTooLarge, Frame, FrameKind, Framer, NdjsonFramer

CUTS = st.lists(st.binary(max_size=9), max_size=12)
LINES = st.lists(st.sampled_from([b"{}", b"\n", b"\r", b'{"a":', b"1}", b"\r\n", b"\x0b"]), max_size=12)


def run(framer: Framer, chunks: list[bytes]) -> list[Frame]:
    return [frame for chunk in chunks for frame in framer.feed(chunk)] + framer.end()


@settings(max_examples=150)
@given(CUTS | LINES)
def test_bytes_come_out_as_they_went_in(chunks: list[bytes]) -> None:
    stream = b"".join(chunks)
    for framer in (NdjsonFramer(1_000), BodyFramer(1_000), BodyFramer(5)):
        assert b"".join(frame.raw for frame in run(framer, chunks)) == stream


@settings(max_examples=150)
@given(CUTS | LINES)
def test_where_json_lines_were_cut_does_not_matter(chunks: list[bytes]) -> None:
    assert run(NdjsonFramer(1_000), chunks) == run(NdjsonFramer(1_000), [b"".join(chunks)])


def test_only_lf_ends_a_json_line() -> None:
    assert run(NdjsonFramer(100), [b"{}\r\n\n{", b"}\r2\n3"]) == [
        Frame(b"{}\r\n", FrameKind.EVENT, b"{}"),
        Frame(b"\n", FrameKind.COMMENT),
        Frame(b"{}\r2\n", FrameKind.EVENT, b"{}\r2"),
        Frame(b"3", FrameKind.UNFINISHED, b"3"),
    ]


def test_a_json_line_that_is_too_large_is_refused_and_what_came_before_it_goes_out() -> None:
    framer = NdjsonFramer(10)
    assert [frame.data for frame in framer.feed(b"{}\n" + b"x" * 11)] == [b"{}"]
    with pytest.raises(EventTooLarge):
        framer.feed(b"\n")
    with pytest.raises(EventTooLarge):
        NdjsonFramer(10).feed(b"x" * 11)


def test_a_body_is_held_whole() -> None:
    assert run(BodyFramer(4), [b"ab", b"cd"]) == [Frame(b"abcd", FrameKind.EVENT, b"abcd")]
    assert run(BodyFramer(4), []) == []


def test_a_body_past_its_bound_is_passed_on_but_for_its_last_byte_and_never_read() -> None:
    framer = BodyFramer(4)
    assert framer.feed(b"abcd") == []
    assert framer.feed(b"e") == [Frame(b"abcd", FrameKind.PIECE)]
    assert framer.feed(b"") == []
    assert framer.feed(b"fg") == [Frame(b"ef", FrameKind.PIECE)]
    assert framer.end() == [Frame(b"g", FrameKind.PIECE)]
