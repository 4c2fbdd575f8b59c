"""HTTP requests off the wire, however they are cut."""

from __future__ import annotations

import pytest

from gateway.mock_engine.wire import parse_request

COUNTED = b"POST /x?y=1 HTTP/1.1\r\nContent-Length: 5\r\nX-Request-Id: r1\r\n\r\nhello"
CHUNKED = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\n\r\n"


@pytest.mark.parametrize("raw", [COUNTED, CHUNKED])
def test_a_request_is_whole_at_its_last_byte_and_not_before(raw: bytes) -> None:
    assert all(parse_request(bytearray(raw[:length])) is None for length in range(len(raw)))
    taken = parse_request(bytearray(raw + b"GET"))
    assert taken is not None and taken[0] is not None
    assert (taken[0].method, taken[0].body, taken[1]) == ("POST", b"hello", len(raw))


def test_headers_are_found_by_name() -> None:
    taken = parse_request(bytearray(COUNTED))
    assert taken is not None and taken[0] is not None
    assert taken[0].header("x-request-id") == "r1" and taken[0].path == "/x?y=1"


def test_a_client_that_waits_for_the_word_to_go_on_is_noticed() -> None:
    assert parse_request(bytearray(b"POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")) == (None, 0)


def test_what_is_no_http_is_an_error() -> None:
    with pytest.raises(ValueError):
        parse_request(bytearray(b"hello\r\n\r\n"))
