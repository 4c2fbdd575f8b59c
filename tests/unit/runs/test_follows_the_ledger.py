"""Whatever drivers ask for at once, and whatever fails to be written: what is known in memory is what stands in the books."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.commands import Results
from gateway.errors import GatewayError
from gateway.ledger.state import CampaignStanding
from tests.unit.runs.paper import World, policy

WISHES = ("open", "again", "close", "drain", "results", "key", "revoke", "halt", "resume", "end", "call", "fail", "mend", "pause")
WEIGHTS = (6, 3, 2, 1, 2, 2, 2, 1, 1, 1, 5, 3, 3, 12)
CAMPAIGNS = ("a", "b")


class Driver:
    """Asks for one thing after the other, each in a task of its own."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.asked: list[asyncio.Task[object]] = []
        self.calls = 0

    async def ask(self, wish: str) -> None:
        runs, chance = self.world.runs, self.chance
        campaign, run = chance.choice(CAMPAIGNS), f"r{min(chance.randrange(12), chance.randrange(12))}"
        match wish:
            case "open":
                self._task(runs.open_run(campaign, run))
            case "again":
                self._task(runs.open_run(campaign, idempotency_key=f"i{run}"))
            case "close":
                self._task(runs_close(self.world, campaign, run))
            case "drain":
                self._task(runs_close(self.world, campaign, run, drain_s=1000))
            case "results":
                self._task(runs_close(self.world, campaign, run, results=_results(chance), reason=chance.choice(("", "looked again"))))
            case "key":
                self._task(issue(self.world, campaign, run))
            case "revoke":
                for key in chance.sample(runs.keys(campaign), min(1, len(runs.keys(campaign)))):
                    self._task(runs.revoke_key(key.key_id))
            case "halt":
                self._task(runs.halt(campaign))
            case "resume":
                self._task(runs.resume(campaign))
            case "end":
                if chance.random() < 0.3:
                    self._task(runs.close_campaign(campaign, close_s=chance.choice((0, 60))))
            case "call":
                self._enter(campaign)
            case "fail" | "mend":
                self.world.book.failing = wish == "fail"
            case "pause":
                for _ in range(chance.randrange(8)):
                    await asyncio.sleep(0)

    def _enter(self, campaign: str) -> None:
        keys = [key for key in self.world.runs.keys(campaign) if key.live and not key.held]
        if keys:
            key = self.chance.choice(keys)
            self.calls += 1
            handle = self.world.in_flight.enter(f"c{self.calls}", campaign, key.run.run, key.key_id)
            handle.on_cut(lambda _outcome: asyncio.get_running_loop().call_soon(handle.end))

    def _task(self, work) -> None:
        self.asked.append(asyncio.create_task(work))


def _results(chance: random.Random) -> Results:
    return chance.choice((Results(exit=0), Results(exit=1), Results(judge="pass"), Results(turn_end="failed", outcomes=(("score", "3"),))))


async def runs_close(world: World, campaign: str, run: str, **how) -> object:
    return await world.runs.close_run(campaign, run, **how)


async def issue(world: World, campaign: str, run: str) -> object:
    return await world.runs.issue_key(campaign, run, "foreground")


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 100))
def test_memory_is_what_stands_in_the_books(seed: int, length: int) -> None:
    chance = random.Random(seed)
    asyncio.run(_story(chance.choices(WISHES, WEIGHTS, k=length), chance))


async def _story(wishes: list[str], chance: random.Random) -> None:
    world = World()
    for campaign in CAMPAIGNS:
        await world.runs.open_campaign(campaign, policy())
    driver = Driver(world, chance)
    for wish in wishes:
        await driver.ask(wish)
    world.book.failing = False
    for handle in world.in_flight.calls():  # what still runs ends by itself
        handle.end()
    answers = await asyncio.wait_for(asyncio.gather(*driver.asked, return_exceptions=True), 10)
    assert [answer for answer in answers if isinstance(answer, BaseException) and not isinstance(answer, GatewayError)] == []
    await world.runs.finish()
    _compare(world)


def _compare(world: World) -> None:
    standing = world.book.books.standing
    for campaign in world.runs.campaigns():
        book = standing.campaigns[campaign.campaign]
        expected = CampaignStanding.CLOSED if book.receipt else CampaignStanding.CLOSING if book.closing_number else None
        expected = expected or (CampaignStanding.HALTED if book.halted else CampaignStanding.OPEN)
        assert campaign.state is expected
        assert campaign.ending == bool(book.closing_number)
        assert {run.run: (run.state, run.results) for run in campaign.runs.values()} == {run.run: (run.status, run.results) for run in book.runs.values()}
        assert set(campaign.by_idempotency_key) == set(book.idempotency)
        assert len(book.runs) <= 7
        assert [campaign.in_doubt, *(run.in_doubt for run in campaign.runs.values())] == [0] * (1 + len(campaign.runs))
    known = world.runs.keys()
    keys = {key.key_id: (key.campaign.campaign, key.run.run, key.lane, key.revoked) for key in known}
    assert keys == {key.key_id: (key.campaign, key.run, key.lane, bool(key.revoked_number)) for key in standing.keys.values()}
    assert all(not key.in_doubt for key in known)
    for account, balance in world.book.balances:
        assert (balance.reserved, balance.settled) == (0, len(standing.campaigns[account.subject].runs))
