"""One counter for a model that several upstreams serve."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.dialects.dialect import CallRequest
from gateway.tokenizers.several import SeveralCounters
from gateway.tokenizers.tokenizer import CannotCount, Counter

REQUEST = cast(CallRequest, None)


class One:
    """A counter as far as it is asked."""

    name, can_count, knows_overhead = "engine", True, True

    def __init__(self, bound: int = 10, count: int = 5, *, exact: bool = True, gone: bool = False) -> None:
        self.exact, self.trusts_bound = exact, exact
        self._bound, self._count, self.gone = bound, count, gone
        self.asked = 0

    async def ready(self, _: object = None) -> None:
        self._must_be_there()

    def bound(self, _: object) -> tuple[int, bool]:
        return self._bound, False

    async def count(self, _request: object, _run: str) -> int:
        self._must_be_there()
        return self._count

    async def count_text(self, _: str) -> int:
        self._must_be_there()
        return self._count

    def _must_be_there(self) -> None:
        self.asked += 1
        if self.gone:
            raise CannotCount("gone")


def several(*out: str, **counters: One) -> SeveralCounters:
    return SeveralCounters(cast("dict[str, Counter]", counters), lambda name: name not in out)


async def test_the_bound_is_the_largest_of_theirs() -> None:
    counter = several(a=One(10), b=One(12))
    await counter.ready(REQUEST)
    assert counter.bound(REQUEST) == (12, False)


async def test_one_that_does_not_answer_is_left_out_unless_it_is_the_last() -> None:
    counter = several(a=One(99, gone=True), b=One(12, 7))
    await counter.ready(REQUEST)
    assert counter.bound(REQUEST)[0] == 12
    assert await counter.count(REQUEST, "r") == await counter.count_text("x") == 7
    lost = several(a=One(gone=True), b=One(gone=True))
    for asked in (lost.ready(REQUEST), lost.count(REQUEST, "r"), lost.count_text("x")):
        with pytest.raises(CannotCount):
            await asked


async def test_one_that_takes_no_calls_is_not_asked_while_another_does() -> None:
    drained: Any = One(1, 1)
    counter = several("a", a=drained, b=One(12, 7))
    await counter.ready(REQUEST)
    assert await counter.count(REQUEST, "r") == 7 and drained.asked == 0


def test_a_count_is_exact_while_each_of_theirs_is() -> None:
    assert several(a=One(), b=One()).exact
    drifted = several(a=One(), b=One(exact=False))
    assert not drifted.exact and not drifted.trusts_bound and drifted.can_count
