"""Server-sent events by the bytes: CR, LF or CRLF ends a line, wherever the chunks were cut; a blank line ends an event, which then goes out at once.

Engines write errors beside the format: a bare JSON line, or a field named `error`. Each is an event of its own, so that a reader can see it.
"""

from __future__ import annotations

from gateway.metering.framing import BOM, Bounded, Frame, FrameKind

_CR = 13
_LF = 10
_COLON = 58
_BRACE = 123


class SseFramer(Bounded):
    """Chunks of whole LF events take a short path; all else is read line by line, each byte once."""

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(max_event_bytes)
        self._begun = False
        self._skip_lf = False
        """The last byte read was a CR that ended a line: an LF that comes now belongs to it."""
        self._line = 0
        """Where the line that is being read begins, in what is held."""
        self._scan = 0
        """No line end lies before this, from `_line` on."""
        self._data: list[bytes] = []
        self._event = ""

    @property
    def idle(self) -> bool:
        return not (self._held or self._skip_lf or self._too_large)

    def feed(self, data: bytes) -> list[Frame]:
        if self._begun and not (self._held or self._skip_lf or self._too_large) and len(data) <= self._max and data[-2:] == b"\n\n" and b"\r" not in data:
            if data.find(b"\n") == len(data) - 2 and data[:6] == b"data: " and len(data) > 8:
                return [Frame(data, FrameKind.EVENT, data[6:-2])]
            return self._whole(data)
        self._refuse()
        self._held += data
        frames: list[Frame] = []
        if self._begun or self._begin(frames):
            self._lines(frames)
        return self._checked(frames, len(self._held))

    def end(self) -> list[Frame]:
        """What was cut off: one frame, or two where a stray line lies in it."""
        self._refuse()
        frames: list[Frame] = []
        self._begun = True
        self._lines(frames)
        held = self._held
        if self._line < len(held):
            stray = self._take(bytes(held[self._line :]))
            if stray is not None:
                whole = self._line == 0
                frames.append(Frame(bytes(held) if whole else b"", FrameKind.UNFINISHED, stray[1], stray[0]))
                if whole:
                    held.clear()
        if held:
            frames.append(Frame(bytes(held), FrameKind.UNFINISHED, b"\n".join(self._data), self._event))
        self._held = bytearray()
        self._reset(0)
        return frames

    def _whole(self, data: bytes) -> list[Frame]:
        """Whole events that end with LF LF."""
        frames: list[Frame] = []
        for piece in data[:-2].split(b"\n\n"):
            raw = piece + b"\n\n"
            if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
                payload = raw[6:-2]
                frames.append(Frame(raw, FrameKind.EVENT if payload else FrameKind.COMMENT, payload))
            else:
                self._held += raw
                self._lines(frames)
        return frames

    def _begin(self, frames: list[Frame]) -> bool:
        """A byte order mark at the very start is set aside, also when it is cut inside."""
        held = self._held
        if len(held) < len(BOM) and BOM.startswith(bytes(held)):
            return False
        self._begun = True
        if held.startswith(BOM):
            frames.append(Frame(BOM, FrameKind.COMMENT))
            del held[: len(BOM)]
        return True

    def _lines(self, frames: list[Frame]) -> None:
        """Reads all lines whose end is held; what remains held is the unfinished event."""
        held = self._held
        size = len(held)
        start = 0
        if self._skip_lf and self._scan < size:
            self._skip_lf = False
            if held[self._scan] == _LF:
                start = self._late_lf(frames)
        scan = self._scan
        cr = held.find(b"\r", scan)
        while True:
            if 0 <= cr < scan:
                cr = held.find(b"\r", scan)
            stop = held.find(b"\n", scan, cr if cr >= 0 else size)
            if stop < 0:
                stop = cr
            if stop < 0:
                break
            after = stop + 1
            if held[stop] == _CR:
                if after == size:
                    self._skip_lf = True
                elif held[after] == _LF:
                    after += 1
            start = self._one(held, start, stop, after, frames)
            scan = after
            self._line = after
        del held[:start]
        self._line -= start
        self._scan = len(held)

    def _late_lf(self, frames: list[Frame]) -> int:
        """The LF of a CRLF that was cut in two: no line of its own. Returns where the event that is being read begins."""
        self._scan += 1
        self._line += 1
        if self._line == 1:
            frames.append(Frame(b"\n", FrameKind.COMMENT))
            return 1
        return 0

    def _one(self, held: bytearray, start: int, stop: int, after: int, frames: list[Frame]) -> int:
        """One whole line. Returns where the next event begins."""
        line = self._line
        if stop == line:
            data = b"\n".join(self._data)
            frames.append(Frame(bytes(held[start:after]), FrameKind.EVENT if data else FrameKind.COMMENT, data, self._event))
            self._data.clear()
            self._event = ""
            return after
        if held[line] == _COLON:
            if line > start:
                return start
            frames.append(Frame(bytes(held[start:after]), FrameKind.COMMENT))
            return after
        stray = self._take(bytes(held[line:stop]))
        if stray is None:
            return start
        name, data = stray
        if line > start:
            frames.append(Frame(b"", FrameKind.EVENT, data, name))
            return start
        frames.append(Frame(bytes(held[start:after]), FrameKind.EVENT, data, name))
        return after

    def _take(self, line: bytes) -> tuple[str, bytes] | None:
        """Keeps a field of the event that is being read; a stray line is given back as (event name, data)."""
        if line[0] == _BRACE:
            return "", line
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"error":
            return "error", value
        return None

    def _reset(self, at: int) -> None:
        self._line = self._scan = at
        self._skip_lf = False
        self._data.clear()
        self._event = ""
