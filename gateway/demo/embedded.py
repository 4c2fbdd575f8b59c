"""A set-up that needs no configuration: a folder with gateway.toml, a policy and a ledger, made for one engine.

What is written there are ordinary files: who wants more copies them and goes on with `gateway serve`.
"""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.errors import ConfigurationError

PREFERRED_PORT: Final = 8080
ASK_S: Final = 5.0
SOCKET_BYTES_MAX: Final = 100
"""A Unix socket's address may have 107 bytes."""
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fronted:
    """An engine to front: what the set-up must know of it."""

    address: str
    kind: str
    models: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Caps of the made policy."""

    run_requests: int = 200
    run_output_tokens: int = 20_000
    call_output_tokens: int = 1_024
    default_output_tokens: int = 256
    min_output_tokens: int = 16


def look_at(address: str) -> Fronted:
    """Asks a running model server what it is. Raises ConfigurationError where it does not answer as one."""
    address = address.rstrip("/").removesuffix("/v1")
    if not address.startswith(("http://", "https://")):
        raise _unlike(f"{address!r} is no address of a model server", "it begins with neither http:// nor https://", "name it so: http://HOST:PORT")
    try:
        listed = _get(address, "/v1/models")
    except PermissionError as error:
        mend = f"`gateway upstream probe {address} --credential-env VAR` prints its table with one; then a gateway.toml of your own and `gateway serve`"
        raise _unlike(f"the server at {address} lets nobody in without a credential", f"GET {address}/v1/models: {error}", mend) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        raise _unlike(f"there is no model server at {address}", f"GET {address}/v1/models: {why}", "start it, or name its address: http://HOST:PORT") from error
    data = listed.get("data") if isinstance(listed, dict) else None
    names = [entry["id"] for entry in data or () if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if not names:
        raise _unlike(f"the server at {address} lists no models", f"GET {address}/v1/models names none", "load a model in it first")
    try:
        properties = _get(address, "/props")
    except (OSError, ValueError, http.client.HTTPException):
        properties = None
    slots = properties.get("total_slots") if isinstance(properties, dict) else None
    kind = "llama.cpp" if isinstance(properties, dict) and "default_generation_settings" in properties else "generic"
    return Fronted(address=address, kind=kind, models=tuple(names), slots=slots if isinstance(slots, int) and slots > 0 else 1)


def make(folder: Path, engine: Fronted, caps: Caps | None = None, *, port: int | None = None) -> Path:
    """Writes gateway.toml and policies/embedded.toml into `folder` and returns the first. A ledger that lies there is kept."""
    (folder / "policies").mkdir(parents=True, exist_ok=True)
    (folder / "policies" / "embedded.toml").write_text(_policy(engine, caps or Caps()))
    config = folder / "gateway.toml"
    config.write_text(_settings(folder.absolute(), engine, _free_port() if port is None else port))
    return config


def _policy(engine: Fronted, caps: Caps) -> str:
    counter = "engine" if engine.kind == "llama.cpp" else "tiktoken:o200k_base"
    models = "\n".join(f'[models.{json.dumps(name)}]\ncounter = "{counter}"\ndefault_output_tokens = {caps.default_output_tokens}\n' for name in engine.models)
    return f"""# Made for this engine by `gateway up`. Copy it to make it yours; policies/reference.toml shows every key.
schema = 1
apis = ["openai.chat", "openai.models"]

{models}
[admission]
min_output_tokens = {caps.min_output_tokens}   # the last call of a run is sent with what is left, down to this

[call]
output_tokens = {caps.call_output_tokens}

[run]
requests = {caps.run_requests}
output_tokens = {caps.run_output_tokens}
concurrent = {max(4, engine.slots)}
"""


def _settings(folder: Path, engine: Fronted, port: int) -> str:
    models = "\n".join(f"{json.dumps(name)} = {json.dumps(name)}" for name in engine.models)
    return f"""# Made for this engine by `gateway up`. Copy it to make it yours; gateway.example.toml shows every key.
policies = "policies"

[data]
listen = "127.0.0.1:{port}"

[control]
socket = {json.dumps(str(_socket(folder)))}

[ledger]
path = "gateway.ledger"

[upstreams.engine]
address = {json.dumps(engine.address)}
engine = "{engine.kind}"
slots = {engine.slots}

[upstreams.engine.models]
{models}
"""


def _socket(folder: Path) -> Path:
    wanted = folder / "gateway.sock"
    if len(str(wanted).encode()) <= SOCKET_BYTES_MAX:
        return wanted
    return Path(tempfile.mkdtemp(prefix="gateway-")) / "gateway.sock"


def _free_port() -> int:
    """The usual one, or any where that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PREFERRED_PORT))
        except OSError:
            return 0
    return PREFERRED_PORT


def _get(address: str, path: str) -> object:
    try:
        with _DIRECT.open(address + path, timeout=ASK_S) as answer:
            return json.loads(answer.read(1 << 20))
    except urllib.error.HTTPError as error:
        kind = PermissionError if error.code in (401, 403) else ValueError
        raise kind(f"status {error.code}") from error


def _unlike(problem: str, cause: str, mend: str) -> ConfigurationError:
    return ConfigurationError(f"{problem}\n  cause: {cause}\n  mend:  {mend}")
