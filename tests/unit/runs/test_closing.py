from __future__ import annotations

import asyncio

import pytest

from gateway.accounting.commands import Reserve, Results, Settle
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.errors import LedgerUnavailable
from gateway.ledger.state import CampaignStanding, RunStanding
from gateway.runs.declined import Declined
from gateway.runs.in_flight import Handle
from tests.unit.runs.paper import World, until


async def reserve(world: World, run: str, call_id: str) -> Handle:
    """A call as the proxy makes one: entered, then reserved."""
    handle = world.in_flight.enter(call_id, "pilot", run, "k")
    await world.book.post(
        Reserve(
            call_id=call_id,
            at_ms=world.book.now_ms(),
            campaign="pilot",
            run=run,
            lane="foreground",
            key_id="k",
            model="small",
            upstream="u",
            dialect="openai.chat",
            stream=True,
            accounts=(),
            amounts=Amounts(requests=1, concurrent=1),
            prompt_source="bound",
            ceiling=10,
            ceiling_from="asked",
        )
    )
    return handle


async def settle(world: World, handle: Handle, outcome: Outcome = Outcome.COMPLETED) -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    charge = Amounts(requests=1, input_tokens=3, output_tokens=4)
    await world.book.post(Settle(call_id=handle.call_id, at_ms=world.book.now_ms(), outcome=outcome, source=Source.REPORTED, usage=usage, charge=charge))
    handle.end()


async def test_closing_a_run_that_never_called_gives_a_receipt() -> None:
    world = World()
    secret = (await world.open("r1"))["r1"]
    receipt = await world.runs.close_run("pilot", "r1")
    assert receipt.content["receipt"] == 1
    assert len(receipt.hash) == 64
    assert receipt.conflicts == ()
    assert world.runs.run("pilot", "r1").state is RunStanding.CLOSED
    identity = world.runs.identify(secret)
    assert identity is not None
    assert not identity.live


async def test_closing_a_closed_run_returns_the_standing_receipt() -> None:
    world = World()
    await world.open("r1")
    first = await world.runs.close_run("pilot", "r1")
    second = await world.runs.close_run("pilot", "r1")
    assert second == first


async def test_no_call_is_admitted_from_the_commit_on_and_none_while_it_is_in_doubt() -> None:
    world = World()
    identity = world.runs.identify((await world.open("r1"))["r1"])
    assert identity is not None
    world.book.hold()
    closing = asyncio.create_task(world.runs.close_run("pilot", "r1"))
    await until(lambda: "BeginClosing" in world.book.kinds())
    assert identity.held
    assert identity.live  # it may yet fail: a final refusal would be a lie
    world.book.release()
    await closing
    assert not identity.live
    assert not identity.held
    assert world.wakings >= 1


async def test_a_closing_that_was_not_written_leaves_the_run_open_and_wakes_who_waited() -> None:
    world = World()
    identity = world.runs.identify((await world.open("r1"))["r1"])
    assert identity is not None
    world.book.failing = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.close_run("pilot", "r1")
    assert identity.live
    assert not identity.held
    assert world.wakings >= 1
    world.book.failing = False
    assert (await world.runs.close_run("pilot", "r1")).content["receipt"] == 1


async def test_a_close_cuts_what_runs_waits_for_its_settlement_and_then_writes_the_receipt() -> None:
    world = World()
    await world.open("r1", "r2")
    mine, other = await reserve(world, "r1", "c1"), await reserve(world, "r2", "c2")
    closing = asyncio.create_task(world.runs.close_run("pilot", "r1"))
    await until(lambda: mine.cut is not None)
    assert mine.cut is Outcome.CLOSED_CUT
    assert other.cut is None
    assert not closing.done()
    assert "WriteReceipt" not in world.book.kinds()
    await settle(world, mine, Outcome.CLOSED_CUT)
    receipt = await asyncio.wait_for(closing, 1)
    assert receipt.content["seen"]["outcomes"] == {"closed_cut": 1}  # type: ignore[index]


async def test_a_close_with_a_drain_lets_what_runs_end_by_itself() -> None:
    world = World()
    await world.open("r1")
    call = await reserve(world, "r1", "c1")
    closing = asyncio.create_task(world.runs.close_run("pilot", "r1", drain_s=60))
    await until(lambda: world.runs.run("pilot", "r1").state is RunStanding.CLOSING)
    assert call.cut is None
    await settle(world, call)
    receipt = await asyncio.wait_for(closing, 1)
    assert receipt.content["seen"]["outcomes"] == {"completed": 1}  # type: ignore[index]


