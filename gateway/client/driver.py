"""For drivers in Python: open a run, give its keys to an agent, check what it may use, close it with what came of it.

    with Driver("gateway.sock").run("pilot", task="task-17") as run:
        run.preflight({"campaign.requests": 140})
        done = subprocess.run(COMMAND, env=os.environ | run.environment("foreground"))
        run.finish(exit=done.returncode, turn_end="completed")

Whatever way the block is left, the run is closed; what was not declared is unknown. AsyncDriver is the same with `await`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from gateway.client.control import Answer, ControlClient, ControlError

OPEN_TRIES = 3
"""A reply may be lost: opening is asked again with the same idempotency key, which gives the same run."""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class PreflightFailed(Exception):
    """What was expected is not so. `differences`: as they came, with `name`, `expected`, `found`, `why`; `words`: a line each."""

    def __init__(self, differences: Sequence[Mapping[str, Any]]) -> None:
        self.differences = tuple(differences)
        self.words = tuple(str(difference["message"]) for difference in differences)
        super().__init__("; ".join(self.words))


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a driver declares; what is missing is unknown."""

    exit: int | None = None
    turn_end: str = ""
    """completed, aborted, failed, token_limit, time_limit, budget, blocked"""
    judge: str = ""
    """pass, fail, error"""
    outcomes: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> Answer:
        given: Answer = {"turn_end": self.turn_end, "judge": self.judge, "outcomes": dict(self.outcomes)}
        body = {name: value for name, value in given.items() if value}
        return body if self.exit is None else {"exit": self.exit, **body}


@dataclass(frozen=True, kw_only=True)
class Closed:
    receipt: Answer
    """Keep it: it proves later that nothing was changed since."""
    conflicts: Sequence[Any]
    """Declared results that contradict what the gateway saw; empty where all fits."""


class DrivenRun:
    """One open run. Use as a context manager, or call `close`."""

    def __init__(self, control: ControlClient, opened: Answer, base_url: str) -> None:
        self._control = control
        self.campaign: str = opened["campaign"]
        self.run: str = opened["run"]
        self.note: str = opened.get("note", "")
        """What the gateway says beside, e.g. that there is little room left."""
        self.base_url = base_url
        self.closed: Closed | None = None
        self._keys: dict[str, str] = {lane: key for lane, key in opened["keys"].items() if key}
        self._results = Results()

    def key(self, lane: str = "foreground") -> str:
        """Raises KeyError where this run has no such lane, or its key is not shown (again)."""
        return self._keys[lane]

    def environment(self, lane: str = "foreground") -> dict[str, str]:
        """What an agent needs in its environment to call as this lane."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_BASE": self.base_url, "OPENAI_API_KEY": self.key(lane)}

    def budget(self, lane: str = "") -> Answer:
        return self._control.run_budget(self.campaign, self.run, lane)

    def preflight(self, expect: Mapping[str, int | str], lane: str = "") -> None:
        """Raises PreflightFailed with each difference."""
        try:
            self._control.preflight(self.campaign, self.run, expect, lane)
        except ControlError as error:
            if error.code != "preflight_failed":
                raise
            raise PreflightFailed(error.details.get("differences", [])) from None

    def finish(self, *, exit: int | None = None, turn_end: str = "", judge: str = "", **outcomes: str) -> None:
        """Results to declare when the run is closed."""
        self._results = Results(exit=exit, turn_end=turn_end, judge=judge, outcomes=outcomes)

    def close(self, results: Results | None = None, *, drain_seconds: int = 0, reason: str = "") -> Closed:
        """Cuts what runs, or lets it end within `drain_seconds`. Closing again declares later results and gives the next receipt."""
        body = (results or self._results).body()
        answer = self._control.close_run(self.campaign, self.run, results=body, drain_seconds=drain_seconds, reason=reason)
        self.closed = Closed(receipt=answer["receipt"], conflicts=answer["conflicts"])
        return self.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.closed is None:
            self.close()


class Driver:
    """Opens runs. One control request at a time; safe to share between threads."""

    def __init__(self, socket_path: str | Path, *, control: ControlClient | None = None) -> None:
        self.control = control or ControlClient(socket_path)

    def run(
        self,
        campaign: str,
        run: str = "",
        *,
        task: str = "",
        label: str = "",
        lanes: Sequence[str] = (),
        idempotency_key: str = "",
        repeat: int = 0,
        pins: Mapping[str, str] | None = None,
    ) -> DrivenRun:
        """`repeat`: which attempt at its task; `pins`: name to `sha256:…` of what makes the run what it is.

        Raises ControlError, with the limit that stands in the way where there is no room.
        """
        said = partial(self.control.open_run, campaign, run, task=task, label=label, lanes=lanes, repeat=repeat, pins=pins)
        address = str(self.control.status()["data_address"])
        key = idempotency_key or f"driver-{secrets.token_hex(8)}"
        for tries_left in reversed(range(OPEN_TRIES)):
            try:
                opened = said(idempotency_key=key)
            except ControlError as error:
                if error.status or not tries_left:
                    raise
                continue
            return DrivenRun(self.control, opened, base_url(address))
        raise AssertionError("the last try either answers or raises")


class AsyncRun:
    """DrivenRun with `await`."""

    def __init__(self, run: DrivenRun) -> None:
        self._run = run
        self.campaign, self.run, self.base_url, self.note = run.campaign, run.run, run.base_url, run.note

    @property
    def closed(self) -> Closed | None:
        return self._run.closed

    def key(self, lane: str = "foreground") -> str:
        return self._run.key(lane)

    def environment(self, lane: str = "foreground") -> dict[str, str]:
        return self._run.environment(lane)

    def finish(self, *, exit: int | None = None, turn_end: str = "", judge: str = "", **outcomes: str) -> None:
        self._run.finish(exit=exit, turn_end=turn_end, judge=judge, **outcomes)

    async def budget(self, lane: str = "") -> Answer:
        return await asyncio.to_thread(self._run.budget, lane)

    async def preflight(self, expect: Mapping[str, int | str], lane: str = "") -> None:
        await asyncio.to_thread(self._run.preflight, expect, lane)

    async def close(self, results: Results | None = None, *, drain_seconds: int = 0, reason: str = "") -> Closed:
        return await asyncio.to_thread(partial(self._run.close, results, drain_seconds=drain_seconds, reason=reason))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._run.closed is None:
            await asyncio.shield(self.close())


class AsyncDriver:
    """Driver with `await`; each request is made in a thread."""

    def __init__(self, socket_path: str | Path, *, control: ControlClient | None = None) -> None:
        self._driver = Driver(socket_path, control=control)

    async def run(self, campaign: str, run: str = "", **said: Any) -> AsyncRun:
        """As `Driver.run`."""
        return AsyncRun(await asyncio.to_thread(partial(self._driver.run, campaign, run, **said)))


def base_url(address: str) -> str:
    """The data plane's `http://HOST:PORT` as an OpenAI base URL; an address to listen on is none to connect to.

    A Unix socket has no URL of its own: whoever goes there says `http://localhost` and connects to the socket.
    """
    if address.startswith("unix:"):
        return "http://localhost/v1"
    parts = urlsplit(address)
    host = parts.hostname or ""
    shown = _WILDCARDS.get(host, f"[{host}]" if ":" in host else host)
    return f"{parts.scheme}://{shown}:{parts.port}/v1"
