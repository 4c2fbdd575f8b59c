"""The mock engine in a thread of its own, for code without a loop: `with MockEngineThread(…) as engine:`.

Its log may be read, and its scripts set, from any thread: each is one assignment or one append.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Self

from gateway.mock_engine.script import Playbook, Script
from gateway.mock_engine.server import MockEngine


class MockEngineThread(MockEngine):
    def __init__(
        self, script: Script | Playbook | dict[str, Any] | list[Any] | None = None, *, host: str = "127.0.0.1", port: int = 0, log: Path | None = None
    ) -> None:
        super().__init__(script, host=host, port=port, log=log)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mock-engine", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        """Connections that are kept open have a task each: none outlives its loop."""
        await self.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
