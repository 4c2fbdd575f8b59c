"""Requests by hand, framed as nobody should: what no server may take for a call, and what is odd and still means one thing."""

from __future__ import annotations

import json

from tests.support.control import OpenedRun
from tests.support.raw_http import CHAT
from tests.support.wire import chunked

BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}).encode()
STREAM = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "stream": True}).encode()
SMUGGLED = "smuggled"


def post(run: OpenedRun, more: str = "", body: bytes = BODY, *, length: bool = True, line: str = f"POST {CHAT} HTTP/1.1") -> bytes:
    """By hand: `more` are header lines as they are."""
    size = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"{line}\r\nHost: gateway\r\nAuthorization: Bearer {run.key}\r\n{size}{more}\r\n".encode("latin-1") + body


def hidden(run: OpenedRun) -> bytes:
    """A whole call, to be hidden behind or in another."""
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": SMUGGLED}]}).encode()
    return post(run, "Connection: close\r\n", body)


def malformed(run: OpenedRun) -> dict[str, bytes]:
    te = "Transfer-Encoding: chunked\r\n"
    whole, half = chunked(BODY), b"%x\r\n%s" % (len(BODY), BODY)

    def chunks(body: bytes) -> bytes:
        return post(run, te, body, length=False)

    return {
        "a length and chunks, by the length": post(run, te, b"0\r\n\r\n" + hidden(run)),
        "a length and chunks, by the chunks": post(run, te + "Content-Length: 4\r\n", whole + hidden(run), length=False),
        "chunks and a length": post(run, "Content-Length: 4\r\n" + te, whole, length=False),
        "two equal lengths": post(run, f"Content-Length: {len(BODY)}\r\n"),
        "two lengths": post(run, "Content-Length: 0\r\n") + hidden(run),
        "a list of lengths": post(run, f"Content-Length: {len(BODY)}, {len(BODY)}\r\n", length=False),
        "a length with a plus": post(run, f"Content-Length: +{len(BODY)}\r\n", length=False),
        "a length with a minus": post(run, "Content-Length: -1\r\n", length=False),
        "a hexadecimal length": post(run, "Content-Length: 0x50\r\n", length=False),
        "a length with a blank": post(run, "Content-Length: 8 3\r\n", length=False),
        "a length past all numbers": post(run, "Content-Length: 99999999999999999999999\r\n", length=False),
        "no length in letters": post(run, "Content-Length: many\r\n", length=False),
        "a blank before the colon": post(run, f"Content-Length : {len(BODY)}\r\n", length=False),
        "a tab before the colon": post(run, "Transfer-Encoding\t: chunked\r\n", whole, length=False),
        "a folded header": post(run, "X-Note: a\r\n b\r\n"),
        "a folded coding": post(run, "Transfer-Encoding:\r\n chunked\r\n"),
        "bare line feeds": post(run).replace(b"\r\n", b"\n"),
        "one bare line feed": post(run).replace(b"Host: gateway\r\n", b"Host: gateway\n"),
        "bare carriage returns": post(run).replace(b"\r\n", b"\r"),
        "a carriage return in a value": post(run, "X-Note: a\rTransfer-Encoding: chunked\r\n"),
        "a zero byte in a value": post(run, "X-Note: a\0b\r\n"),
        "a zero byte in a name": post(run, "X\0Note: a\r\n"),
        "a header without a colon": post(run, "X-Note\r\n"),
        "a header without a name": post(run, ": x\r\n"),
        "a coding that is none": post(run, "Transfer-Encoding: xchunked\r\n", whole, length=False),
        "chunked not last": post(run, "Transfer-Encoding: chunked, gzip\r\n", whole, length=False),
        "chunked, then identity": post(run, te + "Transfer-Encoding: identity\r\n", whole, length=False),
        "compressed chunks": post(run, "Transfer-Encoding: gzip, chunked\r\n", whole, length=False),
        "a coding alone": post(run, "Transfer-Encoding: gzip\r\n", BODY, length=False),
        "a coding behind a vertical tab": post(run, "Transfer-Encoding: \x0bchunked\r\n", whole, length=False),
        "a coding before a form feed": post(run, "Transfer-Encoding: chunked\x0c\r\n", whole, length=False),
        "a coding behind a hard blank": post(run, "Transfer-Encoding:\xa0chunked\r\n", whole, length=False),
        "a coding in quotes": post(run, 'Transfer-Encoding: "chunked"\r\n', whole, length=False),
        "a coding with a parameter": post(run, "Transfer-Encoding: chunked;q=1\r\n", whole, length=False),
        "a coding and a comma": post(run, "Transfer-Encoding: chunked,\r\n", whole, length=False),
        "a comma and a coding": post(run, "Transfer-Encoding: ,chunked\r\n", whole, length=False),
        "chunked twice in a line": post(run, "Transfer-Encoding: chunked, chunked\r\n", whole, length=False),
        "chunked twice": post(run, te + te, whole, length=False),
        "an empty coding": post(run, "Transfer-Encoding:\r\n", whole, length=False),
        "an empty coding and a length": post(run, "Transfer-Encoding: \r\n"),
        "identity and a length": post(run, "Transfer-Encoding: identity\r\n"),
        "an underscore in the coding's name": post(run, "Transfer_Encoding: chunked\r\n", whole, length=False),
        "an empty length": post(run, "Content-Length: \r\n", length=False),
        "a length and a comma": post(run, f"Content-Length: {len(BODY)},\r\n", length=False),
        "a length behind a vertical tab": post(run, f"Content-Length: \x0b{len(BODY)}\r\n", length=False),
        "a length with a fraction": post(run, f"Content-Length: {len(BODY)}.0\r\n", length=False),
        "a length with an underscore": post(run, "Content-Length: 8_3\r\n", length=False),
        "a length in other digits": post(run, "Content-Length: \xb2\r\n", length=False),
        "the first header is folded": post(run).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\n X: y\r\n"),
        "chunks of HTTP/1.0": post(run, te, whole, length=False, line=f"POST {CHAT} HTTP/1.0"),
        "a chunk size that is none": chunks(b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a negative chunk size": chunks(b"-5\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a chunk size with a plus": chunks(b"+" + whole),
        "a chunk size with 0x": chunks(b"0x" + whole),
        "a chunk size past all numbers": chunks(b"f" * 17 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "an empty chunk size": chunks(b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a chunk longer than its size": chunks(half + b"XX\r\n0\r\n\r\n"),
        "a chunk size ended by a line feed": chunks(whole.replace(b"\r\n", b"\n", 1)),
        "chunks ended by line feeds": chunks(whole.replace(b"\r\n", b"\n")),
        "a chunk size behind a blank": chunks(b" " + whole),
        "a chunk size before a blank": chunks(whole.replace(b"\r\n", b" \r\n", 1)),
        "a chunk size that wraps around": chunks(b"1" + b"0" * 15 + whole),
        "an extension ended by a line feed": chunks(whole.replace(b"\r\n", b";a\n", 1)),
        "an extension with a line feed": chunks(whole.replace(b"\r\n", b";a\nb\r\n", 1)),
        "an extension with a carriage return": chunks(whole.replace(b"\r\n", b";a\rb\r\n", 1)),
        "an extension with a zero byte": chunks(whole.replace(b"\r\n", b";a=\0\r\n", 1)),
        "an extension with a line's end in quotes": chunks(whole.replace(b"\r\n", b';a="\r\n', 1) + b'"\r\n'),
        "a chunk without its end": chunks(half + b"0\r\n\r\n"),
        "a chunk ended by a line feed": chunks(half + b"\n0\r\n\r\n"),
        "a chunk ended by a carriage return": chunks(half + b"\r0\r\n\r\n"),
        "a last chunk ended by line feeds": chunks(half + b"\r\n0\n\n"),
        "a body ended by a line feed": chunks(half + b"\r\n0\r\n\n"),
        "a coding among the trailers": chunks(whole[:-2] + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
        "a trailer ended by a line feed": chunks(whole[:-2] + b"X-T: 1\n\r\n"),
        "a request among the trailers": chunks(whole[:-2] + b"GET /x HTTP/1.1\r\n\r\n"),
        "thousands of trailers": chunks(whole[:-2] + b"X-T: 1\r\n" * 5_000 + b"\r\n"),
        "a huge trailer": chunks(whole[:-2] + b"X-T: " + b"1" * 300_000 + b"\r\n\r\n"),
        "two hosts": post(run, "Host: other\r\n"),
        "no host": post(run).replace(b"Host: gateway\r\n", b""),
        "more headers than are taken": post(run, "".join(f"X-{number}: 1\r\n" for number in range(130))),
        "large headers that are too much together": post(run, "".join(f"X-{number}: {'a' * 15_000}\r\n" for number in range(100))),
        "blank lines without end": b"\r\n" * 500_000 + post(run),
        "thousands of headers": post(run, "".join(f"X-{number}: 1\r\n" for number in range(5_000))),
        "a huge header": post(run, f"X-Note: {'a' * 300_000}\r\n"),
        "a huge header name": post(run, f"{'a' * 300_000}: 1\r\n"),
        "a huge target": post(run, line=f"POST /{'a' * 300_000} HTTP/1.1"),
        "a huge query": post(run, line=f"POST {CHAT}?{'a' * 300_000} HTTP/1.1"),
        "a method that is none": post(run, line=f"GRAB {CHAT} HTTP/1.1"),
        "a version that is none": post(run, line=f"POST {CHAT} HTTP/4.2"),
        "HTTP/0.9": b"GET /v1/models\r\n\r\n",
        "a version in small letters": post(run, line=f"POST {CHAT} http/1.1"),
        "a method in small letters": post(run, line=f"post {CHAT} HTTP/1.1"),
        "a request line with tabs": post(run, line=f"POST\t{CHAT}\tHTTP/1.1"),
        "a request line with a blank behind it": post(run, line=f"POST {CHAT} HTTP/1.1 "),
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden(run),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
        "a blank before the method": b" " + post(run),
    }


def odd(run: OpenedRun) -> dict[str, bytes]:
    """Each is one call, to whoever reads it by the standard."""
    te = "Transfer-Encoding: chunked\r\n"
    whole, half, size = chunked(BODY), b"%x\r\n%s" % (len(BODY), BODY), len(BODY)

    def chunks(body: bytes, more: str = "") -> bytes:
        return post(run, te + more, body, length=False)

    return {
        "a plain one": post(run),
        "chunks": chunks(whole),
        "a coding in capitals": post(run, "TRANSFER-ENCODING: CHUNKED\r\n", whole, length=False),
        "a coding behind a tab": post(run, "Transfer-Encoding:\tchunked\r\n", whole, length=False),
        "a length with zeros in front": post(run, f"Content-Length: 000{size}\r\n", length=False),
        "a length between tabs": post(run, f"Content-Length:\t{size}\t\r\n", length=False),
        "another length in a name with an underscore": post(run, "Content_Length: 3\r\n"),
        "an extension": chunks(whole.replace(b"\r\n", b';a="b c";d\r\n', 1)),
        "a large extension": chunks(whole.replace(b"\r\n", b";a=" + b"x" * 20_000 + b"\r\n", 1)),
        "an extension of the last chunk": chunks(half + b"\r\n0;x=y\r\n\r\n"),
        "a chunk size with zeros in front": chunks(b"0" * 20 + whole),
        "a last chunk of three zeros": chunks(half + b"\r\n000\r\n\r\n"),
        "a trailer": chunks(whole[:-2] + b"X-T: 1\r\n\r\n", "Trailer: X-T\r\n"),
        "a blank line in front": b"\r\n" + post(run),
        "an option of the connection by a framing header's name": post(run, "Connection: content-length\r\n"),
        "the coding as an option of the connection": chunks(whole, "Connection: transfer-encoding, keep-alive\r\n"),
        "an upgrade": post(run, "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        "an upgrade of HTTP": post(run, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"),
        "an upgrade with chunks": chunks(whole, "Connection: Upgrade\r\nUpgrade: h2c\r\n"),
        "something else expected": post(run, "Expect: 200-ok\r\n"),
        "a call in a GET": post(run, "", hidden(run), line="GET /undeclared HTTP/1.1"),
        "a call in a HEAD": post(run, "", hidden(run), line="HEAD /undeclared HTTP/1.1"),
        "a call in the chunks of an OPTIONS": post(run, te, chunked(hidden(run)), length=False, line="OPTIONS /undeclared HTTP/1.1"),
        "a call in a DELETE": post(run, "", hidden(run), line="DELETE /undeclared HTTP/1.1"),
        "a call in a call": post(run, "", hidden(run)),
        "an authority in front": post(run, line=f"POST http://other{CHAT} HTTP/1.1"),
        "a connection that is asked for": post(run, "", b"", length=False, line="CONNECT other:80 HTTP/1.1"),
        "a trace": post(run, "", b"", length=False, line="TRACE /undeclared HTTP/1.1"),
        "HTTP/1.0": post(run, line=f"POST {CHAT} HTTP/1.0"),
        "HTTP/1.0, kept": post(run, "Connection: keep-alive\r\n", line=f"POST {CHAT} HTTP/1.0"),
    }
