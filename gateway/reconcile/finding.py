"""Whose records lie under the given paths, and all their rows, each once.

A folder may be an agent's whole home, with other sessions and other files in it. Symlinks in it are not followed; depth, number and size are bounded.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.errors import RecordProblem
from gateway.reconcile.readers import READERS
from gateway.reconcile.record import AgentReader, DispatchRecord, Skipped

MAX_DEPTH = 16
MAX_FILES = 200_000
"""Files and folders that are looked at under all the given paths together."""
MAX_ROWS = 1_000_000
ECHO_MS = 1_000
RECORD_SUFFIXES = frozenset({".jsonl", ".json", ".db", ".eval", ".md", ".txt", ".log"})
"""What in a folder is looked at; a file that is named itself may be called anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    reader: AgentReader
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    records: tuple[DispatchRecord, ...]
    """By agent, session and place in it."""
    skipped: tuple[Skipped, ...]
    copies: int
    """Rows that their agent had written into more than one file; each is counted once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    files: tuple[RecordFile, ...]
    skipped: tuple[Skipped, ...] = ()

    def agents(self) -> tuple[str, ...]:
        return tuple(sorted({file.reader.name for file in self.files}))

    def read(self, progress: Callable[[int, int], None] | None = None) -> Rows:
        """`progress` is told the number of files read and of all. Raises RecordProblem for a version that is not known."""
        skipped, rows, copies = list(self.skipped), dict[str, DispatchRecord](), 0
        for number, file in enumerate(self.files):
            for row in file.reader.read(file.path):
                if isinstance(row, Skipped):
                    skipped.append(row)
                    continue
                key = f"{row.agent} {row.copy_key}" if row.copy_key else f"{row.source} {row.order}"
                copies += key in rows
                rows[key] = _merged(rows[key], row) if key in rows else row
                if len(rows) + len(skipped) > MAX_ROWS:
                    raise RecordProblem(f"more than {MAX_ROWS} rows under the given paths. Name fewer files, or one run's at a time.")
            if progress:
                progress(number + 1, len(self.files))
        kept = _without_echoes(list(rows.values()))
        copies += len(rows) - len(kept)
        records = sorted(kept, key=lambda row: (row.agent, row.session, row.order, row.source))
        return Rows(records=tuple(records), skipped=tuple(sorted(set(skipped), key=lambda each: (each.source, each.why))), copies=copies)


def _without_echoes(rows: list[DispatchRecord]) -> list[DispatchRecord]:
    """An echo goes where a row of its session says the same usage within ECHO_MS of it; each row answers for one echo."""
    voices = defaultdict[tuple[str, str, Usage], list[int]](list)
    for row in rows:
        if not row.echo and row.at_ms is not None:
            voices[row.agent, row.session, row.usage].append(row.at_ms)
    kept = []
    for row in sorted(rows, key=lambda row: row.at_ms or 0):
        near = [moment for moment in voices[row.agent, row.session, row.usage] if abs(moment - (row.at_ms or 0)) <= ECHO_MS] if row.echo else []
        if near:
            voices[row.agent, row.session, row.usage].remove(min(near))
        else:
            kept.append(row)
    return kept


def _merged(one: DispatchRecord, other: DispatchRecord) -> DispatchRecord:
    """The fuller copy. A copy bears the session into which it was copied: which of them was sent along can't be told."""
    sessions = tuple(sorted({*one.session_ids, *other.session_ids}))
    return replace(min(one, other, key=_completeness), session_ids=sessions)


def _completeness(row: DispatchRecord) -> tuple[bool, bool, int, int, str]:
    """The smallest of several copies is the fullest, and the same whatever the order of the files."""
    return not row.response_id, not row.finish, -(row.usage.output_tokens or 0), row.at_ms or 0, row.source


def find_records(paths: Iterable[Path], *, agent: str = "auto") -> Found:
    """Raises RecordProblem where nothing under `paths` is a record that is known, saying what was found."""
    readers = READERS if agent == "auto" else tuple(each for each in READERS if each.name == agent)
    if not readers:
        raise RecordProblem(f"no agent is called {agent!r} here. Known: auto, {', '.join(each.name for each in READERS)}.")
    given, files, skipped, looked = list(paths), list[RecordFile](), list[Skipped](), list[Path]()
    for path in dict.fromkeys(each for one in given for each in _under(one, skipped)):
        looked.append(path)
        if len(looked) > MAX_FILES:
            raise RecordProblem(f"more than {MAX_FILES} files under the given paths. Name the agent's own folder, or the files.")
        if reader := next((each for each in readers if each.claims(path)), None):
            files.append(RecordFile(reader=reader, path=path))
    if not files:
        raise RecordProblem(_nothing(given, looked, readers))
    return Found(files=tuple(sorted(files, key=lambda file: str(file.path))), skipped=tuple(skipped))


def _under(given: Path, skipped: list[Skipped]) -> Iterator[Path]:
    try:
        start = given.resolve(strict=True)
    except (OSError, RuntimeError) as problem:
        raise RecordProblem(f"{given} can't be read: {getattr(problem, 'strerror', None) or problem}") from None
    if not start.is_dir():
        yield start
        return
    folders = [(start, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as problem:
            skipped.append(Skipped(source=str(folder), why=f"can't be read: {problem.strerror or problem}"))
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                if path.suffix in RECORD_SUFFIXES:
                    skipped.append(Skipped(source=entry.path, why="a symlink: not followed"))
            elif entry.is_dir(follow_symlinks=False):
                if depth >= MAX_DEPTH:
                    skipped.append(Skipped(source=entry.path, why=f"deeper than {MAX_DEPTH} folders"))
                else:
                    folders.append((path, depth + 1))
            elif path.suffix in RECORD_SUFFIXES and entry.is_file(follow_symlinks=False):
                yield path


def _nothing(given: list[Path], looked: list[Path], readers: tuple[AgentReader, ...]) -> str:
    names = ", ".join(path.name for path in looked[:5]) + (f" and {len(looked) - 5} more" if len(looked) > 5 else "")
    return (
        f"no dispatch record under {', '.join(map(str, given)) or 'no path'}: "
        + (f"{names} looked at, none of a form that is known" if looked else "no file that could be one")
        + f". Known: {', '.join(each.name for each in readers)}. See docs/reconciliation.md for where each agent keeps its record."
    )
