"""What gateway.toml may say: where things are and how much the process may use. What is allowed to agents stands in policies.

The rule: every bound is named here with its default and its reason; a secret never stands in the file, only the name of the variable that holds it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from gateway.engines import ENGINES
from gateway.policy.declaration import Amount, GatewayLimits, Positive, Table
from gateway.policy.values import unknown_word

TOKEN_MIN: Final = 32
"""Characters of the control plane's token: whoever has it may spend."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTEN = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")


def _listen(value: str) -> str:
    found = _LISTEN.fullmatch(value)
    if found is None or int(found[1]) > 65535:
        raise ValueError(f'"{value}" is no address to listen on; write "HOST:PORT", e.g. "127.0.0.1:8080" (port 0 takes a free one)')
    return value


def _listen_or_none(value: str) -> str:
    return value if value == "none" else _listen(value)


def _engine(value: str) -> str:
    if value not in ENGINES:
        raise ValueError(unknown_word(value, list(ENGINES)))
    return value


def _address(value: str) -> str:
    """Scheme, host and port: paths are the engine kind's own."""
    try:
        parts = urlsplit(value)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError('no address of an engine; write "http://HOST:PORT" or "https://HOST:PORT"')
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no credential; name its environment variable in credential_env")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"leave out what follows the port: the gateway knows the paths of the engine ({parts.scheme}://{parts.netloc})")
    return value.rstrip("/")


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("must be the name of an environment variable (letters, digits, _), not the secret itself")
    return value


Variable = Annotated[str, AfterValidator(_variable)]
Listen = Annotated[str, AfterValidator(_listen)]
Seconds = Annotated[int, Field(strict=True, ge=1, le=86_400)]


class Data(Table):
    """Where agents come in."""

    listen: Annotated[str, AfterValidator(_listen_or_none)] = Field(
        default="127.0.0.1:8080", description="HOST:PORT of the data plane; port 0 takes a free one; none: only the socket"
    )
    socket: Path | None = Field(default=None, description="Unix socket of the data plane, also for a sandbox without any network; open to all: keys protect it")
    tls_cert: Path | None = Field(default=None, description="PEM file of the certificate with which `listen` speaks HTTPS")
    tls_key: Path | None = Field(default=None, description="PEM file of its key")


class Control(Table):
    """Where drivers and the command line come in."""

    socket: Path = Field(default=Path("gateway.sock"), description="Unix socket of the control plane, made with mode 0600")
    listen: Listen | None = Field(default=None, description="HOST:PORT of the control plane over TCP, for who presents the token; never on the agents' network")
    token_env: Variable | None = Field(default=None, description="environment variable that holds the token of `listen`, 32 characters or more")
    tls_cert: Path | None = Field(default=None, description="PEM file of the certificate with which `listen` speaks HTTPS")
    tls_key: Path | None = Field(default=None, description="PEM file of its key")
    metrics_listen: Listen | None = Field(
        default=None, description="HOST:PORT on which metrics and health alone are also served; without it only on the socket"
    )


class LedgerSettings(Table):
    """The durable book."""

    path: Path = Field(default=Path("gateway.ledger"), description="SQLite file of the ledger; one gateway at a time serves it")
    min_free_bytes: Amount = Field(default=256 << 20, description="with less free disk nothing is forwarded: a full disk must not lose an entry")


class Capture(Table):
    """Bodies of calls, where a policy says `capture = true`."""

    max_bytes: Amount = Field(default=10 << 30, description="of all kept bodies, compressed; beyond it none is kept any more, and that is counted")


class Timeouts(Table):
    """How long an upstream may take, phase by phase."""

    connect_s: Seconds = Field(default=5, description="to accept a connection; a server on your network does or is down")
    first_byte_s: Seconds = Field(default=600, description="from the whole request sent to the first byte: long prompts on small machines are slow")
    between_chunks_s: Seconds = Field(default=120, description="between two pieces of an answer")
    whole_s: Seconds = Field(default=3600, description="from the whole request sent to the end of the answer")


class UpstreamSettings(Table):
    """One engine at one address."""

    address: Annotated[str, AfterValidator(_address)] = Field(description="http://HOST:PORT or https://HOST:PORT")
    engine: Annotated[str, AfterValidator(_engine)] = Field(default="generic", description="kind of model server: llama.cpp, vllm, sglang, ollama or generic")
    slots: Annotated[int, Field(strict=True, ge=1, le=100_000)] = Field(default=1, description="calls that it works on at once; llama.cpp: its --parallel")
    models: dict[str, str] = Field(min_length=1, description="name that agents use = the engine's own name")
    credential_env: Variable | None = Field(default=None, description="environment variable that holds the bearer token of the engine")
    ca_file: Path | None = Field(default=None, description="PEM file of the authority that signed an https engine, where the system does not know it")
    circuit_failures: Annotated[int, Field(strict=True, ge=0, le=1_000)] = Field(
        default=5, description="calls that fail in a row, of two runs at least, after which it gets none for some seconds; 0: never"
    )
    health_path: str | None = Field(default=None, description="path that answers 200 when it is healthy, where it is not the kind's own")
    timeouts: Timeouts = Field(default=Timeouts(), description="a time-out for each phase")

    @field_validator("health_path")
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("a path begins with /")
        return value


class Bounds(Table):
    """What the process may hold and how long it waits. None of them is a budget."""

    max_body_bytes: Positive = Field(default=32 << 20, description="largest request body; a long session with pictures stays below")
    max_inline_bytes: Positive = Field(
        default=16 << 20, description="largest picture, sound or file that stands in a body as text (a data URI, base64), in bytes of that text"
    )
    max_depth: Annotated[int, Field(strict=True, ge=2, le=512)] = Field(
        default=64, description="deepest nesting of a body; no API needs 20, parsers fall over at 1,000"
    )
    max_keys: Positive = Field(default=200_000, description="keys of a body over all objects; a million tiny ones cost memory far above their bytes")
    max_event_bytes: Positive = Field(
        default=16 << 20, description="largest event of a stream that is held until its end has come; whole files pass as tool arguments"
    )
    max_response_bytes: Positive = Field(default=32 << 20, description="largest answer without a stream that is held whole before it goes out")
    queue_length: Positive = Field(default=1000, description="calls that may wait at once; the next one is told that the gateway is overloaded")
    affinity_wait_ms: Annotated[int, Field(strict=True, ge=0, le=120_000)] = Field(
        default=2000, description="longest wait for the engine that a run used last and so knows its prompt, while another has a slot; 0: the emptiest"
    )
    max_connections: Positive = Field(default=4096, description="open connections of agents; each costs a file and some 50 kB")
    max_head_bytes: Positive = Field(default=128 << 10, description="largest head of a request (its line and all its headers), or what one read brings of it")
    head_seconds: Seconds = Field(default=20, description="longest that the head of a request may take, from its first byte")
    body_seconds: Seconds = Field(default=60, description="longest that the body of a request may take")
    idle_seconds: Seconds = Field(default=75, description="how long an idle connection is kept; longer than a proxy in front keeps its own")
    helper_calls: Positive = Field(default=4, description="requests to an engine for counting prompts at once; they must not crowd out the calls themselves")
    keepalive_after_s: Seconds = Field(default=60, description="silence of an engine after which a stream gets comments, so that nothing on the way gives up")
    drain_seconds: Seconds = Field(default=600, description="longest that an abandoned call is read to its end for its usage, where the engine would not stop")
    shutdown_seconds: Annotated[int, Field(strict=True, ge=0, le=3600)] = Field(default=20, description="how long running calls may go on after SIGTERM")


class SettingsTable(Table):
    """gateway.toml as a whole."""

    policies: Path = Field(default=Path("policies"), description="folder of the policy files")
    data: Data = Field(default=Data(), description="the data plane")
    control: Control = Field(default=Control(), description="the control plane")
    ledger: LedgerSettings = Field(default=LedgerSettings(), description="the ledger")
    capture: Capture = Field(default=Capture(), description="bodies that policies ask to keep")
    upstreams: dict[str, UpstreamSettings] = Field(min_length=1, description="the engines by a name of your own")
    limits: GatewayLimits = Field(default=GatewayLimits(), description="limits over all that passes this gateway (scope gateway)")
    bounds: Bounds = Field(default=Bounds(), description="what the process may hold")
