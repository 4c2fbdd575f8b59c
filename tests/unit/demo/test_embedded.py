"""What `gateway up --engine` says of an address at which no engine answers as one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.demo.embedded import look_at
from gateway.errors import ConfigurationError


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """A server that says this to whoever comes, once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("data", "problem", "mend"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "without a credential", "--credential-env"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "there is no model server", "start it"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "there is no model server", "start it"),
        (b"", "there is no model server", "start it"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"data":[]}', "lists no models", "load a model"),
    ],
    ids=["401", "404", "no HTTP", "nothing", "no model"],
)
def test_what_is_no_engine_or_lets_nobody_in_is_told_with_its_mend(data: bytes, problem: str, mend: str) -> None:
    with answering(data) as address, pytest.raises(ConfigurationError) as told:
        look_at(address)
    first, cause, last = str(told.value).splitlines()
    assert problem in first and address in cause and mend in last


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "localhost", "ftp://127.0.0.1", "", "http://127.0.0.1:port", "http://[::1"])
def test_what_is_no_address_is_told_too(address: str) -> None:
    with pytest.raises(ConfigurationError, match="http://HOST:PORT"):
        look_at(address)
