"""Days in this process: a real ledger and the real waiting place, on a clock that the test holds; and usage by day, which says what the day's account holds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.accounting.commands import Adjust, Expire, OpenCampaign, OpenRun, Reserve, Settle, Void
from gateway.accounting.decision import Demand
from gateway.accounting.limit import Limit
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.errors import ClockUncertain, NotFound, ZoneUnclear
from gateway.ledger.clock import LedgerClock
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.policy.declaration import GatewayLimits
from gateway.policy.loading import LoadedPolicy, policy_from_text
from gateway.policy.resolve import resolve_limits
from gateway.upstream.call import Admission, Refused, Ticket
from gateway.upstream.gate import Gate

POLICY = """
schema = 1
apis = ["openai.chat"]
timezone = "{zone}"
[models.m]
counter = "bytes"
overhead_tokens = 1
default_output_tokens = 100
[campaign.day]
requests = {requests}
output_tokens = 500
"""
LEAP = [
    ("Asia/Shanghai", datetime(2026, 10, 3, 16, tzinfo=UTC), 24),
    ("Europe/Berlin", datetime(2026, 3, 29, 22, tzinfo=UTC), 23),
    ("Europe/Berlin", datetime(2026, 10, 25, 23, tzinfo=UTC), 25),
    ("America/Sao_Paulo", datetime(2018, 11, 5, 2, tzinfo=UTC), 23),  # its midnight was skipped
    ("Australia/Lord_Howe", datetime(2026, 10, 4, 13, tzinfo=UTC), 23.5),
]


class HeldClock:
    """Stands still, unless `runs`: then it goes with the real time."""

    def __init__(self, moment: datetime) -> None:
        self._at_ms = round(moment.timestamp() * 1000)
        self._boot_ms = 50_000
        self._ran_from_ns: int | None = None

    def system_ms(self) -> int:
        return self._at_ms + self._ran_ms()

    def boot_ms(self) -> int:
        return self._boot_ms + self._ran_ms()

    def go_on(self, ms: int) -> None:
        """Time passes."""
        self._at_ms += ms
        self._boot_ms += ms

    def set_by(self, ms: int) -> None:
        """Somebody sets the system's clock."""
        self._at_ms += ms

    def run(self) -> None:
        self._ran_from_ns = time.monotonic_ns()

    def _ran_ms(self) -> int:
        return 0 if self._ran_from_ns is None else (time.monotonic_ns() - self._ran_from_ns) // 1_000_000


