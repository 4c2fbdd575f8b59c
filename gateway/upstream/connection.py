"""One connection to an engine: a request goes out whole, and what comes back is parsed where it arrives and handed to its answer, without a task in between.

Rule: one request at a time; a connection is used again only if its answer came to its end and neither side said or sent anything that speaks against it. What
frames an answer (head, chunk sizes, trailers) is never held beyond a bound.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

HEADER_BYTES_MAX: Final = 16 * 1024
"""Of one header."""
HEADERS_MAX: Final = 128
FRAMING_BYTES_MAX: Final = 64 * 1024
"""Read one after the other without a byte of body among them: a head, or trailers."""
WRITTEN_IN_ONE_BYTES: Final = 16 * 1024
"""To put head and body together costs less than to hand over two pieces, up to here."""

_NO_BODY: Final = frozenset({204, 304})


class BadFraming(Exception):
    """What came in is no HTTP, or more of it than is held."""


class Receiver(Protocol):
    """What waits for the answer to one request. None of these raises."""

    def begun(self, status: int, headers: dict[str, str]) -> None: ...

    def arrived(self, data: bytes) -> None:
        """A piece of the body: all of it that came in one read."""

    def ended(self) -> None:
        """The body has its end, and the connection belongs to another request from now on."""

    def lost(self, why: BaseException | None) -> None:
        """The connection ended before the answer did."""


class EngineConnection(asyncio.Protocol):
    def __init__(self, on_free: Callable[[EngineConnection], object]) -> None:
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser: no function of ours for each piece
        self._edge: list[None] = []
        """Not empty between two chunks. Kept by the parser without a function of ours."""
        self.on_chunk_header = self._edge.clear
        self.on_chunk_complete = partial(self._edge.append, None)
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._framing_bytes = 0
        self._head_read = self._interim = self._until_close = False
        self._done = self._keep = False
        self._paused = False
        self._unread: select.poll | None = None
        self.whole: Callable[[bytes], bool] | None = None
        """Set while the receiver takes a piece: between two chunks, what comes in next is offered here and, where it is taken, not parsed. Never raises."""
        self.served = False
        """It was given a request before."""
        self.heard = False
        """A byte came in since the last request went out."""

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Nothing came in that the loop has not read yet: what nobody asked for would be taken for the answer to the next request."""
        assert self._transport is not None
        if self._unread is None:
            self._unread = select.poll()
            self._unread.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._unread.poll(0)

    def ask(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Gives the loop the whole request."""
        assert self._transport is not None and self._receiver is None
        self._receiver = receiver
        self._headers = {}
        self._header_count = self._framing_bytes = 0
        self._head_read = self._interim = self._until_close = False
        self._done = self._keep = self.heard = False
        self._edge.clear()
        self.served = True
        if len(body) <= WRITTEN_IN_ONE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def leave(self) -> None:
        """At once, whatever is under way: whoever waited hears nothing any more."""
        self._receiver = self.whole = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if not self._paused and self.usable:
            assert self._transport is not None
            self._transport.pause_reading()
            self._paused = True

    def resume(self) -> None:
        if self._paused and self.usable:
            assert self._transport is not None
            self._transport.resume_reading()
            self._paused = False

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by what it can

    def data_received(self, data: bytes) -> None:
        if self.whole is not None:
            if self.whole(data):
                return
            self.whole = None
        receiver = self._receiver
        if receiver is None:  # nobody asked for anything
            self.leave()
            return
        self.heard = True
        problem: Exception | None = None
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            problem = error
        pieces = self._pieces
        if pieces:
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._framing_bytes = 0
            receiver.arrived(piece)
        else:
            self._framing_bytes += len(data)
            if self._framing_bytes > FRAMING_BYTES_MAX and not self._done:
                problem = BadFraming("its head or its trailers are too large")
        if self.whole is not None and not (self._edge and data.endswith(b"\r\n")):  # a size line that has begun ends otherwise
            self.whole = None
        if self._receiver is receiver:  # else it was left on the way
            if self._done:
                self._finish(receiver, problem is None)
            elif problem is not None:
                self.leave()
                receiver.lost(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        receiver, self._receiver = self._receiver, None
        self._transport = None
        del self._parser, self.on_body, self.on_chunk_header, self.on_chunk_complete, self.whole  # each holds the other
        if receiver is None:
            return
        if self._until_close and exc is None:
            receiver.ended()
        else:
            receiver.lost(exc)

    def _finish(self, receiver: Receiver, clean: bool) -> None:
        """Where something is still to be written, or came in behind the end, nobody knows what the next answer would belong to."""
        self._receiver = self.whole = None
        if clean and self._keep and self.usable and self._transport is not None and not self._transport.get_write_buffer_size():
            if self._paused:
                self.resume()
            self._on_free(self)
        else:
            self.leave()
        receiver.ended()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._done:
            raise BadFraming("an answer to no request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > HEADERS_MAX or len(name) + len(value) > HEADER_BYTES_MAX:
            raise BadFraming("a header is too large, or there are too many")
        if not self._head_read:  # else a trailer: nobody reads it
            key, text, headers = name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"), self._headers
            if key == "transfer-encoding" and key in headers:
                headers[key] += f", {text}"
            else:
                headers.setdefault(key, text)

    def on_headers_complete(self) -> None:
        status, headers = self._parser.get_status_code(), self._headers
        if 100 <= status < 200:
            self._interim = True
            self._headers = {}
            return
        self._head_read = True
        coding = headers.get("transfer-encoding", "")
        chunked = coding == "chunked" or coding.lower().rpartition(",")[2].strip() == "chunked"
        self._until_close = status not in _NO_BODY and not chunked and "content-length" not in headers
        assert self._receiver is not None
        self._receiver.begun(status, headers)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        self._done = True
        self._keep = self._parser.should_keep_alive()  # right only here: asked later it says no
