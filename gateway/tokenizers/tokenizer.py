"""The protocols of counting, and the two ways in which a count may not be had."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from gateway.dialects.dialect import CallRequest
from gateway.errors import GatewayError

Post = Callable[[str, object], Awaitable[tuple[int, object]]]
"""Asks an engine: (path, JSON value) -> (status, JSON value). Bounded in time and number by who hands it out; raises EngineFailure."""


class CannotCount(GatewayError):
    """Overhead or count is not to be had from the engine now: the call gets 503 `engine_unavailable`."""


class PromptRejected(GatewayError):
    """The engine can't render this body at all (its template refuses it): it would refuse the call too. `status` and the text are the engine's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Tokenizer(Protocol):
    """Counts text, off the event loop."""

    name: str
    """What `counted_by` says: `tiktoken:o200k_base`."""

    async def count(self, parts: Sequence[str]) -> int: ...


class EngineTokenizer(Protocol):
    """Template and tokenizer of one model, asked at the engine itself: what it counts, the engine will report. All raise CannotCount, PromptRejected."""

    @property
    def specials(self) -> Sequence[bytes]:
        """Words that are known to be one token wherever they stand."""

    async def learn(self, template: str) -> None:
        """From a rendered conversation, before the first count."""

    async def render(self, body: Mapping[str, object]) -> bytes:
        """A chat body as its template writes it."""

    async def count(self, body: Mapping[str, object], run_key: str) -> int:
        """Of a chat body. The caller sees to it that a run counts one call at a time."""

    async def count_plain(self, texts: Sequence[str], ids: int, begins: int, *, literal: bool = False) -> int:
        """Prompts that no template renders; `begins` of them begin with a text. `literal`: no word in them is special."""

    async def count_messages(self, body: Mapping[str, object]) -> int:
        """A body of Anthropic's Messages."""

    async def count_responses(self, body: Mapping[str, object]) -> int:
        """A body of OpenAI's Responses."""

    async def count_text(self, text: str) -> int:
        """A text that is no prompt: nothing is added, no word in it is special."""


class Finding(StrEnum):
    """What a report says about the figure that was held against the limits."""

    OVERSHOOT = "overshoot"
    """The report is above a bound: bounds are not used for this model any more."""
    COUNT_DRIFT = "count_drift"
    """The report differs from a count that was to be exact: this counter counts as estimating from now on."""


class Counter(Protocol):
    """Counts the prompts of one model on one upstream. One for both's lifetime; it remembers what it learned."""

    name: str
    """`engine`, `tiktoken:o200k_base`, `bytes`."""

    @property
    def can_count(self) -> bool:
        """There is something better than the bound."""

    @property
    def exact(self) -> bool:
        """A count is the engine's own figure. Turns false for good when a report shows otherwise."""

    @property
    def trusts_bound(self) -> bool:
        """False after an overshoot: then the call is counted before it is decided."""

    @property
    def knows_overhead(self) -> bool:
        """False where neither overhead nor counter is to be had: such a model is refused under an input cap."""

    async def ready(self, request: CallRequest | None = None) -> None:
        """Before the first bound: measures the model's overhead, once, unless this request needs none. Raises CannotCount."""

    def bound(self, request: CallRequest) -> tuple[int, bool]:
        """(tokens, exact) at once. Needs `ready()` to have succeeded."""

    async def count(self, request: CallRequest, run_key: str) -> int:
        """The exact count, or the estimate, of the whole prompt. One at a time for each `run_key`. Raises CannotCount, PromptRejected."""

    async def count_text(self, text: str) -> int:
        """Of text that was delivered, for an answer whose engine reported nothing. Raises CannotCount."""

    def observe(self, request: CallRequest, tokens: int, counted: bool, reported: int) -> Finding | None:
        """Holds the engine's report against the figure that was used (`counted`: it came from `count`, else from `bound`)."""

    def forget(self) -> None:
        """The engine changed (another build, model or template): measure anew, and what reports taught is void."""
