"""Opening the SQLite file, and its numbered migrations: `migrations/NNNN_name.sql`, each applied once, in order, in one transaction."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from pathlib import Path

from gateway.errors import ConfigurationError, LedgerUnavailable

BUSY_TIMEOUT_MS = 2000
"""Only a foreign tool that writes can hold us up: the lock keeps a second gateway out."""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Raises LedgerUnavailable."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000, cached_statements=256)
        _check_ours(connection, path)  # before anything is changed: a slip in a path must not make a ledger of another program's file
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "temp_store = MEMORY", "wal_autocheckpoint = 4000"):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{path}: {error}") from error
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Read-only, also while a gateway writes. Raises LedgerUnavailable."""
    if not path.exists():
        raise LedgerUnavailable(f"{path}: no such ledger")
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        try:
            connection, version = _open_and_ask(address)
        except sqlite3.OperationalError:
            if path.with_name(path.name + "-wal").exists():
                raise
            # Reading in WAL mode writes beside the file. Without a log nobody writes it now: in a folder that is read-only it is as good as carved in stone.
            connection, version = _open_and_ask(f"{address}&immutable=1")
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{path}: {error}") from error
    if version == 0:
        raise LedgerUnavailable(f"{path} is not a ledger")
    _check_ours(connection, path)
    return connection


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Raises LedgerUnavailable for a SQLite file of something else."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")}
    if tables and "journal" not in tables:
        connection.close()
        raise LedgerUnavailable(f"{path} is a SQLite file of something else: it has a table {min(tables)}, and none of a ledger")


def _open_and_ask(address: str) -> tuple[sqlite3.Connection, int]:
    """With the schema's version, which shows that the file can be read."""
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000)
    connection.execute("PRAGMA temp_store = MEMORY")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return connection, version


def migrations() -> list[tuple[int, str]]:
    """Number and SQL of each."""
    found = [(int(file.name[:4]), file.read_text("utf-8")) for file in files("gateway.ledger").joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    return sorted(found)


def migrate(connection: sqlite3.Connection) -> None:
    """Raises ConfigurationError for a ledger of a later release."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    known = migrations()
    if version > known[-1][0]:
        raise ConfigurationError(f"the ledger has schema {version}, this release knows {known[-1][0]}: use the release that wrote it, or a later one")
    for number, script in known:
        if number > version:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
