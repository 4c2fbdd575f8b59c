"""A flood of refusals is summed: the first 20 of a run, code and limit stand singly, then one summing entry a minute."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.accounting.commands import RefusalSummary, Refuse
from gateway.ledger.store import RefusalCounts

SINGLE_MAX = 20
SUMMARY_EVERY_MS = 60_000

_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class _Pending:
    final: bool
    count: int
    since_ms: int
    until_ms: int


class RefusalSums:
    """Driven by the times it is told."""

    def __init__(self, counts: RefusalCounts) -> None:
        self._counts = dict(counts)
        self._pending: dict[_Key, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def stands_singly(self, refuse: Refuse) -> bool:
        """Whether it is to be written; else it has been added to the next summing entry."""
        key = (refuse.campaign, refuse.run, refuse.code, refuse.limit.name if refuse.limit else "")
        count = self._counts.get(key, 0) + 1
        if count <= SINGLE_MAX:
            self._counts[key] = count
            return True
        pending = self._pending.get(key)
        if pending is None:
            self._pending[key] = _Pending(refuse.final, 1, refuse.at_ms, refuse.at_ms)
        else:
            pending.count += 1
            pending.until_ms = refuse.at_ms
        return False

    def due(self, now_ms: int) -> list[RefusalSummary]:
        """Those whose minute is over."""
        return self._take([key for key, pending in self._pending.items() if now_ms - pending.since_ms >= SUMMARY_EVERY_MS], now_ms)

    def flush(self, now_ms: int, campaign: str = "", run: str = "") -> list[RefusalSummary]:
        """All, or all of one run."""
        return self._take([key for key in self._pending if not campaign or key[:2] == (campaign, run)], now_ms)

    def forget(self, campaign: str, run: str) -> None:
        """A run that is closing has no refusals any more."""
        self._counts = {key: count for key, count in self._counts.items() if key[:2] != (campaign, run)}

    def take_back(self, summary: RefusalSummary) -> None:
        """It could not be written: it is added to the next."""
        key = (summary.campaign, summary.run, summary.code, summary.limit_name)
        pending = self._pending.setdefault(key, _Pending(summary.final, 0, summary.since_ms, summary.until_ms))
        pending.count += summary.count
        pending.since_ms, pending.until_ms = min(pending.since_ms, summary.since_ms), max(pending.until_ms, summary.until_ms)

    def _take(self, keys: list[_Key], now_ms: int) -> list[RefusalSummary]:
        return [self._summary(key, self._pending.pop(key), now_ms) for key in keys]

    def _summary(self, key: _Key, pending: _Pending, now_ms: int) -> RefusalSummary:
        campaign, run, code, limit_name = key
        return RefusalSummary(
            at_ms=now_ms,
            campaign=campaign,
            run=run,
            code=code,
            final=pending.final,
            limit_name=limit_name,
            count=pending.count,
            since_ms=pending.since_ms,
            until_ms=pending.until_ms,
        )
