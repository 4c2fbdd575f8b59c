"""From the control plane's address, as a person or the environment says it, to a connection; what can't be one is told without saying the token."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from gateway.client.unix_socket import UnixConnection


def connection_to(address: str, wait_s: float, ca_file: str | Path | None = None) -> http.client.HTTPConnection:
    """By `http://HOST:PORT`, `https://HOST:PORT`, or else the path of a Unix socket. Raises ValueError, in words for a person."""
    if not address.startswith(("http://", "https://")):
        return UnixConnection(Path(address), wait_s)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{address} is no http://HOST:PORT or https://HOST:PORT: {error}.") from error
    if not host:
        raise ValueError(f"{address} names no host.")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port or 80, timeout=wait_s)
    try:
        return http.client.HTTPSConnection(host, port or 443, timeout=wait_s, context=ssl.create_default_context(cafile=ca_file))
    except OSError as error:
        raise ValueError(f"{ca_file} can't be used as a certificate's authority: {error.strerror or error}.") from error


def bearer(token: str) -> dict[str, str]:
    """The header that presents it, where there is one. Raises ValueError."""
    token = token.strip()
    if not token.isprintable() or max(token, default="") > "\xff":
        raise ValueError("The token holds a character that no header may hold, e.g. the end of a line.")
    return {"Authorization": f"Bearer {token}"} if token else {}
