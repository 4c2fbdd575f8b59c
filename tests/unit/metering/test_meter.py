"""A meter takes any bytes, never touches them, and never raises but for an answer that can't be passed on."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import UNKNOWN_USAGE, MeterSource, Reading
from gateway.metering.decoding import STEP_BYTES, BadEncoding, Decoder, decoder_of
from gateway.metering.framing import EventTooLarge, Frame
from gateway.metering.meter import Meter, meter_of
from gateway.metering.reader import Mark


class Echo:
    """A reader that only counts what it saw."""

    def __init__(self, choke: bool = False) -> None:
        self.seen: list[bytes] = []
        self.bodies: list[bytes] = []
        self.choke = choke

    def see(self, frame: Frame) -> Mark:
        self._maybe()
        self.seen.append(frame.data)
        return Mark.CONTENT

    def see_body(self, body: bytes) -> None:
        self._maybe()
        self.bodies.append(body)

    def reading(self, status: int, truncated: bool) -> Reading:
        self._maybe()
        return Reading(usage=UNKNOWN_USAGE, source=MeterSource.MISSING, status=status, completed=not truncated)

    def running_output(self) -> int | None:
        self._maybe()
        return len(self.seen)

    def delivered_bytes(self) -> int:
        self._maybe()
        return 4

    def delivered_text(self) -> str:
        self._maybe()
        return "text"

    def _maybe(self) -> None:
        if self.choke:
            raise ZeroDivisionError


def meter(reader: Echo, kind: str = "text/event-stream", encoding: str = "", status: int = 200, response: int = 10_000) -> Meter:
    return meter_of(reader, status=status, content_type=kind, content_encoding=encoding, max_event_bytes=1_000, max_response_bytes=response)


@pytest.mark.parametrize(
    ("kind", "status", "streams"),
    [
        ("text/event-stream", 200, True),
        ("Text/Event-Stream; charset=utf-8", 200, True),
        ("application/x-ndjson", 200, True),
        ("application/json", 200, False),
        ("", 200, False),
        ("text/event-stream", 503, False),
    ],
)
def test_the_answers_own_head_says_whether_it_streams(kind: str, status: int, streams: bool) -> None:
    assert meter(Echo(), kind, status=status).streams is streams


def test_a_stream_under_another_content_type_is_read_all_the_same() -> None:
    reader = Echo()
    found = meter(reader, "text/plain")
    assert found.feed(b"data: a\n\ndata: b\n\n") == []
    assert [frame.raw for frame, _ in found.end()] == [b"data: a\n\ndata: b\n\n"]
    assert (reader.seen, reader.bodies) == ([b"a", b"b"], [])


def test_a_reader_that_chokes_leaves_an_anomaly_and_the_bytes_pass() -> None:
    found = meter(Echo(choke=True))
    assert [(frame.raw, mark) for frame, mark in found.feed(b"data: a\n\n")] == [(b"data: a\n\n", Mark.PASS)]
    assert found.running_output() is None
    assert found.delivered_text() == ""
    assert found.delivered_bytes() == 0
    reading = found.reading(200, False)
    assert (reading.source, reading.completed, reading.anomalies) == (MeterSource.MISSING, False, ("reader_choked_ZeroDivisionError",))


def test_a_body_that_is_too_large_to_be_read_says_so() -> None:
    found = meter(Echo(), "application/json", response=4)
    passed = [frame.raw for frame, _ in (*found.feed(b"abcdef"), *found.end())]
    assert b"".join(passed) == b"abcdef"
    assert found.reading(200, False).anomalies == ("body_too_large",)


def test_an_event_that_is_too_large_is_raised() -> None:
    with pytest.raises(EventTooLarge):
        meter(Echo()).feed(b"x" * 2_000)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40), max_size=6), st.sampled_from(["text/event-stream", "application/x-ndjson", "application/json"]))
def test_any_bytes_pass_unchanged(chunks: list[bytes], kind: str) -> None:
    found = meter(Echo(), kind)
    passed = [frame.raw for chunk in chunks for frame, _ in found.feed(chunk)] + [frame.raw for frame, _ in found.end()]
    assert b"".join(passed) == b"".join(chunks)


RAW_DEFLATE = zlib.compressobj(wbits=-15)
TEXT = b"data: a\n\ndata: b\n\n"
PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]) + b"\0\0",
    "deflate": zlib.compress(TEXT),
    "Deflate": RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush(),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_compressed_answer_is_passed_on_as_identity(encoding: str) -> None:
    for size in (1, 5, 1_000):
        reader = Echo()
        found = meter(reader, encoding=encoding)
        packed = PACKED[encoding]
        passed = [frame.raw for at in range(0, len(packed), size) for frame, _ in found.feed(packed[at : at + size])]
        assert b"".join(passed) == TEXT
        assert found.end() == []
        assert reader.seen == [b"a", b"b"]
        assert found.reading(200, False).completed


def test_a_compressed_answer_that_was_cut_off_is_truncated() -> None:
    found = meter(Echo(), encoding="gzip")
    found.feed(PACKED["gzip"][:-4])
    found.end()
    reading = found.reading(200, False)
    assert (reading.completed, reading.anomalies) == (False, ("encoding_cut_off",))


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(BadEncoding):
        meter(Echo(), encoding=encoding)


def test_damaged_compression_is_refused() -> None:
    for encoding in ("gzip", "deflate"):
        with pytest.raises(BadEncoding):
            meter(Echo(), encoding=encoding).feed(b"\x1f\x8b\x08nonsense, all of it")


def test_a_small_body_that_grows_without_end_is_stopped_and_no_step_is_large() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    decoder = Decoder("gzip", 1_000_000)
    made = 0
    with pytest.raises(BadEncoding):
        for piece in decoder.decode(bomb):
            assert len(piece) <= STEP_BYTES
            made += len(piece)
    assert made <= 1_000_000


def test_identity_needs_no_decoder() -> None:
    assert decoder_of("", 1) is decoder_of("Identity", 1) is None


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson"])
def test_what_a_small_piece_becomes_is_given_in_steps(kind: str) -> None:
    """A megabyte of empty lines, in a thousand bytes: nobody waits for all of them at once."""
    blank = b"\n" * (1 << 20)
    meter = meter_of(Echo(), status=200, content_type=kind, content_encoding="gzip", max_event_bytes=1 << 20, max_response_bytes=1 << 20)
    assert meter.grows
    steps = meter.in_steps(gzip.compress(blank))
    sizes = [sum(len(frame.raw) for frame in step) for step in steps]
    assert max(sizes) <= STEP_BYTES and sum(sizes) == len(blank)
