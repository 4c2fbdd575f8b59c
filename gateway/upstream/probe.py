"""Finds out what stands at an address: which model server, which models, which paths of it answer.

Each question has its time, all of them together have one, no redirect is followed, and nothing is generated unless a call is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.engines import ENGINES
from gateway.engines.engine import Engine
from gateway.errors import EngineFailure
from gateway.upstream.forward import Upstream
from gateway.upstream.identity import Identity, read_identity
from gateway.upstream.marks import MARK_PATHS, MODELS_PATH, Recognised, Said, recognise
from gateway.upstream.watch import Timeouts

ANSWER_S: Final = 5
"""Of one question."""
PROBE_S: Final = 30.0
"""Of all questions."""
CALL_S: Final = 60
"""Of one call of one token, where calls are asked for."""
ANSWER_BYTES: Final = 4 * 1024 * 1024
AT_ONCE: Final = 3
_TURN: Final = ({"role": "user", "content": "a"},)
HEALTH_PATHS: Final = ("/health", "/v1/health", "/ping", "/api/version", "/v1/models")
"""Where servers say that they are well, best first. `/health_generate` makes one of them work and is never asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What was found."""

    recognised: Recognised
    identity: Identity
    context_tokens: int | None
    health: Mapping[str, Said]
    """Every health path that was asked, the one that was given first."""
    tokenizer: str = ""
    counts_chat: bool = False
    """Its tokenizer or template takes a conversation."""
    counts_messages: bool = False
    streams: str = ""
    """Whether a chat stream reports usage: `unasked`, `asked`, `never`, or empty."""
    tried: bool = False
    """A call told so; else it is what is known of the server."""
    listing: Said
    """What the list of models answered."""
    shut: tuple[str, ...] = ()
    """Paths that want a credential, or another one: some servers show their models to everybody."""

    @property
    def engine(self) -> Engine:
        return ENGINES[self.recognised.product.kind]

    @property
    def health_path(self) -> str:
        """The first that answers well; empty where none does."""
        return next((path for path, said in self.health.items() if said.good), "")

    @property
    def slots(self) -> int | None:
        found = self.identity.fingerprint.get("slots")
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


async def probe(address: str, *, credential: str | None = None, ca_file: str | None = None, health_path: str = "", calls: bool = False) -> Probed:
    """Raises ConfigurationError for an address that can't be used, EngineFailure where nothing answers."""
    times = Timeouts(connect_s=ANSWER_S, first_byte_s=CALL_S if calls else ANSWER_S, between_chunks_s=ANSWER_S, whole_s=CALL_S if calls else ANSWER_S)
    upstream = Upstream(name="probe", address=address, engine=ENGINES["generic"], timeouts=times, credential=credential, ca_file=ca_file)
    try:
        async with asyncio.timeout(PROBE_S + (2 * CALL_S if calls else 0)):
            return await _Asking(upstream).all(health_path, calls)
    except TimeoutError as error:
        raise EngineFailure("timeout", "probe", f"its answers took longer than {PROBE_S:g} s in all") from error
    finally:
        await upstream.close()


