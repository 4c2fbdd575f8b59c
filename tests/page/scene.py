"""What there is to see: two campaigns on two engines, runs at work and waiting, one that is out of budget, one that is closed with a conflict."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.toml import Tables

HOSTILE: Final = '<img src=x onerror="alert(1)">"&lt;'
APIS: Final = ["openai.chat", "openai.models"]
POLICY: Final[Tables] = {
    "apis": APIS,
    "timezone": "Asia/Shanghai",
    "models": {"mock": {"counter": "bytes"}, "qwen3.6:35b": {"counter": "bytes", "default_output_tokens": 256}},
    "lanes": {"foreground": {}, "background": {"models": ["mock"]}},
    "call": {"output_tokens": 400},
    "run": {"requests": 40, "output_tokens": 6_000, "wall_seconds": 3_600, "background": {"requests": 5}},
    "campaign": {"requests": 900, "output_tokens": 60_000, "day": {"output_tokens": 50_000}},
}
SMALL: Final[Tables] = {
    "apis": APIS,
    "models": {"mock": {"counter": "bytes", "default_output_tokens": 60}},
    "run": {"requests": 4, "output_tokens": 1_000},
    "campaign": {"requests": 500},
}
WORKING: Final = 7


class Scene:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        near = self._stack.enter_context(MockProcess(script={"output_tokens": 60, "gap_ms": 30, "prefill_ms": 500, "cached": 4}))
        far = self._stack.enter_context(MockProcess(script={"output_tokens": 90, "gap_ms": 25, "prefill_ms": 900}))
        second = {"address": far.url, "engine": "llama.cpp", "slots": 4, "models": {"qwen3.6:35b": "mock"}}
        settings: Tables = {"upstreams": {"gpu-b": second}, "limits": {"timezone": "Europe/Berlin", "day": {"requests": 3_000}}}
        self.gateway = self._stack.enter_context(
            GatewayProcess(self._folder, near.url, policies={"pilot": POLICY, "small": SMALL}, settings=settings, slots=2, models={"mock": "mock"})
        )
        control = self.gateway.control
        control.open_campaign("pilot-7", "pilot", planned=60)
        control.open_campaign("nightly", "small")
        self.quiet = control.open_run("nightly", "quiet", label=HOSTILE, task=HOSTILE)
        self.out = control.open_run("nightly", "out")
        self.done = control.open_run("nightly", "done", label="production")
        self._quiet_calls()
        self.working = [control.open_run("pilot-7", f"r{at:02}", label=("engineering", "production")[at % 2], task=f"fix-{at}") for at in range(WORKING + 2)]
        for at, run in enumerate(self.working[:WORKING]):
            threading.Thread(target=self._work, args=(run, at), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stack.close()

    def call(self, run: OpenedRun, *, lane: str = "", **body: Any) -> httpx.Response:
        """One whole call; its `x-request-id` names it."""
        key = run.keys[lane] if lane else run.key
        message = {"model": "mock", "messages": [{"role": "user", "content": "hello there"}], **body}
        with httpx.Client(base_url=self.gateway.address, timeout=60, trust_env=False) as client:
            return client.post("/v1/chat/completions", headers={"Authorization": f"Bearer {key}"}, json=message)

    def _quiet_calls(self) -> None:
        """Nothing else runs yet."""
        assert self.call(self.quiet, max_tokens=20).status_code == 200
        for _ in range(6):
            self.call(self.out, max_tokens=60)
        for _ in range(5):
            self.call(self.done, max_tokens=90)
        self.gateway.control.close_run(self.done, {"turn_end": "completed", "exit": 0, "outcomes": {"note": HOSTILE}})
        noted = {"run": "done", "as_of": 40, "classes": {"equal": 3, "ledger_only": 1}, "unexplained": 1, "sha256": "a" * 64}
        self.gateway.control.post("/v1/campaigns/nightly/reconciled", noted)

    def _work(self, run: OpenedRun, at: int) -> None:
        turn = at
        while not self._over.is_set():
            turn += 1
            lane = "background" if turn % 4 == 0 else "foreground"
            model = "mock" if lane == "background" or turn % 3 else "qwen3.6:35b"
            prompt = "word " * (30 + 70 * turn % 900)
            body = {"model": model, "stream": True, "max_tokens": (64, 128, 300)[turn % 3], "messages": [{"role": "user", "content": prompt}]}
            try:
                with httpx.Client(base_url=self.gateway.address, timeout=200, trust_env=False) as client:
                    answer = client.stream("POST", "/v1/chat/completions", headers={"Authorization": f"Bearer {run.keys[lane]}"}, json=body)
                    with answer as events:
                        for pieces, _ in enumerate(events.iter_bytes()):
                            if turn % 7 == 0 and pieces > 6:
                                break
                        if events.status_code != 200:
                            self._over.wait(1)
            except httpx.HTTPError:
                self._over.wait(0.2)
