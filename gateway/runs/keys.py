"""Keys: from the secret that an agent presents to campaign, run and lane, and how keys come and go.

A secret is looked up by its SHA-256, so nothing that is compared tells how near a guess came. It is shown once and kept nowhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from gateway.accounting.commands import IssueKey, RevokeKey
from gateway.accounting.usage import Outcome
from gateway.ids import new_key_id, new_secret
from gateway.ledger.state import CampaignStanding, KeyRecord, RunStanding
from gateway.runs.book import Book
from gateway.runs.campaigns import CampaignState, RunState, doubt
from gateway.runs.declined import Declined
from gateway.runs.in_flight import InFlight


@dataclass(slots=True, kw_only=True, eq=False)
class Identity:
    """Who a key is."""

    key_id: str
    campaign: CampaignState
    run: RunState
    lane: str
    digest: str
    issued_at_ms: int
    revoked: bool = False
    in_doubt: int = 0

    @property
    def live(self) -> bool:
        """Its calls may be admitted; else they get the final refusal `run_closed`."""
        campaign = self.campaign
        return not self.revoked and self.run.state is RunStanding.OPEN and (campaign.state is CampaignStanding.OPEN or campaign.serves)

    @property
    def held(self) -> bool:
        """Its calls wait and have no turn: the campaign is halted, or a closing or revocation is not durable yet."""
        return self.campaign.state is CampaignStanding.HALTED or bool(self.in_doubt or self.run.in_doubt or self.campaign.in_doubt)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    key_id: str
    campaign: str
    run: str
    lane: str
    secret: str


class KeyRing:
    """All keys that were ever issued, revoked ones too: these must still be told from unknown ones."""

    def __init__(self, book: Book, in_flight: InFlight, on_change: Callable[[], None]) -> None:
        self._book = book
        self._in_flight = in_flight
        self._on_change = on_change
        self._by_digest: dict[bytes, Identity] = {}
        self._by_id: dict[str, Identity] = {}
        self._by_run: dict[tuple[str, str], list[Identity]] = {}

    def identify(self, secret: str) -> Identity | None:
        try:
            raw = secret.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
        return self._by_digest.get(hashlib.sha256(raw).digest())

    def key(self, key_id: str) -> Identity:
        """Raises Declined where there is none."""
        found = self._by_id.get(key_id)
        if found is None:
            raise Declined(f"There is no key {key_id!r}.", "None was issued with this id.", "`gateway key list` shows those there are.", code="not_found")
        return found

    def find(self, key_id: str) -> Identity | None:
        return self._by_id.get(key_id)

    def keys(self, campaign: str = "", run: str = "") -> tuple[Identity, ...]:
        """In the order of issue; of one campaign, of one run."""
        if campaign and run:
            return tuple(self._by_run.get((campaign, run), ()))
        return tuple(key for key in self._by_id.values() if campaign in ("", key.campaign.campaign) and run in ("", key.run.run))

    def load(self, record: KeyRecord, campaign: CampaignState, run: RunState) -> None:
        self._add(
            Identity(
                key_id=record.key_id,
                campaign=campaign,
                run=run,
                lane=record.lane,
                digest=record.digest,
                issued_at_ms=record.issued_at_ms,
                revoked=record.revoked,
            )
        )

    async def issue(self, campaign: CampaignState, run: RunState, lane: str) -> IssuedKey:
        """The caller holds the run's lock and has checked that run and lane may have one."""
        secret = new_secret()
        digest = hashlib.sha256(secret.encode()).hexdigest()
        key_id, at_ms = new_key_id(), self._book.now_ms()
        await self._book.post(IssueKey(campaign=campaign.campaign, run=run.run, lane=lane, key_id=key_id, digest=digest, at_ms=at_ms))
        self._add(Identity(key_id=key_id, campaign=campaign, run=run, lane=lane, digest=digest, issued_at_ms=at_ms))
        return IssuedKey(key_id=key_id, campaign=campaign.campaign, run=run.run, lane=lane, secret=secret)

    async def revoke(self, key: Identity, reason: str = "") -> None:
        """Its calls are cut once that is durable. Revoking it again does nothing. The caller holds the run's lock."""
        if key.revoked:
            return
        with doubt(key, self._on_change):
            await self._book.post(RevokeKey(key_id=key.key_id, campaign=key.campaign.campaign, at_ms=self._book.now_ms(), reason=reason))
            key.revoked = True
        self._in_flight.cut_key(key.campaign.campaign, key.run.run, key.key_id, Outcome.CLOSED_CUT)

    def _add(self, key: Identity) -> None:
        self._by_digest[bytes.fromhex(key.digest)] = key
        self._by_id[key.key_id] = key
        self._by_run.setdefault((key.campaign.campaign, key.run.run), []).append(key)
