from __future__ import annotations

import asyncio

import pytest

from gateway.accounting.commands import IssueKey, OpenRun, RevokeKey
from gateway.accounting.usage import Outcome
from gateway.errors import LedgerUnavailable
from gateway.runs.declined import Declined
from gateway.runs.opening import OpenedRun
from gateway.runs.plan import PlannedRun
from tests.unit.runs.paper import POLICY, World, policy, until


async def test_a_campaign_is_opened_once_and_again_with_the_same_policy() -> None:
    world = World()
    first, second = await asyncio.gather(world.runs.open_campaign("pilot", policy(), 3), world.runs.open_campaign("pilot", policy(), 3))
    assert [first[1], second[1]] == [True, False]
    assert first[0] is second[0]
    assert world.book.kinds() == ["OpenCampaign"]


async def test_another_policy_is_another_campaign() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    with pytest.raises(Declined, match="another name"):
        await world.runs.open_campaign("pilot", policy(POLICY.replace("runs = 7", "runs = 8")))
    with pytest.raises(Declined, match="planned"):
        await world.runs.open_campaign("pilot", policy(), 5)


async def test_a_campaign_whose_opening_was_not_written_is_not_there() -> None:
    world = World()
    world.book.failing = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.open_campaign("pilot", policy())
    assert world.runs.campaigns() == ()
    world.book.failing = False
    assert (await world.runs.open_campaign("pilot", policy()))[1]


@pytest.mark.parametrize("name", ["", "Pilot", "../etc", "a/b", "x" * 65, "-a"])
async def test_a_name_that_is_none_opens_nothing(name: str) -> None:
    world = World()
    with pytest.raises(Declined) as declined:
        await world.runs.open_campaign(name, policy())
    assert declined.value.code == "invalid"
    assert world.book.posted == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("x" * 201, "longer"),
        ("a\nb", "can't be seen"),
        ("a\x1b[31m", "can't be seen"),
        ("a\u202eb", "can't be seen"),
        ("fix-parser ", "blank"),
        (" ", "blank"),
        ("cafe\u0301", "accents"),
    ],
)
@pytest.mark.parametrize("what", ["task", "label", "idempotency_key"])
async def test_a_text_that_could_be_taken_for_another_is_put_on_no_record(what: str, text: str, cause: str) -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    with pytest.raises(Declined) as declined:
        await world.runs.open_run("pilot", "r1", **{what: text})
    assert declined.value.code == "invalid"
    assert cause in declined.value.cause
    if what != "idempotency_key":
        with pytest.raises(Declined, match="r1"):
            await world.runs.open_campaign("other", policy(), plan=[PlannedRun(**{"run": "r1", what: text})])
    assert world.book.kinds() == ["OpenCampaign"]


@pytest.mark.parametrize("text", ["", "fix parser", "caf\u00e9", "\u9879\u76ee", "\U0001f642"])
async def test_any_other_text_stands_as_it_was_said(text: str) -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    await world.runs.open_run("pilot", "r1", task=text, label=text)
    assert (world.runs.run("pilot", "r1").task, world.runs.run("pilot", "r1").label) == (text, text)


async def test_a_run_has_a_key_for_each_lane_of_the_policy_and_each_is_recognised() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    opened = await world.runs.open_run("pilot", "r1", task="t", label="engineering")
    assert set(opened.keys) == {"foreground", "background"}
    for lane, secret in opened.keys.items():
        identity = world.runs.identify(secret or "")
        assert identity is not None
        assert (identity.lane, identity.run.run, identity.run.label, identity.campaign.campaign) == (lane, "r1", "engineering", "pilot")
        assert identity.live
        assert not identity.held


async def test_no_secret_is_posted_or_kept() -> None:
    world = World()
    secret = (await world.open("r1"))["r1"]
    assert secret not in repr(world.book.posted)
    assert secret not in repr([(key.digest, key.key_id) for key in world.runs.keys("pilot")])


@pytest.mark.parametrize("secret", ["", "gw-nobody", "\udcff", "\ud800", "x" * 100_000])
async def test_an_unknown_key_is_nobody(secret: str) -> None:
    world = World()
    await world.open("r1")
    assert world.runs.identify(secret) is None


async def test_the_lanes_asked_for_must_be_declared() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    assert set((await world.runs.open_run("pilot", "r1", lanes=["background"])).keys) == {"background"}
    with pytest.raises(Declined, match="no lane 'night'"):
        await world.runs.open_run("pilot", "r2", lanes=["night"])


