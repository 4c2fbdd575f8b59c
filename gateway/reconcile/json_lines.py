"""JSON out of files that nobody vouches for: line by line, or one whole document, in bounded memory.

What can't be read is a `Skipped` with file and line, never an exception, and never a guess at what was meant.
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from gateway.reconcile.record import Skipped

MAX_LINE_BYTES = 32 * 2**20
MAX_DOCUMENT_BYTES = 64 * 2**20
MAX_LINES_FILE_BYTES = 4 * 2**30
LOOK_BYTES = 256 * 2**10
LOOK_LINES = 40
_CHUNK_BYTES = 2**20
_BUFFER_BYTES = 2**16
BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Row = dict[str, object]


class Unreadable(Exception):
    """This piece of JSON can't be believed. The text says why; it never leaves the room."""


def parse(raw: bytes, *, strict: bool = False) -> object:
    """`strict` also refuses a key that stands twice in one object, at some cost."""
    if not strict:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass  # it also refuses half surrogates, which agents do write: the slower parser decides, and says what is wrong
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise Unreadable(f"not UTF-8 (byte {problem.start})") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as problem:
        raise Unreadable(f"broken JSON: {problem.msg} at character {problem.pos}") from None
    except RecursionError:
        raise Unreadable("nested too deeply") from None
    except ValueError as problem:  # a whole number of thousands of digits
        raise Unreadable(f"broken JSON: {str(problem)[:80]}") from None


def _refuse_constant(name: str) -> object:
    raise Unreadable(f"{name} is no JSON")


def _once(pairs: list[tuple[str, object]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Unreadable(f"the key {twice[:40]!r} stands twice")
    return row


def open_regular(path: Path) -> BinaryIO:
    """Only a regular file, and not through a symlink: a pipe would hang, a link leads elsewhere. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb", buffering=_BUFFER_BYTES)


def look(path: Path) -> tuple[Row, ...]:
    """The JSON objects of the first lines that are whole within the first LOOK_BYTES; nothing where there are none."""
    return _first_rows(head(path))


@functools.lru_cache(maxsize=1)  # a file is shown to one reader after the other
def _first_rows(raw: bytes) -> tuple[Row, ...]:
    lines = raw.removeprefix(BOM).split(b"\n", LOOK_LINES)
    if len(raw) == LOOK_BYTES or len(lines) > LOOK_LINES:
        lines.pop()
    rows = []
    for line in lines:
        try:
            value = parse(line) if line.strip() else None
        except Unreadable:
            continue
        if isinstance(value, dict):
            rows.append(value)
    return tuple(rows)


def head(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(LOOK_BYTES)
    except OSError:
        return b""


def mentions(path: Path, *words: str) -> bool:
    """Whether all the words stand in the first LOOK_BYTES or in the last ones."""
    try:
        with open_regular(path) as file:
            raw = file.read(LOOK_BYTES)
            if len(raw) == LOOK_BYTES:
                file.seek(max(LOOK_BYTES, os.fstat(file.fileno()).st_size - LOOK_BYTES))
                raw += b"\n" + file.read(LOOK_BYTES)
    except OSError:
        return False
    return all(word.encode() in raw for word in words)


def json_lines(path: Path, matters: Callable[[Row], bool]) -> Iterator[tuple[int, Row] | Skipped]:
    """Number and object of each line that matters, and a Skipped for each that can't be read."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_LINES_FILE_BYTES:
                yield Skipped(source=str(path), why=f"larger than {MAX_LINES_FILE_BYTES} bytes")
                return
            yield from _lines(file, path, matters)
    except OSError as problem:
        yield Skipped(source=str(path), why=f"can't be read: {problem.strerror or problem}")


def _lines(file: BinaryIO, path: Path, matters: Callable[[Row], bool]) -> Iterator[tuple[int, Row] | Skipped]:
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            if raw.startswith(_UTF16):
                yield Skipped(source=str(path), why="UTF-16, not UTF-8")
                return
            raw = raw.removeprefix(BOM)
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            yield Skipped(source=f"{path}:{number}", why=f"a line longer than {MAX_LINE_BYTES} bytes")
            _skip_line(file)
            continue
        if not raw.strip():
            continue
        try:
            value = parse(raw)
            if not isinstance(value, dict):
                raise Unreadable("a line that is no JSON object")
            if matters(value):
                parse(raw, strict=True)
                yield number, value
        except Unreadable as problem:
            yield Skipped(source=f"{path}:{number}", why=str(problem))


def _skip_line(file: BinaryIO) -> None:
    buffer = bytearray(_CHUNK_BYTES)  # one for all: fresh memory a chunk costs more than the reading
    while size := file.readinto(buffer):  # type: ignore[attr-defined]
        if (end := buffer.find(b"\n", 0, size)) >= 0:
            file.seek(end + 1 - size, os.SEEK_CUR)
            return


def json_document(path: Path) -> object | Skipped:
    """The whole file as one JSON value."""
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as problem:
        return Skipped(source=str(path), why=f"can't be read: {problem.strerror or problem}")
    return document(raw, str(path))


def document(raw: bytes, source: str) -> object | Skipped:
    if len(raw) > MAX_DOCUMENT_BYTES:
        return Skipped(source=source, why=f"larger than {MAX_DOCUMENT_BYTES} bytes")
    if raw.startswith(_UTF16):
        return Skipped(source=source, why="UTF-16, not UTF-8")
    try:
        return parse(raw.removeprefix(BOM), strict=True)
    except Unreadable as problem:
        return Skipped(source=source, why=str(problem))