class _Asking:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._said: dict[str, Said] = {}
        self._shut: list[str] = []

    async def all(self, health_path: str, calls: bool) -> Probed:
        listing = await self._ask(MODELS_PATH)
        if listing.failure is not None:  # nothing else would answer either: one failure is enough
            raise listing.failure
        self._said |= dict(zip(MARK_PATHS, await asyncio.gather(*map(self._ask, MARK_PATHS)), strict=True))
        recognised = recognise(self._said)
        identity = read_identity(listing.value if listing.good else None, {"/props": self._good("/props")})
        health = await self._health(recognised, health_path)
        model = identity.models[0] if identity.models else ""
        tokenizer = await self._tokenizer(recognised, model)
        streams = await self._streams(model) if calls and model else ""
        return Probed(
            recognised=recognised,
            identity=identity,
            context_tokens=identity.context_tokens or _number(self._good("/info"), "max_total_tokens"),
            health=health,
            tokenizer=tokenizer,
            counts_chat=await self._counts_chat(recognised, model),
            counts_messages=await self._counts_messages(model),
            streams=streams or recognised.product.streams,
            tried=bool(streams),
            listing=listing,
            shut=tuple(dict.fromkeys(self._shut)),
        )

    async def _health(self, recognised: Recognised, given: str) -> dict[str, Said]:
        """Stops at the first that answers well: what is given first, then the kind's own, then all that servers have."""
        found: dict[str, Said] = {}
        own = ENGINES[recognised.product.kind].health_path
        for path in dict.fromkeys([*([given] if given else []), own, *HEALTH_PATHS]):
            found[path] = await self._ask(path)
            if found[path].good:
                break
        return found

    async def _tokenizer(self, recognised: Recognised, model: str) -> str:
        for path, body in recognised.product.tokenizer:
            if (await self._ask(path, {"model": model, **body})).good:
                return path
        return ""

    async def _counts_chat(self, recognised: Recognised, model: str) -> bool:
        path = recognised.product.of_chat
        return bool(path) and (await self._ask(path, {"model": model, "messages": _TURN})).good

    async def _counts_messages(self, model: str) -> bool:
        body = {"model": model, "max_tokens": 1, "messages": _TURN}
        said = await self._ask("/v1/messages/count_tokens", body)
        return said.good and _number(said.value, "input_tokens") is not None

    async def _streams(self, model: str) -> str:
        """By a call of one token, and a second one that asks. A call that fails says nothing."""
        body = {"model": model, "messages": _TURN, "max_tokens": 1, "stream": True}
        for word, more in (("unasked", {}), ("asked", {"stream_options": {"include_usage": True}})):
            status, text = await self._text("/v1/chat/completions", body | more)
            if status != 200 or b'{"error":' in text:
                return ""
            if b'"completion_tokens":' in text or b'"predicted_n":' in text:
                return word
        return "never"

    async def _ask(self, path: str, body: Mapping[str, object] | None = None) -> Said:
        async with self._turns:
            if body is None and path in self._said:
                return self._said[path]
            said = await self._once(path, body)
            if said.failure is not None and said.failure.kind == "closed":  # a connection kept from the question before
                said = await self._once(path, body)
        if said.status == 401 or (said.status == 403 and path == MODELS_PATH):  # elsewhere 403 may speak of the path
            self._shut.append(path)
        if body is None:
            self._said[path] = said
        return said

    async def _once(self, path: str, body: Mapping[str, object] | None) -> Said:
        data, method = (b"", "GET") if body is None else (orjson.dumps(body), "POST")
        try:
            async with asyncio.timeout(ANSWER_S), self._upstream.send(path, data, method=method) as answer:
                read = await answer.read(ANSWER_BYTES)
                return Said(status=answer.status, headers={name.lower(): value for name, value in answer.headers.items()}, value=_json(read))
        except EngineFailure as failure:
            return Said(failure=failure)
        except TimeoutError:
            return Said(failure=EngineFailure("timeout", "first_byte", f"{path} took longer than {ANSWER_S} s"))

    async def _text(self, path: str, body: Mapping[str, object]) -> tuple[int, bytes]:
        for _ in range(2):  # a connection kept from the question before may be dead
            try:
                async with asyncio.timeout(CALL_S), self._upstream.send(path, orjson.dumps(body)) as answer:
                    return answer.status, await answer.read(ANSWER_BYTES)
            except EngineFailure as failure:
                if failure.kind != "closed":
                    break
            except TimeoutError:
                break
        return 0, b""

    def _good(self, path: str) -> object:
        said = self._said.get(path, Said())
        return said.value if said.good else None


def _json(data: bytes) -> object:
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value


def _number(value: object, name: str) -> int | None:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
