"""What a driver says beside a campaign and a run: a plan as CSV, and pins."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Final

from gateway.cli.problems import Problem

COLUMNS: Final = ("run", "task", "label", "repeat")
PLAN_BYTES_MAX: Final = 4 * 1024 * 1024


def read_plan(path: Path) -> list[dict[str, object]]:
    """Rows of `run`, and `task`, `label`, `repeat` where the file has these columns. Ends the command with file and line where it can't be used."""
    try:
        if path.stat().st_size > PLAN_BYTES_MAX:
            raise _wrong(path, 1, f"it is larger than {PLAN_BYTES_MAX} bytes", "plan several campaigns")
        lines = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
        header = next(lines, [])
        _check_header(path, header)
        rows = [_row(path, lines.line_num, header, cells) for cells in lines if cells]
    except (OSError, ValueError, csv.Error) as error:
        raise _wrong(path, 1, str(error), "give a file of comma-separated values, in UTF-8") from error
    if not rows:
        raise _wrong(path, lines.line_num, "it names no run", "one planned run a line; where none is planned, leave --plan out")
    return rows


def _check_header(path: Path, header: list[str]) -> None:
    unknown = [name for name in header if name not in COLUMNS]
    if "run" not in header or unknown or len(set(header)) != len(header):
        said = f"its columns are {', '.join(header) or 'none'}"
        raise _wrong(path, 1, said, f"the first line names columns: run, and any of {', '.join(COLUMNS[1:])}")


def _row(path: Path, line: int, header: list[str], cells: list[str]) -> dict[str, object]:
    if len(cells) != len(header):
        raise _wrong(path, line, f"it has {len(cells)} cells under {len(header)} columns", "one cell under each column")
    row: dict[str, object] = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
    if "run" not in row:
        raise _wrong(path, line, "it names no run", "every planned run has a name")
    if "repeat" in row:
        if not str(row["repeat"]).isdecimal() or not int(str(row["repeat"])):
            raise _wrong(path, line, f"repeat is {row['repeat']!r}", "a repeat is a whole number from 1")
        row["repeat"] = int(str(row["repeat"]))
    return row


def _wrong(path: Path, line: int, cause: str, mend: str) -> Problem:
    return Problem(f"{path}:{line}: this plan can't be used", cause, mend, code="bad_plan")


def read_pins(given: tuple[str, ...]) -> dict[str, str]:
    """`FILE`, whose SHA-256 is taken, or `NAME=sha256:…`."""
    pins: dict[str, str] = {}
    for pin in given:
        name, digest = _pin(pin)
        if name in pins:
            raise Problem(f"--pin {name!r} is given twice", "a name pins one thing", "leave one of them out", code="bad_pin")
        pins[name] = digest
    return pins


def _pin(pin: str) -> tuple[str, str]:
    name, equals, digest = pin.rpartition("=")
    if equals and digest.startswith("sha256:"):
        return name, digest
    try:
        with Path(pin).open("rb") as file:
            return Path(pin).name, f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise Problem(f"--pin {pin!r} can't be read", error.strerror or str(error), "name a file, or write NAME=sha256:DIGEST", code="bad_pin") from error
