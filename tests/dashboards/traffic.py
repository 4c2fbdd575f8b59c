"""Half a minute in the life of a gateway, with all that dashboards are there for: budgets, refusals, clamps, waits, cuts, failing engines, strangers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once

MODELS: Any = {
    "drifting": {"context_tokens": 120, "default_output_tokens": 16},
    "small": {"default_output_tokens": 48},
    "large": {"default_output_tokens": 48},
    "shaky": {"default_output_tokens": 16},
}
PLAIN: Any = {"apis": ["openai.chat", "openai.models", "tokenize"], "models": MODELS, "capture": True}
PILOT: Any = PLAIN | {
    "timezone": "UTC",
    "lanes": {"foreground": {}, "background": {}},
    "run": {"requests": 400},
    "campaign": {
        "output_tokens": 60_000,
        "requests": 2_000,
        "background": {"output_tokens": 9_000},
        "foreground": {"day": {"output_tokens": 40_000}},
        "concurrent": 6,
    },
}
SHORT: Any = PLAIN | {"run": {"requests": 3}}
CLAMPING: Any = PLAIN | {"run": {"output_tokens": 40}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1, "clamp_after_seconds": 0}}
HASTY: Any = PLAIN | {"run": {"wall_seconds": 2}}
POLICIES: Any = {"pilot": PILOT, "short": SHORT, "clamping": CLAMPING, "hasty": HASTY}

PACE: Any = {
    "models": {"small": {"prefill_ms": 60, "gap_ms": 12, "cached": 6, "output_tokens": 22}, "large": {"prefill_ms": 180, "gap_ms": 30, "reasoning_tokens": 8}}
}
FAULTS: Any = [
    {},
    {"die": "500"},
    {"die": "eof", "die_after": 4},
    {"die": "401"},
    {"ignore_cap": True, "output_tokens": 60},
    {"prompt_tokens": 900},
    {"die": "503"},
    {"die": "no_done"},
]
"""What the shaky engine does, one after the other."""


class Traffic:
    """A gateway with three engines, and agents that call it until `stop`."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(24)
        self._work: list[Any] = []

    def start(self) -> None:
        gateway = self.gateway
        lanes = {"lanes": ["foreground", "background"]}
        for number in range(3):
            run = gateway.opened("pilot", f"r{number}", policy="pilot", **lanes)
            for lane, model in (("foreground", "small"), ("foreground", "large"), ("background", "small")):
                key = run.keys[lane]
                self._spawn(lambda key=key, model=model: self._agent(key, model, pause_s=0.2))
        nightly = gateway.opened("nightly", "r1", policy="pilot")
        self._spawn(lambda: self._agent(nightly.key, "large", pause_s=0.5))
        shaky = gateway.opened("faults", "r1", policy="test")
        self._spawn(lambda: self._faults(shaky))
        self._spawn(lambda: self._drifting(shaky))
        self._spawn(self._refused)
        self._spawn(self._clamped)
        self._spawn(self._deadlines)
        self._spawn(self._leavers)
        gateway.control.post(
            "/v1/campaigns/nightly/reconciled", {"as_of": 1, "classes": {"equal": 41, "side_call": 2, "differs": 1}, "unexplained": 1, "sha256": "0" * 64}
        )

    def stop(self) -> None:
        self._stopped.set()
        self.gateway.control.post("/v1/campaigns/nightly/resume", {})  # its agents wait
        self._pool.shutdown(wait=True)
        for done in self._work:
            done.result()

    def _spawn(self, work: Callable[[], None]) -> None:
        self._work.append(self._pool.submit(work))

    def _until_stopped(self, pause_s: float) -> Iterator[int]:
        number = 0
        while not self._stopped.wait(pause_s):
            yield number
            number += 1

    def _agent(self, key: str, model: str, *, pause_s: float) -> None:
        choose = random.Random(key)
        for number in self._until_stopped(pause_s):
            text = "word " * choose.randint(20, 400)
            chat_once(
                self.gateway.port, key, model=model, stream=number % 4 != 3, max_tokens=choose.randint(8, 40), messages=[{"role": "user", "content": text}]
            )

    def _faults(self, run: OpenedRun) -> None:
        for number in self._until_stopped(0.1):
            chat_once(self.gateway.port, run.key, model="shaky", stream=number % 2 == 0, max_tokens=12)

    def _drifting(self, run: OpenedRun) -> None:
        """All that the context holds is asked for, so that the prompt must be counted."""
        for _ in self._until_stopped(12.0):
            chat_once(self.gateway.port, run.key, model="drifting", max_tokens=119, messages=[{"role": "user", "content": "hello there"}])

    def _refused(self) -> None:
        port = self.gateway.port
        for number in self._until_stopped(0.4):
            run = self.gateway.opened("capped", f"r{number}", policy="short")
            chat_once(port, run.key, model="nobody")
            for _ in range(5):
                chat_once(port, run.key, model="small", max_tokens=30)
            chat_once(port, "a-key-of-nobody")
            for method, path, body in (("GET", "/slots", b""), ("POST", "/tokenize", b'{"model": "small", "content": "one two three"}')):
                with RawClient(port) as client:
                    headers = {"Authorization": f"Bearer {run.key}", "Connection": "close", "Content-Type": "application/json"}
                    client.request(method, path, headers=headers, body=body)
                    client.answer()

    def _clamped(self) -> None:
        for number in self._until_stopped(0.5):
            run = self.gateway.opened("clamped", f"r{number}", policy="clamping")
            for _ in range(2):
                chat_once(self.gateway.port, run.key, model="small", max_tokens=32)

    def _deadlines(self) -> None:
        for number in self._until_stopped(0.5):
            run = self.gateway.opened("hasty", f"r{number}", policy="hasty")
            for _ in range(4):
                chat_once(self.gateway.port, run.key, model="large", max_tokens=44, stream=True)

    def _leavers(self) -> None:
        run = self.gateway.opened("leaving", "r1", policy="test")
        for _ in self._until_stopped(0.6):
            with RawClient(self.gateway.port) as client:
                client.chat(run.key, model="large", stream=True, max_tokens=40, messages=[{"role": "user", "content": "go"}])
                client.read_events(3)


@contextmanager
def traffic(folder: Path) -> Iterator[Traffic]:
    """Two engines that work, one that fails in every way in turn, one that is not there."""
    with ExitStack() as stack:
        fast, second, shaky = (stack.enter_context(MockProcess(script=PACE)) for _ in range(3))
        shaky.script({"served": ["shaky", "drifting"], "models": {"shaky": FAULTS * 200, "drifting": {"prompt_tokens": 31, "output_tokens": 3}}})

        def upstream(address: str, slots: int, *models: str) -> dict[str, Any]:
            return {"address": address, "engine": "llama.cpp", "slots": slots, "models": {model: model for model in models}}

        settings: Any = {
            "control": {"metrics_listen": "127.0.0.1:0"},
            "limits": {"output_tokens": 500_000},
            "upstreams": {
                "gpu-a": upstream(fast.url, 4, "small"),
                "gpu-b": upstream(second.url, 3, "large", "small"),
                "shaky": upstream(shaky.url, 2, "shaky", "drifting"),
                "gone": upstream("http://127.0.0.1:1", 2, "small"),
            },
        }
        gateway = GatewayProcess(folder, fast.url, policy=PLAIN, policies=POLICIES, settings=settings, models={"mock": "mock"})
        stack.enter_context(gateway)
        made = Traffic(gateway)
        made.start()
        try:
            yield made
        finally:
            made.stop()