async def test_what_still_runs_when_the_drain_is_over_is_cut() -> None:
    world = World()
    await world.open("r1")
    call = await reserve(world, "r1", "c1")
    closing = asyncio.create_task(world.runs.close_run("pilot", "r1", drain_s=1))
    cut: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    call.on_cut(cut.set_result)
    assert await asyncio.wait_for(cut, 5) is Outcome.CLOSED_CUT
    await settle(world, call, Outcome.CLOSED_CUT)
    await asyncio.wait_for(closing, 1)


async def test_who_closes_a_draining_run_without_a_drain_cuts_it_and_both_get_the_same_receipt() -> None:
    world = World()
    await world.open("r1")
    call = await reserve(world, "r1", "c1")
    patient = asyncio.create_task(world.runs.close_run("pilot", "r1", drain_s=600))
    await until(lambda: world.runs.run("pilot", "r1").state is RunStanding.CLOSING)
    hasty = asyncio.create_task(world.runs.close_run("pilot", "r1"))
    await until(lambda: call.cut is not None)
    await settle(world, call, Outcome.CLOSED_CUT)
    assert await asyncio.wait_for(patient, 1) == await asyncio.wait_for(hasty, 1)


async def test_a_driver_that_leaves_while_a_run_closes_does_not_stop_it() -> None:
    world = World()
    await world.open("r1")
    call = await reserve(world, "r1", "c1")
    closing = asyncio.create_task(world.runs.close_run("pilot", "r1"))
    await until(lambda: call.cut is not None)
    closing.cancel()
    await settle(world, call, Outcome.CLOSED_CUT)
    await world.runs.finish()
    assert world.runs.run("pilot", "r1").state is RunStanding.CLOSED


async def test_results_stand_in_the_first_receipt_beside_what_the_gateway_saw() -> None:
    world = World()
    await world.open("r1")
    await settle(world, await reserve(world, "r1", "c1"), Outcome.ENGINE_DIED)
    receipt = await world.runs.close_run("pilot", "r1", results=Results(exit=0, turn_end="completed", outcomes=(("score", "3"),)))
    assert receipt.content["results"] == {"exit": 0, "turn_end": "completed", "outcomes": {"score": "3"}}
    assert receipt.conflicts == ("declared completed, but its last sent call is engine_died",)
    assert world.runs.run("pilot", "r1").results == Results(exit=0, turn_end="completed", outcomes=(("score", "3"),))


async def test_results_that_come_later_are_added_and_give_the_next_receipt() -> None:
    world = World()
    await world.open("r1")
    first = await world.runs.close_run("pilot", "r1", results=Results(exit=0))
    second = await world.runs.close_run("pilot", "r1", results=Results(judge="pass"))
    assert (first.content["receipt"], second.content["receipt"]) == (1, 2)
    assert second.content["replaces"] == {"receipt": 1, "hash": first.hash}
    assert second.content["results"] == {"exit": 0, "judge": "pass"}
    assert await world.runs.close_run("pilot", "r1", results=Results(judge="pass")) == second


async def test_other_results_need_a_reason() -> None:
    world = World()
    await world.open("r1")
    await world.runs.close_run("pilot", "r1", results=Results(judge="pass"))
    with pytest.raises(Declined, match="reason"):
        await world.runs.close_run("pilot", "r1", results=Results(judge="fail"))
    corrected = await world.runs.close_run("pilot", "r1", results=Results(judge="fail"), reason="the judge was read wrongly")
    assert corrected.content["receipt"] == 2


async def test_blocked_is_refused_for_a_run_with_calls_and_nothing_is_closed() -> None:
    world = World()
    await world.open("r1", "r2")
    await settle(world, await reserve(world, "r1", "c1"))
    with pytest.raises(Declined, match="not blocked"):
        await world.runs.close_run("pilot", "r1", results=Results(turn_end="blocked"))
    assert world.runs.run("pilot", "r1").state is RunStanding.OPEN
    assert (await world.runs.close_run("pilot", "r2", results=Results(turn_end="blocked"))).conflicts == ()


async def test_a_halted_campaign_holds_its_calls_and_cuts_none() -> None:
    world = World()
    identity = world.runs.identify((await world.open("r1"))["r1"])
    assert identity is not None
    call = await reserve(world, "r1", "c1")
    await world.runs.halt("pilot", "the disk is hot")
    posted = len(world.book.posted)
    campaign = await world.runs.halt("pilot")
    assert len(world.book.posted) == posted
    assert (campaign.state, campaign.reason) == (CampaignStanding.HALTED, "the disk is hot")
    assert identity.held
    assert identity.live
    assert call.cut is None
    before = world.wakings
    await world.runs.resume("pilot")
    await world.runs.resume("pilot")
    assert not identity.held
    assert world.wakings > before


