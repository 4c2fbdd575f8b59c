"""A process whose system clock is what the test says, and can be set while it runs. Monotonic and boot clocks go on: as when a person sets a clock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.support.skips import skip


class FakedTime:
    """`env` goes to the process; `set` and `shift` change its clock from then on."""

    def __init__(self, file: Path) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            skip("no-faketime", "libfaketime is not installed")
        self._file = file
        self.env = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }
        self.shift(0)

    def shift(self, seconds: float) -> None:
        """So far from the real time; it goes on from there."""
        self._write(f"{seconds:+.3f}")

    def set(self, moment: datetime) -> None:
        """As if it were this moment now."""
        self.shift((moment - datetime.now(UTC)).total_seconds())

    def _write(self, text: str) -> None:
        new = self._file.with_name(self._file.name + ".new")
        new.write_text(text + "\n")
        new.replace(self._file)
