"""What an engine may say that it should not, by the byte and in any cut: how the answer came out, and whether the connection may serve again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.connection import FRAMING_BYTES_MAX, EngineConnection

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = CHUNKS + b"2\r\n{}\r\n0\r\n\r\n"


class Transport:
    """The loop's end, as far as a connection needs it."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


@dataclass
class Outcome:
    """`end` is `ended`, `lost`, or empty while it is waited for."""

    status: int = 0
    body: bytes = b""
    end: str = ""
    again: bool = False

    def begun(self, status: int, headers: dict[str, str]) -> None:
        assert not self.status and not self.end
        self.status = status

    def arrived(self, data: bytes) -> None:
        assert self.status and not self.end
        self.body += data

    def ended(self) -> None:
        assert self.status and not self.end
        self.end = "ended"

    def lost(self, why: BaseException | None) -> None:
        assert not self.end
        self.end = "lost"


@dataclass
class Freed:
    times: int = 0

    def __call__(self, connection: EngineConnection) -> None:
        self.times += 1


def heard(pieces: list[bytes], *, closes: bool = True) -> Outcome:
    """What came of one request that was answered so; then the engine closes, or says nothing more."""
    freed, transport, outcome = Freed(), Transport(), Outcome()
    connection = EngineConnection(freed)
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.ask(outcome, b"POST / HTTP/1.1\r\n\r\n", b"")
    for piece in pieces:
        if not transport.closing:
            connection.data_received(piece)
    outcome.again = freed.times == 1 and not transport.closing
    assert freed.times <= 1
    if closes:
        connection.connection_lost(None)
    return outcome


def te(coding: str, body: bytes = b"2\r\n{}\r\n0\r\n\r\n", more: str = "") -> bytes:
    return OK + f"Transfer-Encoding: {coding}\r\n{more}\r\n".encode("latin-1") + body


GOOD = {
    "a length": LENGTH,
    "chunks": WHOLE,
    "interim answers": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 5 + LENGTH,
    "no content": b"HTTP/1.1 204 No\r\n\r\n",
}
LOST = {
    "a length and chunks": te("chunked", more="Content-Length: 2\r\n"),
    "chunks and a length": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}}",
    "two equal lengths": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": OK + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a plus": OK + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": OK + b"Content-Length: -2\r\n\r\n{}",
    "a length past all numbers": OK + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "a length that is not reached": OK + b"Content-Length: 3\r\n\r\n{}",
    "a blank before the colon": OK + b"Content-Length : 2\r\n\r\n{}",
    "a folded header": OK + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "bare carriage returns": LENGTH.replace(b"\r\n", b"\r"),
    "a zero byte in a value": OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "a header without a colon": OK + b"X\r\nContent-Length: 2\r\n\r\n{}",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "another version": LENGTH.replace(b"HTTP/1.1", b"HTTP/3.7"),
    "a status of letters": LENGTH.replace(b"200", b"2x0"),
    "an upgrade": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + LENGTH,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "headers of interim answers without end": (b"HTTP/1.1 103 Hints\r\n" + b"Link: x\r\n" * 20 + b"\r\n") * 20 + LENGTH,
    "headers without end": OK + b"X: y\r\n" * 100_000,
    "a header without end": OK + b"X: " + b"y" * 1_000_000,
    "a name without end": OK + b"y" * 1_000_000,
    "a reason without end": b"HTTP/1.1 200 " + b"y" * 1_000_000,
    "blank lines without end": b"\r\n" * 500_000,
    "a chunk size that is none": CHUNKS + b"zz\r\n{}\r\n0\r\n\r\n",
    "a negative chunk size": CHUNKS + b"-2\r\n{}\r\n0\r\n\r\n",
    "a chunk size past all numbers": CHUNKS + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKS + b"2\r\n{}{}\r\n0\r\n\r\n",
    "a chunk size without end": CHUNKS + b"0" * 1_000_000,
    "an extension without end": CHUNKS + b"2;a=" + b"x" * 1_000_000,
    "a chunk that is not whole": CHUNKS + b"5\r\n{}",
    "a last chunk that is not whole": CHUNKS + b"2\r\n{}\r\n0\r\n",
    "trailers without end": CHUNKS + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 100_000,
    "a largest chunk": CHUNKS + b"7fffffffffffffff\r\n{}",
}
ENDED = {
    "another answer behind it": LENGTH + LENGTH,
    "another answer behind its chunks": WHOLE + b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
    "more than its length": LENGTH + b"}}}}",
    "an answer behind one without a body": b"HTTP/1.1 204 No\r\n\r\n" + LENGTH,
    "a body behind one without": b"HTTP/1.1 304 Same\r\nContent-Length: 2\r\n\r\n{}",
    "one that closes": OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",
    "an older HTTP": LENGTH.replace(b"1.1", b"1.0"),
    "an end by closing": OK + b"\r\n{}",
    "a coding that is none, to the end": te("xchunked"),
    "chunked that is not last, to the end": te("chunked, identity"),
}
ALL = GOOD | LOST | ENDED


def as_expected(name: str, outcome: Outcome) -> None:
    if name in LOST:
        assert (outcome.end, outcome.again) == ("lost", False)
    else:
        assert (outcome.end, outcome.again) == ("ended", name in GOOD)
    if name not in LOST and "to the end" not in name:
        assert outcome.body in (b"{}", b"") and b"smuggled" not in outcome.body


@pytest.mark.parametrize("name", ALL)
def test_each_answer_comes_out_as_it_must_and_serves_again_only_if_all_was_in_order(name: str) -> None:
    as_expected(name, heard([ALL[name]]))


@pytest.mark.parametrize("name", [name for name in LOST if "without end" in name])
def test_what_has_no_end_is_given_up_before_much_of_it_was_taken(name: str) -> None:
    taken = 0

    data, freed, transport, outcome = ALL[name], Freed(), Transport(), Outcome()
    connection = EngineConnection(freed)
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.ask(outcome, b"", b"")
    for at in range(0, len(data), 4_096):
        connection.data_received(data[at : at + 4_096])
        taken += 4_096
        if transport.closing:
            break
    assert transport.closing and outcome.end == "lost"
    assert taken <= FRAMING_BYTES_MAX + 2 * 4_096


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([name for name in ALL if len(ALL[name]) < 5_000]), st.data())
def test_in_any_cut_it_comes_out_the_same(name: str, data: st.DataObject) -> None:
    raw = ALL[name]
    cuts = sorted(data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=12)))
    pieces = [raw[one:two] for one, two in zip([0, *cuts], [*cuts, len(raw)], strict=True) if one < two]
    outcome, whole = heard(pieces), heard([raw])
    as_expected(name, outcome)
    assert (outcome.status, outcome.end, outcome.again) == (whole.status, whole.end, whole.again)
    if name not in LOST:
        assert outcome.body == whole.body


@pytest.mark.parametrize("name", [name for name in ALL if len(ALL[name]) < 300])
def test_a_byte_at_a_time_it_comes_out_the_same(name: str) -> None:
    as_expected(name, heard([ALL[name][at : at + 1] for at in range(len(ALL[name]))]))