async def test_a_halt_in_doubt_holds_and_one_that_failed_does_not() -> None:
    world = World()
    identity = world.runs.identify((await world.open("r1"))["r1"])
    assert identity is not None
    world.book.failing = True
    world.book.hold()
    halting = asyncio.create_task(world.runs.halt("pilot"))
    await until(lambda: "Halt" in world.book.kinds())
    assert identity.held
    world.book.release()
    with pytest.raises(LedgerUnavailable):
        await halting
    assert not identity.held
    assert world.wakings == 1


async def test_closing_a_campaign_closes_every_run_the_same_way_and_its_receipt_comes_after_theirs() -> None:
    world = World()
    await world.open("r1", "r2", "r3")
    await world.runs.close_run("pilot", "r3")
    call = await reserve(world, "r1", "c1")
    closing = asyncio.create_task(world.runs.close_campaign("pilot"))
    await until(lambda: call.cut is not None)
    assert call.cut is Outcome.CLOSED_CUT
    with pytest.raises(Declined, match="closing"):
        await world.runs.open_run("pilot", "r4")
    await settle(world, call, Outcome.CLOSED_CUT)
    receipt = await asyncio.wait_for(closing, 1)
    assert receipt.content["unsettled"] == []
    assert [line["run"] for line in receipt.content["runs"]] == ["r1", "r2", "r3"]  # type: ignore[union-attr]
    assert world.runs.campaign("pilot").state is CampaignStanding.CLOSED
    assert await world.runs.close_campaign("pilot") == receipt


async def test_a_campaigns_receipt_waits_no_longer_than_close_seconds_lists_what_is_unsettled_and_is_followed_by_the_next() -> None:
    world = World()
    await world.open("r1", "r2")
    call = await reserve(world, "r1", "c1")
    receipt = await asyncio.wait_for(world.runs.close_campaign("pilot", close_s=0), 1)
    assert receipt.content["unsettled"] in ([{"run": "r1", "calls": 1}], [{"run": "r1", "calls": 1}, {"run": "r2", "calls": 0}])
    assert call.cut is Outcome.CLOSED_CUT or await _cut(call)
    await settle(world, call, Outcome.CLOSED_CUT)
    await asyncio.wait_for(world.runs.finish(), 1)
    standing = await world.runs.close_campaign("pilot")
    assert standing.content["unsettled"] == []
    assert standing.content["receipt"] in (2, 3)


async def test_a_campaigns_receipt_never_comes_before_the_closing_of_its_runs() -> None:
    world = World()
    await world.open("r1")
    async with world.runs.run("pilot", "r1").lock:  # it is being given a key
        closing = asyncio.create_task(world.runs.close_campaign("pilot", close_s=0))
        await until(lambda: world.runs.campaign("pilot").state is CampaignStanding.CLOSING)
        for _ in range(20):
            await asyncio.sleep(0)
        assert "WriteReceipt" not in world.book.kinds()
    assert (await closing).content["receipt"] == 1


async def _cut(call: Handle) -> bool:
    await until(lambda: call.cut is not None)
    return True


async def test_a_campaign_whose_closing_was_not_written_goes_on() -> None:
    world = World()
    identity = world.runs.identify((await world.open("r1"))["r1"])
    assert identity is not None
    world.book.failing = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.close_campaign("pilot")
    assert identity.live
    assert not identity.held
    world.book.failing = False
    assert (await world.runs.open_run("pilot", "r2")).created


async def test_nothing_follows_a_closing() -> None:
    world = World()
    await world.open("r1")
    await world.runs.close_campaign("pilot")
    for asked in (world.runs.halt, world.runs.resume):
        with pytest.raises(Declined, match="closed"):
            await asked("pilot")
    with pytest.raises(Declined):
        await world.runs.open_run("pilot")


async def test_a_late_settlement_makes_the_next_receipt_of_the_run_and_of_its_closed_campaign() -> None:
    world = World()
    await world.open("r1")
    call = await reserve(world, "r1", "c1")
    await settle(world, call)
    await world.runs.close_campaign("pilot")
    world.runs.receipt_due("pilot", "r1")
    await world.runs.finish()
    assert (await world.runs.close_run("pilot", "r1")).content["receipt"] == 1  # nothing was due

    world.book.books.standing.campaigns["pilot"].runs["r1"].receipt_due = True  # as a late settlement leaves it
    world.runs.receipt_due("pilot", "r1")
    await world.runs.finish()
    assert [entry.chain for entry in world.book.past.written if entry.kind == "receipt"] == ["run:pilot/r1", "campaign:pilot"] * 2
    assert (await world.runs.close_run("pilot", "r1")).content["receipt"] == 2
    assert (await world.runs.close_campaign("pilot")).content["receipt"] == 2


async def test_a_settlement_of_an_open_run_makes_no_receipt() -> None:
    world = World()
    await world.open("r1")
    posted = len(world.book.posted)
    world.runs.receipt_due("pilot", "r1")
    await world.runs.finish()
    assert len(world.book.posted) == posted
