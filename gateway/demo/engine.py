"""A small real engine: llama.cpp's own server in a process of its own, on a free port of 127.0.0.1.

What is started here is stopped here, by its process id; an engine never outlives its starter. For use in `with` and in `async with`.
"""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gateway.demo import engine_reading
from gateway.demo.engine_reading import EngineCounters
from gateway.demo.packages import require, smollm2_path
from gateway.demo.tiny_model import tiny_model
from gateway.errors import ConfigurationError, EngineFailure

STOP_S: Final = 5.0
"""Longest wait for the process after SIGTERM before it is killed."""
LOG_TAIL_BYTES: Final = 2_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which model is served, and with how much of the machine."""

    model: Path
    alias: str
    context_tokens: int = 4_096
    """Of each slot."""
    slots: int = 2
    threads: int = 1
    """More than one is far slower on cores that do other work."""
    port: int = 0
    verbosity: int = 2
    pooling: int = -1
    """llama.cpp's kind of pooling (mean 1, rank 4): then it makes embeddings, or ranks, and generates nothing."""
    log: Path | None = None
    """Where the engine's own log goes; a file that is gone with the process where none is named."""
    start_timeout_s: float = 120.0


class RealEngine:
    """One engine process. `address` is its URL while it runs."""

    def __init__(self, spec: EngineSpec, *, progress: Progress | None = None) -> None:
        self.spec = spec
        self.address = ""
        self.started_ms = 0
        """How long the last start took."""
        self._progress = progress or (lambda _: None)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile() if spec.log is None else spec.log.open("ab+")  # noqa: SIM115 (lives as long as the process)

    @property
    def pid(self) -> int:
        """0 while nothing runs."""
        return self._process.pid if self._process else 0

    def start(self) -> Self:
        """Returns once it answers /health. Raises ConfigurationError (packages, file) or EngineFailure (it did not come up), with the end of its log."""
        require("xllamacpp")
        if not self.spec.model.is_file():
            raise ConfigurationError(f"the small real engine can't start: no such file: {self.spec.model}\n  mend:  name a .gguf file that exists")
        begun = time.monotonic()
        self._progress(f"starting llama.cpp with {self.spec.alias}")
        self._process = subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True)
        try:
            deadline = begun + self.spec.start_timeout_s
            self.address = self._address_line(deadline)
            self._wait_for_health(deadline)
        except BaseException:
            self.kill()
            raise
        self.started_ms = round((time.monotonic() - begun) * 1000)
        self._progress(f"llama.cpp serves {self.spec.alias} at {self.address} ({self.started_ms} ms)")
        return self

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after `STOP_S`. Nothing where nothing runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL: what an engine's crash looks like from outside."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def counters(self) -> EngineCounters:
        """The engine's own sums since its start."""
        return engine_reading.counters(self.address)

    def busy_slots(self) -> int:
        """How many slots are at work. Ask seldom: asking five times a second keeps llama.cpp from cancelling a call whose client left."""
        return engine_reading.busy_slots(self.address)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _command(self) -> list[str]:
        spec = self.spec
        numbers = {"context-tokens": spec.context_tokens, "slots": spec.slots, "threads": spec.threads, "port": spec.port, "verbosity": spec.verbosity}
        numbers["pooling"] = spec.pooling
        options = [f"--{name}={number}" for name, number in numbers.items()]
        return [sys.executable, "-m", "gateway.demo.engine_process", f"--model={spec.model}", f"--alias={spec.alias}", *options]

    def _address_line(self, deadline: float) -> str:
        process = self._process
        assert process is not None and process.stdout is not None
        next_word = time.monotonic() + 1.0
        while (now := time.monotonic()) < deadline:
            if select.select([process.stdout], [], [], 0.2)[0]:
                line = process.stdout.readline()
                if not line:
                    raise self._failure(f"its process ended with status {process.wait(STOP_S)}")
                return str(json.loads(line)["address"])
            if now >= next_word:
                self._progress(f"loading {self.spec.model.name}")
                next_word = now + 1.0
        raise self._failure(f"no address within {self.spec.start_timeout_s:g} s", kind="timeout")

    def _wait_for_health(self, deadline: float) -> None:
        while not engine_reading.healthy(self.address):
            if self._process is not None and self._process.poll() is not None:
                raise self._failure(f"its process ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"not healthy within {self.spec.start_timeout_s:g} s", kind="timeout")
            time.sleep(0.05)

    def _failure(self, cause: str, *, kind: str = "died") -> EngineFailure:
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - LOG_TAIL_BYTES))
        tail = self._log.read().decode(errors="replace").strip() or "(its log is empty)"
        return EngineFailure(kind, "start", f"the small real engine did not start: {cause}\n  the end of its log:\n{tail}")

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.wait(STOP_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def tiny_engine(folder: Path, *, alias: str = "tiny", slots: int = 4, context_tokens: int = 8_192, progress: Progress | None = None) -> RealEngine:
    """The tiny random model, made in `folder` if it is not there."""
    spec = EngineSpec(model=tiny_model(folder), alias=alias, slots=slots, context_tokens=context_tokens)
    return RealEngine(spec, progress=progress)


def smollm2_engine(*, alias: str = "smollm2", slots: int = 2, context_tokens: int = 4_096, progress: Progress | None = None) -> RealEngine:
    """SmolLM2-135M-Instruct out of its package: small, but it really answers."""
    spec = EngineSpec(model=smollm2_path(), alias=alias, slots=slots, context_tokens=context_tokens)
    return RealEngine(spec, progress=progress)