class Days:
    def __init__(self, folder: Path, moment: datetime, zone: str, requests: int = 1) -> None:
        self.path = folder / "ledger"
        self.clock = HeldClock(moment)
        self.ledger = Ledger.open(self.path, clock=LedgerClock(self.clock.system_ms, self.clock.boot_ms))
        self.gate = Gate(self.ledger.balances, self.ledger.post, self.ledger.now_ms, {"e": 4})
        self.ledger.on_release(self.gate.wake)
        self.loaded: LoadedPolicy = policy_from_text(POLICY.format(zone=zone, requests=requests), "days.toml")
        self.writes_late_ms = 0
        """How long after its decision a reservation is written."""

    async def open(self) -> Days:
        loaded, at_ms = self.loaded, self.ledger.now_ms()
        await self.ledger.post(OpenCampaign(campaign="c", at_ms=at_ms, policy_name="days", policy=loaded.canonical, policy_hash=loaded.hash))
        await self.ledger.post(OpenRun(campaign="c", run="r", at_ms=at_ms))
        return self

    def limits(self, now_ms: int) -> tuple[Limit, ...]:
        return resolve_limits(self.loaded.policy, GatewayLimits(), campaign="c", run="r", lane="foreground", model="m", now_ms=now_ms)

    async def call(self, call_id: str, queue_ms: int = 0) -> Admission:
        demand = Demand(
            prompt_tokens=10, exact=True, can_count=False, multiple=1, want=100, least=100, bound_lowered_want=False, ceiling_from="asked", enough=100
        )
        ticket = Ticket(
            call_id=call_id,
            campaign="c",
            run="r",
            lane="foreground",
            engines=("e",),
            resolve=self.limits,
            demand=lambda _prompt, _exact: demand,
            bound_tokens=10,
            bound_exact=True,
            count=None,
            queue_ms=queue_ms,
        )
        return await self.gate.admit(ticket, lambda admission: self._reserve(call_id, admission))

    def _reserve(self, call_id: str, admission: Admission) -> Reserve:
        self.clock.go_on(self.writes_late_ms)
        return Reserve(
            call_id=call_id,
            at_ms=self.ledger.now_ms(),
            campaign="c",
            run="r",
            lane="foreground",
            key_id="k",
            model="m",
            upstream="e",
            dialect="openai.chat",
            stream=True,
            accounts=tuple(limit.account for limit in admission.limits),
            amounts=Amounts(requests=1, input_tokens=10, output_tokens=admission.output, concurrent=1),
            prompt_source="bytes",
            ceiling=admission.output,
            ceiling_from="asked",
        )

    async def settle(self, call_id: str, output: int) -> None:
        usage, charge = Usage(input_tokens=10, output_tokens=output), Amounts(requests=1, input_tokens=10, output_tokens=output)
        at_ms = self.ledger.now_ms()
        await self.ledger.post(Settle(call_id=call_id, at_ms=at_ms, outcome=Outcome.COMPLETED, source=Source.REPORTED, usage=usage, charge=charge))
        self.gate.free("e")

    def spent(self, at_ms: int) -> dict[str, tuple[int, int]]:
        """Of the day that holds this moment: settled and reserved by quantity."""
        found = {limit.account.quantity: self.ledger.balances.of(limit.account) for limit in self.limits(at_ms)}
        return {str(quantity): (balance.settled, balance.reserved) for quantity, balance in found.items()}


EACH_DAY = pytest.mark.parametrize(("zone", "end", "hours"), LEAP, ids=[f"{zone} {hours} hours" for zone, _, hours in LEAP])


@EACH_DAY
async def test_days_begin_and_end_at_the_local_midnight(tmp_path: Path, zone: str, end: datetime, hours: float) -> None:
    days, end_ms = Days(tmp_path, end, zone), round(end.timestamp() * 1000)
    start_ms = end_ms - round(hours * 3_600_000)
    names = {moment: days.limits(moment)[0].account.window for moment in (start_ms - 1, start_ms, end_ms - 1, end_ms)}
    assert len(set(names.values())) == 3
    assert names[start_ms] == names[end_ms - 1]
    assert days.limits(start_ms)[0].window_end_ms == end_ms
    await days.ledger.close()


async def at_the_end_of_a_day(folder: Path, before_ms: int) -> tuple[Days, int]:
    end = LEAP[0][1]
    days = Days(folder, datetime.fromtimestamp(end.timestamp() - before_ms / 1000, UTC), LEAP[0][0])
    return await days.open(), round(end.timestamp() * 1000)


async def test_the_day_ends_with_its_last_millisecond(tmp_path: Path) -> None:
    days, end_ms = await at_the_end_of_a_day(tmp_path, 1)
    await days.call("a")
    with pytest.raises(Refused) as refused:
        await days.call("b")
    shortfall = refused.value.refusal.shortfall
    assert shortfall is not None
    assert (refused.value.refusal.final, shortfall.name, shortfall.resets_at_ms) == (True, "campaign.day.requests", end_ms)
    days.clock.go_on(1)  # nothing else happens in this process
    await days.call("c")
    with pytest.raises(Refused):
        await days.call("d")
    await days.ledger.close()