async def test_fifty_openings_at_once_against_seven_give_exactly_seven() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    answers = await asyncio.gather(*(world.runs.open_run("pilot") for _ in range(50)), return_exceptions=True)
    opened = [answer for answer in answers if isinstance(answer, OpenedRun)]
    declined = [answer for answer in answers if isinstance(answer, Declined)]
    assert (len(opened), len(declined)) == (7, 43)
    assert len({one.run for one in opened}) == 7
    shortfall = declined[0].shortfall
    assert shortfall is not None
    assert (shortfall.name, shortfall.ceiling, shortfall.settled, shortfall.asked) == ("campaign.runs", 7, 7, 1)
    assert declined[0].code == "run_budget_reached"


async def test_a_run_that_never_calls_counts_and_one_that_was_not_written_does_not() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy(POLICY.replace("runs = 7", "runs = 1")))
    world.book.failing = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.open_run("pilot", "r1")
    world.book.failing = False
    assert (await world.runs.open_run("pilot", "r1")).created
    with pytest.raises(Declined):
        await world.runs.open_run("pilot", "r2")


async def test_a_limit_on_runs_is_each_campaigns_own() -> None:
    world = World()
    await world.runs.open_campaign("a", policy())
    await world.runs.open_campaign("b", policy())
    for number in range(7):
        await world.runs.open_run("a", f"r{number}")
    assert (await world.runs.open_run("b", "r0")).created


async def test_a_run_id_is_unique_in_its_campaign() -> None:
    world = World()
    await world.open("r1")
    with pytest.raises(Declined, match="already"):
        await world.runs.open_run("pilot", "r1")
    await world.runs.open_campaign("other", policy())
    assert (await world.runs.open_run("other", "r1")).created


async def test_a_repeated_opening_gives_the_same_run_and_new_keys_in_place_of_the_lost_ones() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    first = await world.runs.open_run("pilot", task="t", idempotency_key="i")
    second = await world.runs.open_run("pilot", task="t", idempotency_key="i")
    assert (first.run, first.created) == (second.run, True)
    assert not second.created
    assert "revoked" in second.note
    for lane, lost in first.keys.items():
        assert lost != second.keys[lane]
        old, new = world.runs.identify(lost or ""), world.runs.identify(second.keys[lane] or "")
        assert old is not None
        assert new is not None
        assert old.revoked
        assert not old.live
        assert new.live
    assert world.book.kinds().count("OpenRun") == 1


