"""What one row of an agent's own record says about one of its requests, in one normal form, whoever wrote it.

A reader turns a file into these; it de-duplicates what its agent wrote twice and says of each row what kind it is, but never what it matches.
Unknown is None or empty, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gateway.accounting.usage import UNKNOWN_USAGE, Usage


class RecordKind(StrEnum):
    ANSWER = "answer"
    """The agent took an answer of a model server."""
    ERROR = "error"
    """A server's refusal or failure as the agent noted it, with its status or request id where it kept them."""
    ABORTED = "aborted"
    """The agent gave up a call in its midst; usage is partial or absent."""
    PLACEHOLDER = "placeholder"
    """A row that the agent made itself for want of an answer: synthetic, zeros."""
    LOCAL_ERROR = "local_error"
    """Something went wrong on the agent's side; no server may have heard of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRecord:
    agent: str
    """The reader's name."""
    source: str
    """`file:line`, or `file#id` where the record has no lines."""
    kind: RecordKind = RecordKind.ANSWER
    session: str = ""
    order: int = 0
    """Its place among the rows of its session."""
    begun_ms: int | None = None
    at_ms: int | None = None
    """When the row was written or the answer ended."""
    model: str = ""
    """As the record names it."""
    model_is_servers: bool = False
    """Whether that is the name the server answered with, not the one that was asked for."""
    usage: Usage = UNKNOWN_USAGE
    """Cached parts inside the input, reasoning inside the output."""
    usage_is_own: bool = False
    """The agent's own estimate, not what a server reported."""
    response_id: str = ""
    item_ids: tuple[str, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    request_ids: tuple[str, ...] = ()
    """What the server sent as x-request-id or request-id."""
    session_ids: tuple[str, ...] = ()
    """What the agent sent along to name its session, thread or call."""
    status: int | None = None
    finish: str = ""
    message: str = ""
    """An error's words, cut short; never a prompt or an answer."""
    echo: bool = False
    """From a file of totals that says again, without an id, what the agent's main record says: counted only where that lacks it."""
    copy_key: str = ""
    """What stays the same where the agent writes the same row into another of its files (resume, fork, totals); empty: it never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A place in a record that could not be read, or bears nothing about a request though it looks as if it should."""

    source: str
    why: str


class AgentReader(Protocol):
    """One agent's record, in all versions of its format that are known."""

    name: str
    about: str
    """Which agent and which versions, in a few words."""
    caveat: str
    """What a report must say of all this agent's rows; empty: nothing."""

    def claims(self, path: Path) -> bool:
        """Whether the file or folder looks like this agent's, by a bounded look at it."""

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        """Raises RecordProblem (a GatewayError) where the format is this agent's but of a version that is not known, naming what was found."""
