"""Clients that go on calling until the gateway is gone, and what each of them knows of each call: how far it came, and what it was told it used."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support import sse
from tests.support.raw_http import RawClient


@dataclass(slots=True, kw_only=True)
class Seen:
    """One call as its client saw it. `call_id` is empty where no head of an answer came."""

    stream: bool
    call_id: str = ""
    status: int = 0
    body_bytes: int = 0
    terminal: bool = False
    """The end of the answer came: `[DONE]`, or the whole body."""
    usage: dict[str, Any] | None = None


@dataclass(slots=True)
class Load:
    """`clients` callers at once, every other one streaming. Ends by itself when the gateway ends."""

    port: int
    key: str
    clients: int = 6
    body: dict[str, object] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    open: int = 0
    """Calls under way now; once the load is over: those that were when the gateway ended."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> Load:
        self._threads = [threading.Thread(target=self._calls, args=(number % 2 == 0,), daemon=True) for number in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    def join(self, timeout_s: float = 20.0) -> list[Seen]:
        """When the gateway is gone: all that was seen."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "a client still waits for a gateway that is gone"
        return self.seen

    def _calls(self, stream: bool) -> None:
        while not self._stop.is_set():
            seen = Seen(stream=stream)
            try:
                with RawClient(self.port, timeout_s=10) as client:
                    self._one(client, seen)
            except (ConnectionError, OSError):
                return  # nobody listens any more
            if not seen.terminal:
                return

    def _one(self, client: RawClient, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)
            self.open += 1
        options: dict[str, object] = {"stream_options": {"include_usage": True}} if seen.stream else {}
        client.chat(self.key, headers={"Connection": "close"}, stream=seen.stream, **options, **self.body)
        answer = client.answer()
        seen.call_id, seen.status, seen.body_bytes = answer.headers.get("x-request-id", ""), answer.status, len(answer.body)
        if seen.stream:
            seen.terminal = any(event.done for event in answer.events)
            seen.usage = sse.usage(answer.body) if answer.status == 200 else None
        else:
            seen.terminal = answer.complete
            seen.usage = answer.json().get("usage") if answer.complete else None
        if seen.terminal:
            with self._lock:
                self.open -= 1