async def test_a_call_over_midnight_uses_the_day_on_which_it_was_admitted_and_nothing_of_the_next(tmp_path: Path) -> None:
    days, end_ms = await at_the_end_of_a_day(tmp_path, 10)
    await days.call("a")
    assert days.spent(end_ms - 1) == {"requests": (0, 1), "output_tokens": (0, 100)}
    days.clock.go_on(60_000)
    await days.settle("a", 77)
    assert days.spent(end_ms - 1) == {"requests": (1, 0), "output_tokens": (77, 0)}
    assert days.spent(end_ms) == {"requests": (0, 0), "output_tokens": (0, 0)}
    await days.ledger.close()


async def test_a_day_that_begins_within_the_wait_is_waited_for(tmp_path: Path) -> None:
    days, end_ms = await at_the_end_of_a_day(tmp_path, 500)
    await days.call("a")
    days.clock.run()
    with pytest.raises(Refused):
        await days.call("too impatient", queue_ms=100)
    admission = await asyncio.wait_for(days.call("b", queue_ms=60_000), 10)
    assert days.ledger.now_ms() >= end_ms
    assert admission.limits[0].window_end_ms == end_ms + 24 * 3_600_000
    assert days.spent(end_ms) == {"requests": (0, 1), "output_tokens": (0, 100)}
    assert days.spent(end_ms - 1) == {"requests": (0, 1), "output_tokens": (0, 100)}
    await days.ledger.close()


async def test_a_machine_that_slept_over_midnight_wakes_on_the_new_day(tmp_path: Path) -> None:
    """Suspended: system and boot clock went on, no timer rang."""
    days, end_ms = await at_the_end_of_a_day(tmp_path, 3_600_000)
    await days.call("a")
    days.clock.go_on(8 * 3_600_000)
    days.ledger.admissible()
    await days.call("b")
    assert days.spent(end_ms) == {"requests": (0, 1), "output_tokens": (0, 100)}
    await days.ledger.close()


@pytest.mark.parametrize("set_by_ms", [-86_400_000, -300_001, 300_001, 86_400_000])
async def test_a_clock_that_is_set_changes_no_day_until_it_is_accepted(tmp_path: Path, set_by_ms: int) -> None:
    days, end_ms = await at_the_end_of_a_day(tmp_path, 60_000)
    before_ms = days.ledger.now_ms()
    days.clock.set_by(set_by_ms)
    with pytest.raises(ClockUncertain):
        days.ledger.admissible()
    assert days.ledger.now_ms() == before_ms
    await days.ledger.accept_clock("it is right")
    days.ledger.admissible()
    assert days.ledger.now_ms() == max(before_ms, before_ms + set_by_ms)
    await days.call("a")
    assert (days.spent(end_ms)["requests"] == (0, 1)) == (set_by_ms > 0)
    await days.ledger.close()


