"""How far long work is: one line on stderr that is written over, only where a person looks on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

EVERY_S: Final = 0.2
FIRST_S: Final = 0.5
"""Short work shows none."""


class Progress:
    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + FIRST_S
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write("")

    def show(self, what: str, done: int) -> None:
        now_s = time.monotonic()
        if self._terminal and now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self._write(f"{what}: {done:,}")

    def _write(self, text: str) -> None:
        if self._width or text:
            sys.stderr.write(f"\r{text:<{self._width}}\r")
            sys.stderr.flush()
            self._width = len(text)
