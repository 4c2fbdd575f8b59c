"""The client of the control plane against servers that misbehave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.client.control import ControlClient, ControlError


@contextmanager
def answering(path: Path, answer: bytes | None) -> Iterator[None]:
    """One connection: reads the request and sends these bytes, then closes; None: never answers."""
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                if answer is None:
                    over.wait(20)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)) + body


@pytest.mark.parametrize(
    ("answer", "problem", "status"),
    [
        (None, "has not answered", 0),
        (b"", "can't be reached", 0),
        (b"nonsense\r\n\r\n", "can't be reached", 0),
        (http("200 OK", b"no json"), "can't be read", 0),
        (http("200 OK", b"[1]"), "can't be read", 0),
        (http("500 Internal Server Error", b"<html>"), "answered with an error", 500),
        (http("409 Conflict", b'{"error": {"problem": "P.", "cause": "C.", "mend": "M.", "code": "conflict", "limit": {"name": "campaign.runs"}}}'), "P.", 409),
    ],
)
def test_whatever_comes_back_is_an_answer_or_an_error_with_a_problem(tmp_path: Path, answer: bytes | None, problem: str, status: int) -> None:
    path = tmp_path / "g.sock"
    with answering(path, answer), pytest.raises(ControlError, match=problem) as caught:
        ControlClient(path, answer_s=0.3).status()
    assert caught.value.status == status
    if status == 409:
        error = caught.value
        assert (error.code, error.cause, error.mend, str(error)) == ("conflict", "C.", "M.", "P. C. M.")
        assert error.details["limit"] == {"name": "campaign.runs"}


def test_a_socket_that_nobody_hears_says_that_the_gateway_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "g.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ControlError, match="does not run"):
        ControlClient(path).campaigns()


def test_names_are_quoted_so_that_none_reaches_another_route(tmp_path: Path) -> None:
    path = tmp_path / "g.sock"
    seen: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(http("200 OK", b"{}"))

        thread = threading.Thread(target=serve)
        thread.start()
        ControlClient(path).run("a/b", "c?d=e")
        thread.join()
    assert seen[0].startswith(b"GET /v1/campaigns/a%2Fb/runs/c%3Fd%3De HTTP/1.1\r\n")
