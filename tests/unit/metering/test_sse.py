"""Server-sent events: every byte out in order, in one frame, however it was cut; events at once; what is beside the format can be seen."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.metering.framing import EventTooLarge, Frame, FrameKind
from gateway.metering.sse import SseFramer

FIELDS = [b"data: {}", b"data:x", b"data", b"data: ", b"event: e", b"id: 1", b"foo"]
BESIDE = [b": c", b":", b"", b"", b'{"error":1}', b"error: bad", b"\xef\xbb\xbf", b"\xe2\x80\xa8"]
LINES = st.sampled_from(FIELDS + BESIDE)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12).map(lambda lines: b"".join(line + end for line, end in lines))


def framed(stream: bytes, cuts: list[int] | range = range(0), limit: int = 1_000) -> list[Frame]:
    framer = SseFramer(limit)
    frames: list[Frame] = []
    for begin, end in pairwise([0, *cuts, len(stream)]):
        frames += framer.feed(stream[begin:end])
    return frames + framer.end()


def events(frames: list[Frame]) -> list[tuple[str, bytes]]:
    return [(frame.event, frame.data) for frame in frames if frame.kind in (FrameKind.EVENT, FrameKind.UNFINISHED) and frame.data]


@settings(max_examples=300, deadline=None)
@given(STREAMS | st.binary(max_size=60), st.lists(st.integers(0, 150), max_size=8))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 10, 11])
def test_where_a_stream_was_cut_changes_neither_its_bytes_nor_its_events(stream: bytes, cuts: list[int]) -> None:
    whole = framed(stream)
    for at in (sorted(min(cut, len(stream)) for cut in cuts), range(1, len(stream))):
        cut = framed(stream, at)
        assert b"".join(frame.raw for frame in cut) == stream
        assert events(cut) == events(whole)
    assert b"".join(frame.raw for frame in whole) == stream


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_goes_out_as_soon_as_its_end_has_been_read(end: bytes) -> None:
    framer = SseFramer(100)
    for data in (b"a", b"b"):
        begin = b"data: " + data + end
        assert not [frame for byte in begin for frame in framer.feed(bytes([byte])) if frame.data]
        assert [frame.data for frame in framer.feed(end[:1]) if frame.data] == [data]
        framer.feed(end[1:])


def test_a_comment_goes_out_at_once_and_is_no_event() -> None:
    framer = SseFramer(100)
    assert framer.feed(b": ke") == []
    assert framer.feed(b"ep\n") == [Frame(b": keep\n", FrameKind.COMMENT)]
    assert framer.feed(b"\n") == [Frame(b"\n", FrameKind.COMMENT)]


def test_a_comment_inside_an_event_is_part_of_its_bytes_and_not_of_its_data() -> None:
    assert framed(b"data: a\n: b\ndata: c\n\n") == [Frame(b"data: a\n: b\ndata: c\n\n", FrameKind.EVENT, b"a\nc")]


def test_fields_are_read_as_the_format_says() -> None:
    stream = b"event: e\ndata:a\ndata:  b\nid: 1\nretry: 5\nfoo\ndata\n\n"
    assert framed(stream) == [Frame(stream, FrameKind.EVENT, b"a\n b\n", "e")]


def test_only_cr_and_lf_end_a_line() -> None:
    data = b"a\xe2\x80\xa8b\xc2\x85c\x0bd\x0ce"
    assert events(framed(b"data: " + data + b"\n\n")) == [("", data)]


def test_a_block_without_data_is_no_event() -> None:
    assert {frame.kind for frame in framed(b"retry: 3\n\ndata:\n\nevent: ping\n\n\n\n")} == {FrameKind.COMMENT}


def test_one_byte_order_mark_is_set_aside_and_only_at_the_start() -> None:
    for cuts in ([], [1], [2], [1, 2], [3]):
        assert events(framed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", cuts)) == [("", b"a")]
    assert framed(b"\xef\xbb") == [Frame(b"\xef\xbb", FrameKind.UNFINISHED)]


def test_a_bare_json_line_is_an_event_of_its_own_as_soon_as_it_ends() -> None:
    framer = SseFramer(100)
    framer.feed(b"data: a\n\n")
    assert framer.feed(b'{"error":1}\n') == [Frame(b'{"error":1}\n', FrameKind.EVENT, b'{"error":1}')]


def test_a_field_named_error_is_an_event_of_its_own() -> None:
    assert events(framed(b'error: {"code":1}\n\ndata: [DONE]\n\n')) == [("error", b'{"code":1}'), ("", b"[DONE]")]


def test_a_stray_line_inside_an_event_is_seen_before_it_and_its_bytes_stay_where_they_were() -> None:
    frames = framed(b'data: a\n{"error":1}\n\n')
    assert frames == [Frame(b"", FrameKind.EVENT, b'{"error":1}'), Frame(b'data: a\n{"error":1}\n\n', FrameKind.EVENT, b"a")]


@pytest.mark.parametrize(
    ("rest", "data"),
    [(b"data: a", b"a"), (b"data: a\n", b"a"), (b"data: a\r", b"a"), (b'{"error"', b'{"error"'), (b": half a comm", b""), (b"data: a\nda", b"a")],
)
def test_what_was_cut_off_is_unfinished(rest: bytes, data: bytes) -> None:
    frames = framed(b"data: x\n\n" + rest)
    assert frames[1:] == [Frame(rest, FrameKind.UNFINISHED, data)]


def test_a_stray_line_that_was_cut_off_inside_an_event_is_seen() -> None:
    assert framed(b'data: a\n{"error":1}') == [Frame(b"", FrameKind.UNFINISHED, b'{"error":1}'), Frame(b'data: a\n{"error":1}', FrameKind.UNFINISHED, b"a")]


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize("big", [b"data: " + b"x" * 200 + b"\n\n", b"data: " + b"x" * 200, b"data: x\n" * 30 + b"\n", b":" + b"x" * 200])
def test_an_event_that_is_too_large_is_refused_and_what_came_before_it_goes_out(big: bytes, size: int) -> None:
    framer = SseFramer(100)
    stream = b"data: a\n\n" + big
    frames: list[Frame] = []
    with pytest.raises(EventTooLarge):
        for at in range(0, len(stream), size):
            frames += framer.feed(stream[at : at + size])
        framer.end()
    assert events(frames) == [("", b"a")]


def test_nothing_more_is_taken_after_an_event_that_is_too_large() -> None:
    framer = SseFramer(100)
    assert events(framer.feed(b"data: a\n\ndata: " + b"x" * 200 + b"\n\n")) == [("", b"a")]
    with pytest.raises(EventTooLarge):
        framer.feed(b"data: b\n\n")


def test_many_small_events_in_one_chunk_pass_whatever_the_bound_of_one() -> None:
    assert len(framed(b"data: abc\n\n" * 100, limit=20)) == 100
