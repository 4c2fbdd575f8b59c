"""Which calendar day each call belongs to, as day budgets count it.

The rule: a call that was held to a day's limit belongs to the day in that account's name; any other to the day in which it was admitted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from gateway.errors import ConfigurationError, ZoneUnclear
from gateway.policy.days import Day, day_of, zone_names

HOUR_MS: Final = 3_600_000
"""No day is shorter, so an hour touches two days at most."""

_IN_ACCOUNT = """SELECT substr(json_extract(posting.value, '$[0]'), -11 - length(:zone), 10)
    FROM journal, json_each(journal.body, '$.postings') AS posting
    WHERE journal.number = reserve_number AND json_extract(posting.value, '$[0]') GLOB '*|day ????-??-?? ' || :zone LIMIT 1"""
_BY_CLOCK = "SELECT date FROM temp.days WHERE start_ms <= admitted_ms ORDER BY start_ms DESC LIMIT 1"


def dated(connection: sqlite3.Connection, table: str, zone: str) -> str:
    """That table of calls with a column `day`; to be read with the value `zone`, and of the same moment. Raises ZoneUnclear where there is no such zone."""
    if zone not in zone_names():
        raise ZoneUnclear(f"there is no time zone {zone!r}")
    hours = [hour for (hour,) in connection.execute(f"SELECT DISTINCT admitted_ms / {HOUR_MS} FROM {table}")]
    days = {day_of(zone, at_ms) for hour in hours for at_ms in (hour * HOUR_MS, (hour + 1) * HOUR_MS - 1)}
    connection.execute("DROP TABLE IF EXISTS temp.days")
    connection.execute("CREATE TEMP TABLE days (start_ms INTEGER PRIMARY KEY, date TEXT)")
    connection.executemany("INSERT INTO temp.days VALUES (?, ?)", [(day.start_ms, _date(day)) for day in days])
    return f"(SELECT *, coalesce(({_IN_ACCOUNT}), ({_BY_CLOCK})) AS day FROM {table})"


def zone_of(policies: Iterable[tuple[str, str]]) -> str:
    """The one zone in which these campaigns count their days; `policies`: campaign and canonical form. Raises ZoneUnclear where there is none, or several."""
    of_zone: dict[str, str] = {}
    for campaign, policy in policies:
        for zone in _zones(policy):
            of_zone.setdefault(zone, campaign)
    if len(of_zone) > 1:
        raise ZoneUnclear("days are counted in several zones: " + ", ".join(f"{zone} (campaign {campaign})" for zone, campaign in sorted(of_zone.items())))
    if not of_zone:
        raise ZoneUnclear("no policy of these calls names the zone of its days")
    return next(iter(of_zone))


def _zones(policy: str) -> set[str]:
    """Of its day budgets; where it has none, the one it names. Of a policy that this release can't read: none."""
    from gateway.policy.canonical import parse_canonical  # here, not above: usage by anything else needs no policy

    try:
        read = parse_canonical(policy)
    except (ConfigurationError, ValueError):
        return set()
    of_budgets = {declared.timezone for declared in read.declared if declared.window}
    return of_budgets or ({read.timezone} if read.timezone else set())


def _date(day: Day) -> str:
    return day.name.split(" ")[1]
