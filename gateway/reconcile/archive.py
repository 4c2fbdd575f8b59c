"""Members of a zip that nobody vouches for, each read whole but never past its limit."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

if sys.version_info >= (3, 14):
    import zipfile

    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError, zipfile  # the standard one does not know zstd, in which newer logs are packed

from gateway.reconcile.json_lines import MAX_DOCUMENT_BYTES, open_regular
from gateway.reconcile.record import Skipped

MAX_ARCHIVE_BYTES = 2 * 2**30
MAX_MEMBERS = 50_000
MAX_UNPACKED_BYTES = 8 * 2**30
"""Of all members of one archive together."""
MAX_RATIO = 200
"""Unpacked to packed, for members above a megabyte: transcripts reach some dozens, a bomb a thousand."""
_RATIO_FROM_BYTES = 2**20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_ZSTANDARD)
_ENTRY = b"PK\x01\x02"
_CHUNK_BYTES = 2**20


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes] | Skipped]:
    try:
        with open_regular(path) as file:
            if (why := _too_much(file.seek(0, 2), path)) is not None:
                yield Skipped(source=str(path), why=why)
                return
            file.seek(0)
            with zipfile.ZipFile(file) as archive:
                yield from _members(archive, path, wanted)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, OverflowError) as problem:
        yield Skipped(source=str(path), why=f"no readable zip: {problem}")


def _too_much(size: int, path: Path) -> str | None:
    """Counted by their marks before the directory is loaded: each entry of it costs memory."""
    if size > MAX_ARCHIVE_BYTES:
        return f"larger than {MAX_ARCHIVE_BYTES} bytes"
    entries, tail = 0, b""
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            entries += (tail + chunk).count(_ENTRY)
            tail = chunk[-3:]
    return f"more than {MAX_MEMBERS} members" if entries > MAX_MEMBERS else None


def _members(archive: zipfile.ZipFile, path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes] | Skipped]:
    unpacked = 0
    for entry in sorted(archive.infolist(), key=lambda each: each.filename):
        if not wanted(entry.filename):
            continue
        source = f"{path}!{entry.filename[:200]}"
        if entry.compress_type not in _METHODS:
            yield Skipped(source=source, why=f"packed by method {entry.compress_type}, which is not known here")
            continue
        if entry.file_size > MAX_DOCUMENT_BYTES:
            yield Skipped(source=source, why=f"larger than {MAX_DOCUMENT_BYTES} bytes unpacked")
            continue
        if entry.file_size > _RATIO_FROM_BYTES and entry.file_size > MAX_RATIO * max(1, entry.compress_size):
            yield Skipped(source=source, why=f"packed more than {MAX_RATIO} to 1")
            continue
        unpacked += entry.file_size
        if unpacked > MAX_UNPACKED_BYTES:
            yield Skipped(source=str(path), why=f"more than {MAX_UNPACKED_BYTES} bytes unpacked")
            return
        try:
            with archive.open(entry) as member:
                raw = member.read(MAX_DOCUMENT_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, ZstdError, OSError, EOFError, ValueError, RuntimeError, NotImplementedError) as problem:
            yield Skipped(source=source, why=f"can't be unpacked: {problem}")
            continue
        yield entry.filename, raw
