"""Compressed answers in, identity bytes out: in steps, and never more than a bound at once.

Engines are asked for identity; this is for those that have a proxy in front.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from gateway.metering.framing import BadAnswer

STEP_BYTES: Final = 64 * 1024
"""Most that one step gives: what a small piece grows to is passed on before more is made of it."""


_EITHER: Final = zlib.MAX_WBITS | 32
"""gzip or zlib, by the head."""


class BadEncoding(BadAnswer):
    """The body is in an encoding that can't be read, is damaged, or grows past all measure."""


class Decoder:
    """gzip and deflate. The whole answer may grow to `max_bytes`, checked at every step."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._deflate = encoding == "deflate"
        self._zlib = zlib.decompressobj(_EITHER)
        self._left = max_bytes
        self._fed = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most STEP_BYTES."""
        full = False
        while data or full:
            piece, data = self._step(data)
            full = len(piece) == STEP_BYTES
            self._left -= len(piece)
            if self._left < 0:
                raise BadEncoding("a compressed answer grew too large")
            if piece:
                yield piece

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        if self._zlib.eof:
            # What follows the end is another member, or padding.
            if not data.strip(b"\0"):
                return b"", b""
            self._zlib = zlib.decompressobj(_EITHER)
        elif not self._fed and self._deflate and data[0] & 0x0F != 8:
            # Many servers send deflate without its wrapper.
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
        self._fed = True
        try:
            piece = self._zlib.decompress(data, STEP_BYTES)
        except zlib.error as error:
            raise BadEncoding("a compressed answer is damaged") from error
        return piece, self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail

    def ended_early(self) -> bool:
        """The body ended inside its compressed form."""
        return self._fed and not self._zlib.eof


def decoder_of(content_encoding: str, max_bytes: int) -> Decoder | None:
    """None where there is nothing to undo."""
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return Decoder(encoding, max_bytes)
    raise BadEncoding("the answer is in an encoding that was not asked for")
