"""The meter of one answer: raw chunks in, frames with their marks out, and at any time a reading.

It never touches the call: bytes pass unchanged. Whatever an engine sends, the reading's side never raises: a reader that chokes gives an anomaly and the next
best source. Only an answer that can't be passed on at all (an event too large, a damaged encoding) is raised, as BadAnswer, by `feed` and `end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gateway.accounting.usage import UNKNOWN_USAGE, ErrorClass, MeterSource, Reading
from gateway.metering.alike import Alike
from gateway.metering.decoding import BadEncoding, Decoder, decoder_of
from gateway.metering.framing import BodyFramer, Frame, FrameKind, Framer, NdjsonFramer
from gateway.metering.reader import EventReader, Mark
from gateway.metering.sse import SseFramer

Marked = tuple[Frame, Mark]
_SSE_BEGINS = (b"data:", b"event:", b":")


class Meter:
    """One answer. `streams`: its events go out one by one; else the body is one event that comes at its end."""

    def __init__(self, reader: EventReader, framer: Framer, decoder: Decoder | None = None) -> None:
        self._reader = reader
        self._see = reader.see
        self._framer = framer
        self._decoder = decoder
        self._anomalies: list[str] = []
        self._ended_early = False
        self.streams = not isinstance(framer, BodyFramer)
        self.grows = decoder is not None
        """The answer is compressed: what comes is less than what it becomes."""
        names = getattr(reader, "text_names", ()) if decoder is None and isinstance(framer, SseFramer) else ()
        self.alike = Alike(names) if names else None
        self.late: list[bytes] = []
        """Texts of events that were passed on as `alike` knew them, and were not seen yet. Whatever is asked of the meter, they are seen first."""
        self.frames = framer.feed
        """Where it does not grow: what a piece completes, to be given to `see` one by one, in order. The reading knows of it from then on. Raises BadAnswer."""

    def in_steps(self, data: bytes) -> Iterator[list[Frame]]:
        """`frames`, a step at a time where it grows: what a small piece becomes is dealt with before more is made of it. Raises BadAnswer."""
        if self._decoder is None:
            yield self._framer.feed(data)
            return
        for piece in self._decoder.decode(data):
            yield self._framer.feed(piece)

    def last_frames(self) -> list[Frame]:
        """The body has ended, well or not."""
        if self._decoder is not None and self._decoder.ended_early():
            self._ended_early = True
            self._note("encoding_cut_off")
        return self._framer.end()

    def feed(self, data: bytes) -> list[Marked]:
        """What `data` completes, seen. Raises BadAnswer."""
        return [(frame, self.see(frame)) for frames in self.in_steps(data) for frame in frames]

    def end(self) -> list[Marked]:
        return [(frame, self.see(frame)) for frame in self.last_frames()]

    def see(self, frame: Frame) -> Mark:
        """What a frame means. Never raises."""
        if self.late:
            self.see_late()
        try:
            if self.streams:
                return self._see(frame)
            self._see_body(frame)
        except Exception as error:
            self._choked(error)
        return Mark.PASS

    def learn(self, frame: Frame) -> bool:
        """By this frame, the last that was seen, `alike` knows others of its kind. False: it knows none, or they would not be all that is to be looked at."""
        return self.alike is not None and self._framer.idle and self._reader.running_output() is None and self.alike.learn(frame)

    def see_late(self) -> int:
        """How many events were late."""
        count = len(self.late)
        if count and self.alike is not None:
            frames = self.alike.events_of(self.late)
            self.late.clear()
            for frame in frames:
                self.see(frame)
        return count

    def see_head(self, headers: Mapping[str, str]) -> None:
        """Some engines count in headers. Never raises."""
        see_head = getattr(self._reader, "see_head", None)  # to ask whether it is a HeadReader takes fifty times as long
        if see_head is not None:
            try:
                see_head(headers)
            except Exception as error:
                self._choked(error)

    def reading(self, status: int, truncated: bool) -> Reading:
        """Never raises. With nothing to go by, everything is unknown."""
        self.see_late()
        try:
            reading = self._reader.reading(status, truncated or self._ended_early)
        except Exception as error:
            self._choked(error)
            reading = Reading(usage=UNKNOWN_USAGE, source=MeterSource.MISSING, status=status, completed=False, error_class=ErrorClass.TRUNCATED)
        return replace(reading, anomalies=(*reading.anomalies, *self._anomalies)) if self._anomalies else reading

    def running_output(self) -> int | None:
        """The engine's own running total, where it gives one."""
        self.see_late()
        try:
            return self._reader.running_output()
        except Exception as error:
            self._choked(error)
            return None

    def delivered_bytes(self) -> int:
        """Of text, reasoning and tool arguments."""
        self.see_late()
        try:
            return self._reader.delivered_bytes()
        except Exception as error:
            self._choked(error)
            return 0

    def passed(self, tokens: int, delivered_bytes: float) -> bool:
        """The engine's running total is above `tokens`; where it gives none, so many bytes were delivered, and more. Asked at every event."""
        self.see_late()
        try:
            running = self._reader.running_output()
            return self._reader.delivered_bytes() > delivered_bytes if running is None else running > tokens
        except Exception as error:
            self._choked(error)
            return self.delivered_bytes() > delivered_bytes

    def delivered_text(self) -> str:
        """For a count of our own."""
        self.see_late()
        try:
            return self._reader.delivered_text()
        except Exception as error:
            self._choked(error)
            return ""

    def _see_body(self, whole: Frame) -> None:
        """Some servers send a stream under another content type: then its events are read here, all at once."""
        body = whole.data
        if whole.kind is FrameKind.PIECE:
            self._note("body_too_large")
        elif body.startswith(_SSE_BEGINS):
            framer = SseFramer(len(body) + 1)
            for frame in (*framer.feed(body), *framer.end()):
                self._see(frame)
        else:
            self._reader.see_body(body)

    def _choked(self, error: Exception) -> None:
        self._note(f"reader_choked_{type(error).__name__}")

    def _note(self, anomaly: str) -> None:
        if anomaly not in self._anomalies:
            self._anomalies.append(anomaly)


def meter_of(reader: EventReader, *, status: int, content_type: str, content_encoding: str = "", max_event_bytes: int, max_response_bytes: int) -> Meter:
    """The meter that fits an answer's head. By the answer's content type, never by what was asked. Raises BadEncoding."""
    kind = content_type.partition(";")[0].strip().lower()
    streams = 200 <= status < 300
    framer: Framer
    if streams and kind == "text/event-stream":
        framer = SseFramer(max_event_bytes)
    elif streams and kind in ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"):
        framer = NdjsonFramer(max_event_bytes)
    else:
        framer = BodyFramer(max_response_bytes)
    # A compressed stream has no length of its own to bound it by; its events have.
    longest = max_response_bytes * 16 if streams else max_response_bytes
    return Meter(reader, framer, decoder_of(content_encoding, longest))


__all__ = ["BadEncoding", "Meter", "meter_of"]
