"""What a row of the report can be, in one table: exit status, documents and pages follow from it.

A class is explained or unexplained, never now this and now that: what needs a person has a class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Class(StrEnum):
    EQUAL = "equal"
    DIFFERS = "differs"
    AMBIGUOUS = "ambiguous"
    OWN_ESTIMATE = "own_estimate"
    SIDE_CALL = "side_call"
    RETRIED_ATTEMPT = "retried_attempt"
    CLIENT_ABORTED = "client_aborted"
    GATEWAY_CUT = "gateway_cut"
    ENGINE_CUT = "engine_cut"
    NO_USAGE = "no_usage"
    REFUSED = "refused"
    OPEN = "open"
    AGENT_KILLED = "agent_killed"
    RECORD_LOST = "record_lost"
    LOCAL_ERROR_ROW = "local_error_row"
    ABORTED_PARTIAL = "aborted_partial"
    PLACEHOLDER = "placeholder"
    LATER = "later"
    OTHER_SESSION = "other_session"
    OTHER_RUN = "other_run"
    UNIDENTIFIED = "unidentified"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    explained: bool
    where: str
    """`both`, `ledger` or `record`: on which side such a row usually stands. A pair that was matched by an id may have a one-sided reason too."""
    says: str
    do: str = ""
    """What a person does about it; empty: nothing."""


def _known(where: str, says: str, do: str = "") -> Meaning:
    return Meaning(explained=True, where=where, says=says, do=do)


def _open(where: str, says: str, do: str) -> Meaning:
    return Meaning(explained=False, where=where, says=says, do=do)


MEANINGS: Final[dict[Class, Meaning]] = {
    Class.EQUAL: _known("both", "One call and one row, and every number that both know is the same."),
    Class.DIFFERS: _open(
        "both",
        "One call and one row, but a number, the model, an id or the ending differs; the field and both values are named.",
        "See `gateway explain CALL` and the row. If the ledger is wrong, `gateway correct CALL`; if the record is, keep this report beside it.",
    ),
    Class.AMBIGUOUS: _open(
        "both",
        "Several calls or rows fit and nothing tells which belongs to which. No guess is made.",
        "Give records that bear ids, one run at a time; or read the rows that are named side by side.",
    ),
    Class.OWN_ESTIMATE: _known(
        "both", "Matched by order and time alone; the record holds the agent's own estimate, so the numbers are not held against each other."
    ),
    Class.SIDE_CALL: _known("ledger", "A call beside the conversation (no tools where the others offer some, or another model): agents keep no record of it."),
    Class.RETRIED_ATTEMPT: _known("ledger", "The same conversation was sent again later; agents record the last attempt only."),
    Class.CLIENT_ABORTED: _known("ledger", "The agent left before the end of its answer."),
    Class.GATEWAY_CUT: _known("ledger", "The gateway ended it: a deadline, a closed run, a cap, a shutdown, or a settlement that could not be written."),
    Class.ENGINE_CUT: _known("ledger", "The engine ended it: an error, a death, a time-out."),
    Class.NO_USAGE: _known("ledger", "The engine reported no usage, and the agent kept no row or no numbers that could be compared."),
    Class.REFUSED: _known("ledger", "Refused, by the gateway or by the engine, before any work; charged to nothing."),
    Class.OPEN: _known("ledger", "Not settled yet.", "Reconcile again when the run is closed."),
    Class.AGENT_KILLED: _known(
        "ledger", "After the last row of a record whose agent, by its run's declared results, was killed or aborted: it had no time to write."
    ),
    Class.RECORD_LOST: _open(
        "ledger",
        "A whole answer that no row tells of.",
        "Look for a record that was not given, for a line that was removed, or for an agent that was killed (then declare it: `gateway run close --exit`).",
    ),
    Class.LOCAL_ERROR_ROW: _known("record", "An error on the agent's side, or one that leaves no entry; no call of the ledger belongs to it."),
    Class.ABORTED_PARTIAL: _known("record", "The agent gave up in the midst of an answer; its numbers are partial and are not compared."),
    Class.PLACEHOLDER: _known("record", "A row that the agent made itself for want of an answer."),
    Class.LATER: _known("record", "A call of this run that came after the entry as of which the ledger is looked at."),
    Class.OTHER_SESSION: _known(
        "record", "Of a session that has nothing to do with what is reconciled (all of another run, or of another time), or carried along from before it."
    ),
    Class.OTHER_RUN: _open(
        "record",
        "A row of another run's call, in a record that otherwise belongs here.",
        "Find out how it came there: a conversation that was resumed in another run carries its rows along; else a record was mixed or slipped in.",
    ),
    Class.UNIDENTIFIED: _open(
        "record",
        "A row without an id by which it could be found, and no call fits it.",
        "A line that was added or altered, an agent that asks somewhere else, or a record of something else: read the row.",
    ),
    Class.FOREIGN: _open(
        "record",
        "ALARM. An answer with an id of the engine's own form that the whole ledger does not know, from the time in question.",
        "An engine was reached past the gateway, or this is another gateway's record. Let nothing but the gateway reach an engine; then read the record.",
    ),
}


def explained(name: Class) -> bool:
    return MEANINGS[name].explained
