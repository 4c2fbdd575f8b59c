"""An SQLite file that nobody vouches for, opened for reading only, with what its write-ahead log holds.

Where a log lies beside it, both are copied first: reading through a log needs a place to write, and an agent's own folder is never written to.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import open_regular

MAX_DATABASE_BYTES = 4 * 2**30
"""File and log together."""
MAX_VALUE_BYTES = 64 * 2**20
MAX_STEPS = 4_000_000_000
"""Instructions of SQLite's machine for all that is read of one file: some minutes."""
_STEPS_A_LOOK = 1_000_000
MAGIC = b"SQLite format 3\x00"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Raises OSError, sqlite3.Error or RecordProblem. Text comes as bytes: it may be anything."""
    log = path.with_name(path.name + "-wal")
    try:
        logged = log.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        logged = 0
    if path.stat().st_size + logged > MAX_DATABASE_BYTES:
        raise RecordProblem(f"{path} is larger than {MAX_DATABASE_BYTES} bytes with its log. Export the sessions that matter.")
    with contextlib.ExitStack() as stack:
        if logged:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-record-")))
            for source, name in ((path, "record"), (log, "record-wal")):
                with open_regular(source) as read, (folder / name).open("xb") as written:
                    shutil.copyfileobj(read, written, 2**20)
            connection = sqlite3.connect(folder / "record")
        else:
            with open_regular(path):
                pass
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        stack.callback(connection.close)
        _restrain(connection)
        yield connection


def _restrain(connection: sqlite3.Connection) -> None:
    connection.text_factory = bytes
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    looks = iter(range(MAX_STEPS // _STEPS_A_LOOK))
    connection.set_progress_handler(lambda: next(looks, None) is None, _STEPS_A_LOOK)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA cell_size_check = ON")


def tables(connection: sqlite3.Connection) -> frozenset[str]:
    """Real tables only: a view runs what its maker wrote."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'").fetchmany(10_000)
    return frozenset(name.decode("utf-8", "replace") for (name,) in found if isinstance(name, bytes))


def log_head(path: Path, most: int) -> bytes:
    """The beginning of the file and of its log: a young database stands in its log alone."""
    raw = b""
    for each in (path, path.with_name(path.name + "-wal")):
        try:
            with open_regular(each) as file:
                raw += file.read(most)
        except OSError:
            continue
    return raw
