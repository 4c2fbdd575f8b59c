"""From what the settings name to a store. A new store is one branch here."""

from __future__ import annotations

from pathlib import Path

from gateway.errors import ConfigurationError
from gateway.ledger.sqlite import SqliteStore
from gateway.ledger.store import Store


def connect(address: str | Path) -> Store:
    """A path, or `sqlite:///PATH` (four slashes where PATH is absolute)."""
    return SqliteStore(ledger_path(address))


def ledger_path(address: str | Path) -> Path:
    """The file that an address names. Raises ConfigurationError for a kind of store that there is not."""
    if isinstance(address, Path):
        return address
    scheme, divider, rest = address.partition("://")
    if not divider:
        return Path(address)
    if scheme != "sqlite":
        raise ConfigurationError(f"ledger {scheme}://…: there is no such store; a ledger is a path, or sqlite:///PATH")
    return Path(rest.removeprefix("/"))
