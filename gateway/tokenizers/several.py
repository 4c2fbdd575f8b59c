"""One counter for a model that several upstreams serve: whichever answers counts, and nothing is promised that one of them can't keep.

A bound is the largest of theirs, a count is exact while each of theirs is. What a report teaches is told to the counter of the upstream that served the
call, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.dialects.dialect import CallRequest
from gateway.tokenizers.tokenizer import CannotCount, Counter, Finding

NOT_NOW = "no upstream that takes calls can be asked"


class SeveralCounters:
    """Made for one call; what is remembered lies in the counters themselves."""

    def __init__(self, counters: Mapping[str, Counter], usable: Callable[[str], bool]) -> None:
        """At least one, by upstream. `usable`: whether an upstream takes calls at this moment."""
        self._counters = counters
        self._usable = usable
        self._ready: list[Counter] = []
        every = list(counters.values())
        self.name = every[0].name
        self.can_count = all(counter.can_count for counter in every)
        self.knows_overhead = all(counter.knows_overhead for counter in every)

    @property
    def exact(self) -> bool:
        return all(counter.exact for counter in self._counters.values())

    @property
    def trusts_bound(self) -> bool:
        return all(counter.trusts_bound for counter in self._counters.values())

    async def ready(self, request: CallRequest | None = None) -> None:
        """Those of the upstreams that take calls; one that does not answer now is left out, unless it is the last."""
        problem = CannotCount(NOT_NOW)
        for counter in self._asked():
            try:
                await counter.ready(request)
            except CannotCount as error:
                problem = error
            else:
                self._ready.append(counter)
        if not self._ready:
            raise problem

    def bound(self, request: CallRequest) -> tuple[int, bool]:
        bounds = [counter.bound(request) for counter in self._ready]
        return max(tokens for tokens, _ in bounds), all(exact for _, exact in bounds)

    async def count(self, request: CallRequest, run_key: str) -> int:
        problem = CannotCount(NOT_NOW)
        for counter in self._asked():
            try:
                return await counter.count(request, run_key)
            except CannotCount as error:
                problem = error
        raise problem

    async def count_text(self, text: str) -> int:
        problem = CannotCount(NOT_NOW)
        for counter in self._asked():
            try:
                return await counter.count_text(text)
            except CannotCount as error:
                problem = error
        raise problem

    def observe(self, request: CallRequest, tokens: int, counted: bool, reported: int) -> Finding | None:
        """A report comes from one upstream: its own counter is told."""
        raise NotImplementedError

    def forget(self) -> None:
        for counter in self._counters.values():
            counter.forget()

    def _asked(self) -> list[Counter]:
        return [counter for name, counter in self._counters.items() if self._usable(name)] or list(self._counters.values())
