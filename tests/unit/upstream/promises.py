"""What must hold of a world at every moment, reckoned anew from its parts and not from what the queue remembers."""

from __future__ import annotations

from collections import defaultdict

from gateway.accounting.decision import Count, Decision, Final, LimitView, Patience, Send, decide, holds, need
from gateway.accounting.limit import Account
from gateway.accounting.quantity import Quantity, measure
from gateway.upstream.homes import AFFINITY_WAIT_MS
from gateway.upstream.waiter import Waiter
from tests.unit.upstream.world import World


def decided_anew(world: World, waiter: Waiter, *, heed_asides: bool = True) -> Decision:
    """The verdict on a waiter at this moment, from balances, clock and the queue's own order."""
    waited = world.time.now_ms - waiter.arrived_ms
    patience = Patience.LEAST if waiter.over else Patience.ENOUGH if waited >= waiter.ticket.clamp_after_ms else Patience.REACH
    return decide(views_of(world, waiter, heed_asides), waiter.demand, patience)


def views_of(world: World, waiter: Waiter, heed_asides: bool) -> list[LimitView]:
    limits = world.budget.limits(waiter.ticket.campaign, waiter.ticket.run, waiter.ticket.lane, world.time.now_ms)
    flows = defaultdict(set)
    for other in world.turns.queue:
        for limit in other.limits:
            flows[limit.account].add(other.flow)
    return [
        LimitView(
            limit=limit,
            balance=world.balances.of(limit.account),
            aside=aside_for_others(world, waiter, limit.account) if heed_asides else 0,
            other_flows=len(flows[limit.account] - {waiter.flow}),
            reopens=limit.window_end_ms is not None and limit.window_end_ms < waiter.ends_ms,
        )
        for limit in limits
    ]


def holders(world: World) -> dict[Account, Waiter]:
    found: dict[Account, Waiter] = {}
    for waiter in world.turns.queue:
        for place in waiter.asides:
            assert place.account not in found, "two calls have room set aside on one account"
            found[place.account] = waiter
    return found


def aside_for_others(world: World, waiter: Waiter, account: Account) -> int:
    holder = holders(world).get(account)
    if holder is None or holder is waiter:
        return 0
    return holds(account.quantity, holder.demand.prompt_tokens, holder.floor)


def heads(world: World) -> list[Waiter]:
    return [waiter for waiter in world.turns.queue if world.turns.queue.flows.is_head(waiter)]


def slot_free(world: World, engine: str) -> bool:
    return world.slots.get(engine, 0) > sum(sent.admission.upstream == engine for sent in world.running.values())


def could_go(world: World, waiter: Waiter) -> bool:
    """There is a slot that it would take: any, but while it waits for its home, and that one is full, none."""
    free = [engine for engine in waiter.ticket.engines if slot_free(world, engine)]
    home = world.homes.get(waiter.flow)
    if not free or home is None or home in free or not world.slots.get(home) or waiter.over or waiter.asides:
        return bool(free)
    assert waiter.home_until_ms is not None, "its patience should have begun"
    assert waiter.home_until_ms <= world.time.now_ms + AFFINITY_WAIT_MS
    return world.time.now_ms >= waiter.home_until_ms


def nothing_crosses_a_ceiling(world: World) -> None:
    """1."""
    held: dict[Account, int] = defaultdict(int)
    for sent in world.running.values():
        for account in sent.accounts:
            held[account] += measure(account.quantity, sent.amounts)
    for account, balance in world.balances:
        assert balance.reserved == held[account], account.key
        if account.quantity is not Quantity.TOOL_CALLS:  # the answer that crosses is delivered
            assert balance.reserved + balance.settled <= world.ceilings[account], account.key


def nobody_waits_for_nothing(world: World) -> None:
    """8."""
    if world.running or any(waiter.counting for waiter in world.turns.queue):
        return
    for waiter in heads(world):
        awaits_a_window = any(limit.window_end_ms is not None and limit.window_end_ms < waiter.ends_ms for limit in waiter.limits)
        assert waiter.ticket.halted() or awaits_a_window or not any(map(world.slots.get, waiter.ticket.engines)), waiter.ticket.call_id


def whoever_stays_has_a_reason(world: World) -> None:
    """9: sent now, it would leave the holder of an aside short; or there is no slot, no room, or a count to wait for."""
    for waiter in heads(world):
        if waiter.counting:
            continue
        verdict = decided_anew(world, waiter)
        assert not isinstance(verdict, Final), f"{waiter.ticket.call_id} should have been told"
        if waiter.ticket.halted():
            continue
        if could_go(world, waiter):
            if isinstance(verdict, Count):
                assert any(other.counting for other in world.turns.queue if other.run == waiter.run)
                continue
            assert not isinstance(verdict, Send), f"{waiter.ticket.call_id} should have gone"
            alone = decided_anew(world, waiter, heed_asides=False)
            assert not isinstance(alone, Send) or leaves_a_holder_short(world, waiter, max(alone.output, alone.floor))


def leaves_a_holder_short(world: World, waiter: Waiter, output: int) -> bool:
    for view in views_of(world, waiter, heed_asides=True):
        left = view.limit.ceiling - view.balance.settled - view.balance.reserved
        if view.aside and left - need(view.limit.account.quantity, waiter.demand.prompt_tokens, output) < view.aside:
            return True
    return False


def asides_are_in_order(world: World) -> None:
    """10, 14."""
    for account, holder in holders(world).items():
        assert holder.queued and not holder.ticket.halted()
        assert account in {limit.account for limit in holder.limits}
    for waiter in world.turns.queue:
        now = world.time.now_ms
        assert waiter.limits == world.budget.limits(waiter.ticket.campaign, waiter.ticket.run, waiter.ticket.lane, now)
        assert [place.account for place in waiter.places] == [limit.account for limit in waiter.limits]
        assert all(place.balance == world.balances.of(place.account) for place in waiter.places)
        assert waiter.over is False or waiter.counting or any(other.counting for other in world.turns.queue if other.run == waiter.run)
        assert now <= waiter.ends_ms or waiter.over


def everybody_is_told_once(world: World) -> None:
    """11, 16."""
    waiting = set(world.waiting())
    for name, outcomes in world.outcomes.items():
        assert len(outcomes) == (0 if name in waiting else 1), (name, outcomes)
    assert not any((waiter.ticket.campaign, waiter.ticket.run) in world.closed for waiter in world.turns.queue)
    for waiter in world.turns.queue:
        assert waiter.ticket.call_id not in world.running


def all_promises(world: World) -> None:
    nothing_crosses_a_ceiling(world)
    nobody_waits_for_nothing(world)
    whoever_stays_has_a_reason(world)
    asides_are_in_order(world)
    everybody_is_told_once(world)