async def test_openings_with_one_idempotency_key_at_once_give_one_run_and_one_live_key_a_lane() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    answers = await asyncio.gather(*(world.runs.open_run("pilot", idempotency_key="i") for _ in range(9)))
    assert len({answer.run for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert sorted(key.lane for key in world.runs.keys("pilot") if key.live) == ["background", "foreground"]


async def test_once_a_call_was_made_a_repeated_opening_says_so_and_leaves_the_keys_alone() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    first = await world.runs.open_run("pilot", "r1", idempotency_key="i")
    world.in_flight.enter("c1", "pilot", "r1", first.key_ids["foreground"]).end()
    again = await world.runs.open_run("pilot", "r1", idempotency_key="i")
    assert set(again.keys.values()) == {None}
    assert "Calls were made" in again.note
    assert all(key.live for key in world.runs.keys("pilot", "r1"))


@pytest.mark.parametrize("other", [{"task": "u"}, {"label": "production"}, {"lanes": ["foreground"]}, {"run": "r9"}])
async def test_the_same_idempotency_key_with_other_arguments_is_an_error(other: dict[str, object]) -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    await world.runs.open_run("pilot", task="t", idempotency_key="i")
    with pytest.raises(Declined, match="other arguments"):
        await world.runs.open_run("pilot", **{"task": "t", "idempotency_key": "i", **other})  # type: ignore[arg-type]


async def test_a_repeated_opening_is_not_counted_against_the_limit_on_runs() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy(POLICY.replace("runs = 7", "runs = 1")))
    first = await world.runs.open_run("pilot", idempotency_key="i")
    assert (await world.runs.open_run("pilot", idempotency_key="i")).run == first.run


async def test_a_driver_that_leaves_does_not_leave_a_run_half_open() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    world.book.hold()
    opening = asyncio.create_task(world.runs.open_run("pilot", "r1", idempotency_key="i"))
    await until(lambda: "OpenRun" in world.book.kinds())
    opening.cancel()
    await asyncio.sleep(0)
    world.book.release()
    await world.runs.finish()
    assert {key.lane for key in world.runs.keys("pilot", "r1")} == {"foreground", "background"}
    assert (await world.runs.open_run("pilot", "r1", idempotency_key="i")).keys["foreground"]


async def test_nothing_opens_where_the_ledger_or_the_clock_admits_nothing() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    world.book.uncertain = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.open_run("pilot", "r1")
    with pytest.raises(LedgerUnavailable):
        await world.runs.open_campaign("other", policy())


async def test_the_opening_holds_accounts_hashes_and_label() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    await world.runs.open_run("pilot", "r1", label="engineering", task="t")
    posted = next(command for command in world.book.posted if isinstance(command, OpenRun))
    assert [account.key for account in posted.accounts] == ["campaign|pilot|||runs|"]
    assert (posted.label, posted.task) == ("engineering", "t")
    assert len(posted.arguments_hash) == len(posted.limits_hash) == 64


async def test_a_revoked_key_cuts_its_own_calls_once_that_is_durable_and_no_others() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    opened = await world.runs.open_run("pilot", "r1")
    mine = world.in_flight.enter("c1", "pilot", "r1", opened.key_ids["foreground"])
    other = world.in_flight.enter("c2", "pilot", "r1", opened.key_ids["background"])
    identity = world.runs.identify(opened.keys["foreground"] or "")
    assert identity is not None
    world.book.hold()
    revoking = asyncio.create_task(world.runs.revoke_key(opened.key_ids["foreground"]))
    await until(lambda: identity.held)
    assert identity.live
    assert mine.cut is None
    world.book.release()
    await revoking
    assert not identity.live
    assert not identity.held
    assert mine.cut is Outcome.CLOSED_CUT
    assert other.cut is None
    assert world.wakings


async def test_a_revocation_that_was_not_written_changes_nothing_and_can_be_asked_for_again() -> None:
    world = World()
    secret = (await world.open("r1"))["r1"]
    identity = world.runs.identify(secret)
    assert identity is not None
    world.book.failing = True
    with pytest.raises(LedgerUnavailable):
        await world.runs.revoke_key(identity.key_id)
    assert identity.live
    assert not identity.held
    world.book.failing = False
    await world.runs.revoke_key(identity.key_id)
    await world.runs.revoke_key(identity.key_id)
    assert not identity.live
    assert sum(isinstance(command, RevokeKey) for command in world.book.posted) == 2  # the one that failed, and one


async def test_further_keys_are_issued_for_declared_lanes_of_open_runs() -> None:
    world = World()
    await world.open("r1")
    issued = await world.runs.issue_key("pilot", "r1", "background")
    identity = world.runs.identify(issued.secret)
    assert identity is not None
    assert (identity.key_id, identity.lane) == (issued.key_id, "background")
    with pytest.raises(Declined, match="no lane"):
        await world.runs.issue_key("pilot", "r1", "night")
    await world.runs.close_run("pilot", "r1")
    with pytest.raises(Declined, match="closed"):
        await world.runs.issue_key("pilot", "r1", "background")
    assert sum(isinstance(command, IssueKey) for command in world.book.posted) == 3


async def test_what_there_is_none_of_is_not_found() -> None:
    world = World()
    await world.open("r1")
    for asked in (
        lambda: world.runs.open_run("nobody"),
        lambda: world.runs.close_run("pilot", "nobody"),
        lambda: world.runs.issue_key("nobody", "r1", "foreground"),
        lambda: world.runs.revoke_key("key-nobody"),
        lambda: world.runs.halt("nobody"),
    ):
        with pytest.raises(Declined) as declined:
            await asked()
        assert declined.value.code == "not_found"


async def test_the_limits_of_a_run_come_narrow_to_broad_with_what_is_left() -> None:
    world = World()
    await world.open("r1")
    of_run = world.runs.limits("pilot", "r1")
    assert [(found.limit.name, found.left) for found in of_run] == [("run.requests", 10)]
    of_campaign = world.runs.limits("pilot")
    assert [(found.limit.name, found.balance.settled, found.left) for found in of_campaign] == [("campaign.runs", 1, 6)]
