"""Whether an engine can be used, asked at its health path again and again.

A health path that is not there is a mistake in the configuration, not a dead engine: it is told as such, and the engine counts as healthy while it answers.
One refused connection is enough to count as unhealthy; silence must come three times, for a busy engine may be slow to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.errors import EngineFailure
from gateway.upstream.forward import Upstream

INTERVAL_S: Final = 5.0
INTERVAL_UNHEALTHY_S: Final = 1.0
SILENCES: Final = 3
REFUSES: Final = "refuses connections"


class State(StrEnum):
    UNKNOWN = "unknown"
    """Not asked yet, or silent but not yet given up."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    state: State
    reason: str = ""
    """Why it is not healthy, or what is wrong although it is. Without addresses: it may be shown."""
    since_ms: int = 0
    wrong_path: bool = False
    """The health path is not one of this engine's."""

    @property
    def usable(self) -> bool:
        """Calls may be sent: it is not known to be down."""
        return self.state is not State.UNHEALTHY


class HealthProbe:
    """One upstream's. `run()` until cancelled; `health` is the last known."""

    def __init__(
        self,
        upstream: Upstream,
        now_ms: Callable[[], int],
        *,
        path: str | None = None,
        on_change: Callable[[Health], None] = lambda _health: None,
        on_answer: Callable[[Health], None] = lambda _health: None,
        interval_s: float = INTERVAL_S,
        interval_unhealthy_s: float = INTERVAL_UNHEALTHY_S,
    ) -> None:
        self._upstream = upstream
        self._path = path or upstream.engine.health_path
        self._now_ms = now_ms
        self._on_change = on_change
        self._on_answer = on_answer
        self._interval_s = interval_s
        self._interval_unhealthy_s = interval_unhealthy_s
        self._silences = 0
        self._soon = asyncio.Event()
        self.health = Health(state=State.UNKNOWN)

    async def run(self) -> None:
        while True:
            await self.probe()
            interval_s = self._interval_s if self.health.state is State.HEALTHY else self._interval_unhealthy_s
            try:
                async with asyncio.timeout(interval_s):
                    await self._soon.wait()
            except TimeoutError:
                continue
            finally:
                self._soon.clear()

    def look_soon(self) -> None:
        """Don't wait for the next turn."""
        self._soon.set()

    def refused(self) -> None:
        """A call found that the engine refuses connections."""
        self._set(State.UNHEALTHY, REFUSES)
        self.look_soon()

    async def probe(self) -> Health:
        """Asks once, now."""
        try:
            status, answer = await self._upstream.get_json(self._path)
        except EngineFailure as failure:
            self._failed(failure)
        else:
            self._silences = 0
            await self._answered(status, answer)
        self._on_answer(self.health)
        return self.health

    def _failed(self, failure: EngineFailure) -> None:
        if failure.kind == "unreachable":
            self._set(State.UNHEALTHY, REFUSES)
            return
        self._silences += 1
        if self._silences >= SILENCES:
            self._set(State.UNHEALTHY, f"does not answer its health path ({failure.kind}{' ' + failure.phase if failure.phase else ''})")

    async def _answered(self, status: int, answer: object) -> None:
        if status == 200:
            self._set(State.HEALTHY)
        elif status in (404, 405, 501):
            await self._no_such_path(status)
        elif status in (401, 403):
            self._set(State.HEALTHY, f"health path {self._path} answers {status}: the credential is missing or wrong")
        elif 300 <= status < 400:
            self._set(State.UNHEALTHY, f"health path {self._path} answers {status}, a redirect: the address is not the engine's own")
        else:
            self._set(State.UNHEALTHY, f"health path {self._path} answers {status}{_said(answer)}")

    async def _no_such_path(self, status: int) -> None:
        models_path = self._upstream.engine.models_path
        reason = f"health path {self._path} answers {status}: this engine has no such path; set health_path"
        try:
            models_status, _ = await self._upstream.get_json(models_path)
        except EngineFailure as failure:
            self._failed(failure)
            return
        if models_status < 500 and models_status != 404:
            self._set(State.HEALTHY, f"{reason} ({models_path} answers {models_status})", wrong_path=True)
        else:
            self._set(State.UNHEALTHY, f"{reason}; {models_path} answers {models_status} too: is this a model server?", wrong_path=True)

    def _set(self, state: State, reason: str = "", *, wrong_path: bool = False) -> None:
        before = self.health
        changed = before.state is not state
        self.health = Health(state=state, reason=reason, since_ms=self._now_ms() if changed else before.since_ms, wrong_path=wrong_path)
        if changed or before.reason != reason:
            self._on_change(self.health)


def _said(answer: object) -> str:
    """llama.cpp says `Loading model` here."""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return f": {message[:80]}" if isinstance(message, str) else ""
