"""A copy of a ledger that is being written, marked as a copy; and what must happen before a marked one may serve.

Spent budgets would come back with it: what was settled after the copy was made is not in it. So it serves only once a person has said so, and then without a
key that works and with every campaign halted. A file that was copied by other means can't be told apart.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from gateway.accounting.commands import AcceptRestore, Command, Halt, RevokeKey
from gateway.accounting.standing import Standing
from gateway.errors import ConfigurationError, LedgerUnavailable
from gateway.ledger.schema import open_for_reading

BACKUP_MARK = 0x67776270
"""As `application_id` of the SQLite file: in its header, so that no table has to be there."""
REASON = "restored from a backup"


def is_backup(connection: sqlite3.Connection) -> bool:
    found: int = connection.execute("PRAGMA application_id").fetchone()[0]
    return found == BACKUP_MARK


def unmark(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA application_id = 0")


def back_up(ledger: Path, copy: Path) -> int:
    """Of one moment, also while a gateway writes; the number of its last entry. The copy appears as a whole. Raises LedgerUnavailable, FileExistsError."""
    if copy.exists():
        raise FileExistsError(f"{copy} is there: a backup replaces nothing")
    part = copy.with_name(f".{copy.name}.{os.getpid()}.part")
    source = open_for_reading(ledger)
    try:
        part.touch(mode=0o600, exist_ok=False)
        with sqlite3.connect(part, isolation_level=None) as target:
            source.backup(target)  # in one step: a reader of one moment, whom no writer makes start again
            target.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            target.execute(f"PRAGMA application_id = {BACKUP_MARK}")
            number: int = target.execute("SELECT coalesce(max(number), 0) FROM journal").fetchone()[0]
        target.close()
        _to_disk(part)
        os.link(part, copy)  # fails where somebody was quicker, unlike a renaming
        _to_disk(copy.parent)
        return number
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{copy}: {error}") from error
    finally:
        source.close()
        part.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def check_mark(path: Path, *, marked: bool, accepted: bool) -> None:
    """Raises ConfigurationError where a backup would serve unasked, or where there is nothing to accept."""
    if marked and not accepted:
        raise ConfigurationError(
            f"{path} is a backup\n  cause: what was spent after it was made is not in it: those budgets would come back\n"
            "  mend:  gateway serve --accept-restore: revokes every key, halts every open campaign, and says so in the ledger"
        )
    if accepted and not marked:
        raise ConfigurationError(
            f"{path} is no backup, or its restore was accepted before\n  cause: --accept-restore revokes every key, which nothing here asks for\n"
            "  mend:  start without --accept-restore"
        )


def restoring(standing: Standing, at_ms: int) -> list[Command]:
    """The entry that says so comes first: what stood before it stood in the backup."""
    keys = [RevokeKey(key_id=key.key_id, campaign=key.campaign, at_ms=at_ms, reason=REASON) for key in standing.keys.values() if not key.revoked_number]
    open_ = [campaign.campaign for campaign in standing.campaigns.values() if not campaign.closing_number and not campaign.halted]
    halts = [Halt(campaign=campaign, at_ms=at_ms, reason=REASON) for campaign in open_]
    return [AcceptRestore(at_ms=at_ms, reason=f"{len(keys)} keys revoked, {len(halts)} campaigns halted"), *keys, *halts]