async def days_with_calls(folder: Path, zone: str, end: datetime, hours: float) -> Days:
    """At the last moment of a day, its first and its last, the next day's first; one decided before midnight and written after. Then two days without any."""
    end_ms = round(end.timestamp() * 1000)
    start_ms = end_ms - round(hours * 3_600_000)
    days = Days(folder, datetime.fromtimestamp(start_ms // 1000 - 1, UTC), zone, requests=4)
    await days.open()
    for place, at_ms in enumerate((start_ms - 1, start_ms, end_ms - 1, end_ms - 1, end_ms, end_ms, end_ms + 3 * 86_400_000)):
        if (ahead_ms := at_ms - days.ledger.now_ms()) > 0:
            days.clock.go_on(ahead_ms)
        days.writes_late_ms = 1 if place == 3 else 0
        await days.call(f"call-{place}")
        if place < 5:
            await days.settle(f"call-{place}", 10 + place)
    return days


def settled_by_day(reader: LedgerReader) -> dict[str, dict[str, int]]:
    """What the accounts `campaign.day` hold."""
    found: dict[str, dict[str, int]] = {}
    for row in reader.query("SELECT account, settled FROM accounts WHERE account LIKE 'campaign|%|day %'"):
        *_, quantity, window = str(row["account"]).split("|")
        found.setdefault(window.split()[1], {})[quantity] = int(str(row["settled"]))
    return found


def used_by_day(usage: dict[str, object]) -> dict[str, dict[str, int]]:
    groups = usage["groups"]
    assert isinstance(groups, list)
    return {group["day"]: {name: group.get("charge", {}).get(name, 0) for name in ("requests", "output_tokens")} for group in groups}


@EACH_DAY
async def test_usage_by_day_is_what_the_days_account_holds(tmp_path: Path, zone: str, end: datetime, hours: float) -> None:
    days = await days_with_calls(tmp_path, zone, end, hours)
    at_ms = days.ledger.now_ms()
    await days.ledger.post(Expire(call_id="call-5", at_ms=at_ms, reason="lost"))
    with LedgerReader(days.path) as reader:
        number = reader.last_number("c")
        before, held_before = reader.usage("day"), settled_by_day(reader)
    assert used_by_day(before) == held_before
    assert [(group["calls"], group["open"]) for group in before["groups"]] == [(1, 0), (3, 0), (2, 0), (1, 1)]  # type: ignore[attr-defined]
    assert [amounts["output_tokens"] for amounts in held_before.values()] == [10, 11 + 12 + 13, 14 + 100, 0]
    corrected = Usage(input_tokens=10, output_tokens=71), Amounts(requests=1, input_tokens=10, output_tokens=71)
    await days.ledger.post(Adjust(call_id="call-2", at_ms=at_ms, usage=corrected[0], charge=corrected[1], reason="its record says so", evidence="a file"))
    await days.ledger.post(Void(call_id="call-6", at_ms=at_ms, reason="never sent"))
    with LedgerReader(days.path) as reader:
        after, held_after = reader.usage("day", campaign="c", run="r"), settled_by_day(reader)
        assert reader.usage("day", as_of=number) == before
        for unknown in ({"campaign": "d"}, {"run": "s"}):
            with pytest.raises(NotFound):
                reader.usage("day", **unknown)
    last = max(held_after)
    assert held_after.pop(last) == {"requests": 0, "output_tokens": 0}, "a call that was not sent is no call of that day"
    assert used_by_day(after) == held_after
    assert after["zone"] == zone
    await days.ledger.close()


async def test_the_zone_is_the_policies_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    days = await days_with_calls(tmp_path, *LEAP[0])
    of_its_own = POLICY.format(zone="Europe/Berlin", requests=1).replace("[campaign.day]", '[campaign.day]\ntimezone = "Europe/Paris"')
    other = policy_from_text(of_its_own, "other.toml")
    at_ms = days.ledger.now_ms()
    await days.ledger.post(OpenCampaign(campaign="d", at_ms=at_ms, policy_name="other", policy=other.canonical, policy_hash=other.hash))
    await days.ledger.post(OpenRun(campaign="d", run="r", at_ms=at_ms))
    with LedgerReader(days.path) as reader:
        assert reader.usage("day")["zone"] == "Asia/Shanghai", "a campaign without calls has no say"
        assert [group["day"] for group in reader.usage("day", zone="UTC")["groups"]] == ["2026-10-02", "2026-10-03", "2026-10-06"]  # type: ignore[attr-defined]
    reserve = days._reserve("call-d", (await days.call("call-c")))
    await days.ledger.post(replace(reserve, campaign="d", accounts=()))
    with LedgerReader(days.path) as reader:
        with pytest.raises(ZoneUnclear, match=r"Asia/Shanghai \(campaign c\), Europe/Paris \(campaign d\)"):
            reader.usage("day")
        assert (reader.usage("day", campaign="d")["zone"], reader.usage("day", zone="UTC")["zone"]) == ("Europe/Paris", "UTC")
        with pytest.raises(ZoneUnclear, match="there is no time zone 'Berlin'"):
            reader.usage("day", zone="Berlin")
    await days.ledger.close()
