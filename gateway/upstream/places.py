"""The accounts that somebody waits on, and the room set aside there.

Rule: at most one call an account has room set aside, it is taken in one order over all accounts (narrow to broad), and it ends when that call leaves
the queue, is halted, or no longer has the account among its limits. One order, and holders that never wait for others: no deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.accounting.balances import Balances
from gateway.accounting.decision import holds, narrowness, need
from gateway.accounting.entries import PostingLine
from gateway.accounting.limit import Account, Limit, Limits
from gateway.accounting.quantity import Quantity
from gateway.upstream.waiter import Place, Waiter


class Places:
    def __init__(self, balances: Balances) -> None:
        self._balances = balances
        self._places: dict[Account, Place] = {}
        self._changed: dict[Place, bool] = {}
        balances.watch(self._applied)

    def enter(self, waiter: Waiter, limits: Iterable[Limit]) -> None:
        """The waiter waits on these limits from now on, and no longer on those before. Asides on accounts that it keeps stay."""
        before, kept = waiter.places, waiter.asides
        waiter.limits = Limits.of(limits)
        waiter.places = tuple(self._place(limit.account) for limit in waiter.limits)
        flow = waiter.flow
        for place in waiter.places:
            place.flows[flow] = place.flows.get(flow, 0) + 1
        self.note(waiter)
        waiter.asides = [place for place in kept if place in waiter.places]
        for place in kept:
            if place not in waiter.places:
                place.holder = None
        self._depart(waiter, before)

    def leave(self, waiter: Waiter) -> None:
        self.drop_asides(waiter)
        places, waiter.places, waiter.blocked = waiter.places, (), None
        self._depart(waiter, places)

    def drop_asides(self, waiter: Waiter) -> None:
        for place in waiter.asides:
            place.holder = None
        waiter.asides = []

    def set_aside(self, waiter: Waiter) -> bool:
        """Room on the first account that is short of what the waiter would go with, and on the narrower ones. True: what it had is dropped instead.

        While only a new window can help it, nothing is set aside: others would stand back for room that comes to nobody.
        """
        if waiter.walk_floor != waiter.floor:
            _plan_walk(waiter)
        if any(_spent(place) > slack for slack, place in waiter.reopening):
            dropped = bool(waiter.asides)
            self.drop_asides(waiter)
            return dropped
        walked, short = [], False
        for slack, place in waiter.walk:
            if place.holder is not None and place.holder is not waiter:
                break
            walked.append(place)
            if place.gone > slack:
                short = True
                break
        if short or waiter.asides:
            for place in walked:
                if place.holder is None:
                    place.holder = waiter
                    waiter.asides.append(place)
        return False

    def idle(self, waiter: Waiter) -> bool:
        """Nothing can come of looking at it: its account gives too little yet, and there is nothing that could be set aside for it."""
        if waiter.asides or waiter.walk_floor != waiter.floor or not waiter.still_blocked():
            return False
        for slack, place in waiter.walk:
            if place.holder is not None and place.holder is not waiter:
                return True
            if place.gone > slack:
                return False
        return True

    def note(self, waiter: Waiter) -> None:
        """Remember how much it could need at most; also when its demand has changed."""
        waiter.walk_floor = -1
        for limit, place in zip(waiter.limits, waiter.places, strict=True):
            place.note(limit.ceiling, need(place.account.quantity, waiter.demand.prompt_tokens, waiter.demand.want))

    def take_changed(self) -> Iterable[tuple[Place, bool]]:
        """Accounts of which somebody may not get all that it wants, ever, and where that changed since this was asked last. True: it may be more."""
        changed, self._changed = self._changed, {}
        return [(place, raised) for place, raised in changed.items() if raised or not place.ample()]

    def held(self) -> Iterable[Place]:
        return [place for place in self._places.values() if place.holder is not None]

    def _place(self, account: Account) -> Place:
        place = self._places.get(account)
        if place is None:
            balance = self._balances.of(account)
            place = self._places[account] = Place(account, balance, balance.settled + balance.reserved)
        return place

    def _depart(self, waiter: Waiter, places: Iterable[Place]) -> None:
        flow = waiter.flow
        for place in places:
            if place.flows[flow] > 1:
                place.flows[flow] -= 1
                continue
            del place.flows[flow]
            if not place.flows:
                del self._places[place.account]
                self._changed.pop(place, None)

    def _applied(self, lines: tuple[PostingLine, ...]) -> None:
        if not self._places:
            return
        for line in lines:
            place = self._places.get(line.account)
            if place is None:
                continue
            balance = place.balance = self._balances.of(line.account)
            place.gone = balance.settled + balance.reserved
            spent = line.settled + line.reserved if line.account.quantity is Quantity.REQUESTS else line.settled
            if spent:
                self._changed[place] = self._changed.get(place, False) or spent < 0


def _plan_walk(waiter: Waiter) -> None:
    demand, floor = waiter.demand, waiter.floor
    walk, reopening = [], []
    for limit, place in sorted(zip(waiter.limits, waiter.places, strict=True), key=lambda pair: narrowness(pair[0].account)):
        needed = need(place.account.quantity, demand.prompt_tokens, floor)
        if needed and waiter.reopens(limit):
            reopening.append((limit.ceiling - needed, place))
        if holds(place.account.quantity, demand.prompt_tokens, floor):
            walk.append((limit.ceiling - needed, place))
    waiter.walk, waiter.reopening, waiter.walk_floor = tuple(walk), tuple(reopening), floor


def _spent(place: Place) -> int:
    """What this window will not give again, should all that is reserved come back but requests."""
    balance = place.balance
    return balance.settled + balance.reserved if place.account.quantity is Quantity.REQUESTS else balance.settled
