"""A child process that says on one line when it is ready. It is ended by its id, and its output is kept for the failure's text."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASTY = {"PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'hasty'}:{ROOT}"}
"""The environment of a gateway that is not as it should be; see there."""


class ReadyProcess:
    """`ready` holds the words of its ready line, `data=http://…` as `ready["data"]`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout_s: float = 30.0) -> None:
        self.command = list(command)
        self.ready: dict[str, str] = {}
        self._lines: list[str] = []
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})}
        self._process = subprocess.Popen(self.command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._seen = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._wait_ready(timeout_s)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """Standard output and standard error so far."""
        return "\n".join(self._lines)

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def stop(self, *, timeout_s: float = 30.0) -> int:
        """SIGTERM; its exit status. Raises AssertionError where it does not end in time (it is killed then)."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s=timeout_s)

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, *, timeout_s: float = 30.0) -> int:
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.command} did not end within {timeout_s:g} s; its output:\n{self.output}") from None
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            self._lines.append(line)
            if line.startswith("ready ") and not self.ready:
                self.ready = dict(word.split("=", 1) for word in line.split()[1:])
                self._seen.set()

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._seen.wait(0.02):
            ended = self._process.poll() is not None
            if ended:
                self._reader.join(5)
                if self._seen.is_set():
                    return
            if ended or time.monotonic() > deadline:
                status = self.kill()
                raise AssertionError(f"{self.command} was not ready within {timeout_s:g} s (status {status}); its output:\n{self.output}")
