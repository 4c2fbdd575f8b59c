"""The ledger's side: calls and refusals of a run or a campaign as they stood with some entry, and only what matching needs of them.

Read page by page in the order of the entries; nothing of a body is kept but a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from gateway.accounting.chain import decode
from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import NotFound, RecordProblem
from gateway.ledger.reading import LedgerReader

PAGE: Final = 1_000
CALLS_MAX: Final = 500_000
RETRIES: Final = "x-stainless-retry-count"
SAYS_NOTHING: Final = frozenset({"x-initiator", RETRIES})
"""Headers on record that name no session."""
CONVERSATION_FIELDS: Final = ("messages", "input", "prompt")
CLOSING: Final = frozenset({"settle", "void", "expire", "adjust"})

Content = Mapping[str, object]
Progress = Callable[[str, int], None]


@dataclass(slots=True, kw_only=True, eq=False)
class LedgerCall:
    """One call. Mutable only while it is read."""

    call_id: str
    campaign: str
    run: str
    lane: str
    model: str
    upstream: str
    dialect: str
    stream: bool
    number: int
    """Of its reservation: the order of admission."""
    admitted_ms: int
    waited_ms: int = 0
    ended_ms: int | None = None
    status: str = "reserved"
    outcome: str = ""
    source: str = ""
    usage: Usage = UNKNOWN_USAGE
    http_status: int | None = None
    model_reported: str = ""
    response_id: str = ""
    item_ids: tuple[str, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    session: frozenset[str] = frozenset()
    """What the agent sent along to name session, thread or call."""
    tools: bool = False
    """Whether it offered any."""
    conversation: str = ""
    """Digest of what it sent of the conversation; empty where there is none."""
    retry: bool = False
    """Whether its agent's library said that it tries again."""
    empty: bool = False
    """Whether the answer is known to have held neither text nor a tool call."""

    @property
    def answered(self) -> bool:
        """The gateway saw the end of a whole answer."""
        return self.outcome in ("completed", "length")

    @property
    def run_name(self) -> str:
        return f"{self.campaign}/{self.run}"

    @property
    def until_ms(self) -> int:
        return self.ended_ms if self.ended_ms is not None else self.admitted_ms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LedgerRefusal:
    """A call that was not admitted, or several as one entry sums them (then without an id)."""

    call_id: str
    campaign: str
    run: str
    number: int
    at_ms: int
    code: str
    final: bool
    model: str = ""
    limit: str = ""
    count: int = 1
    since_ms: int = 0

    @property
    def run_name(self) -> str:
        return f"{self.campaign}/{self.run}"


@dataclass(slots=True, kw_only=True)
class RunFacts:
    """What else the ledger says of a run. Mutable only while it is read."""

    campaign: str
    run: str
    label: str = ""
    opened_ms: int = 0
    closing_ms: int | None = None
    exit: int | None = None
    turn_end: str = ""

    @property
    def killed(self) -> bool:
        """Declared as ended from outside: by a signal, or by someone who stopped it."""
        by_signal = self.exit is not None and (self.exit < 0 or self.exit >= 128)
        return by_signal or self.turn_end in ("aborted", "time_limit")


@dataclass(slots=True, kw_only=True)
class LedgerSide:
    campaign: str
    run: str
    """Empty: the whole campaign."""
    as_of: int = 0
    last_number: int = 0
    """Of the last entry that was read."""
    calls: list[LedgerCall] = field(default_factory=list)
    refusals: list[LedgerRefusal] = field(default_factory=list)
    runs: dict[str, RunFacts] = field(default_factory=dict)
    """By `CAMPAIGN/RUN`."""


def read_ledger(reader: LedgerReader, campaign: str, run: str = "", *, as_of: int = 0, progress: Progress | None = None) -> LedgerSide:
    """Raises NotFound where the ledger has no such run or campaign (yet, with `as_of`)."""
    side = LedgerSide(campaign=campaign, run=run, as_of=as_of)
    calls: dict[str, LedgerCall] = {}
    chain = f"run:{campaign}/{run}"
    where = "(name = :chain OR (:whole AND substr(name, 1, length(:chain)) = :chain) OR (name = :opened_in AND kind = 'open_run'))"
    for number, content in pages(reader, where, as_of, chain=chain, whole=not run, opened_in=f"campaign:{campaign}"):
        side.last_number = number
        _take(side, calls, number, content)
        if len(calls) > CALLS_MAX:
            raise RecordProblem(f"more than {CALLS_MAX} calls: reconcile one run at a time")
        if progress and number % PAGE == 0:
            progress("entries", number)
    if not side.runs:
        raise NotFound(f"the ledger has no {f'run {campaign}/{run}' if run else f'run of campaign {campaign}'}{f' as of entry {as_of}' if as_of else ''}")
    side.calls = [call for call in calls.values() if call.status != "voided"]
    side.refusals += [_void_as_refusal(call) for call in calls.values() if call.status == "voided"]
    return side


def pages(reader: LedgerReader, where: str, as_of: int = 0, **values: object) -> Iterator[tuple[int, Content]]:
    """Entries in order with what stands in them, a page at a time."""
    after = 0
    while True:
        rows = reader.query(
            f"""SELECT number, CAST(body AS BLOB) AS body FROM journal JOIN chains ON chains.id = chain_id
            WHERE number > :after AND (:as_of = 0 OR number <= :as_of) AND {where} ORDER BY number LIMIT {PAGE}""",
            after=after,
            as_of=as_of,
            **values,
        )
        for row in rows:
            yield cast(int, row["number"]), decode(cast(bytes, row["body"]))
        if len(rows) < PAGE:
            return
        after = cast(int, rows[-1]["number"])


def _take(side: LedgerSide, calls: dict[str, LedgerCall], number: int, content: Content) -> None:
    name = f"{content.get('campaign', '')}/{content.get('run', '')}"
    match content["kind"]:
        case "open_run" if side.run in ("", content["run"]):
            side.runs[name] = RunFacts(
                campaign=_text(content, "campaign"), run=_text(content, "run"), label=_text(content, "label"), opened_ms=cast(int, content["at_ms"])
            )
        case "begin_closing":
            side.runs[name].closing_ms = cast(int, content["at_ms"])
        case "declare":
            results = cast("Content", content["results"])
            facts = side.runs[name]
            facts.exit = cast("int | None", results.get("exit", facts.exit))
            facts.turn_end = _text(results, "turn_end") or facts.turn_end
        case "reserve":
            calls[_text(content, "call")] = _call(number, content)
        case kind if kind in CLOSING:
            _close(calls[_text(content, "call")], content)
        case "refuse" | "refusal_summary":
            side.refusals.append(_refusal(number, content))


def _call(number: int, content: Content) -> LedgerCall:
    details = _object(content, "details")
    fields = _object(details, "fields")
    sent = next((digest for name in CONVERSATION_FIELDS if (digest := _text(_object(fields, name), "sha256"))), "")
    session = cast("Mapping[str, str]", _object(details, "session"))
    return LedgerCall(
        call_id=_text(content, "call"),
        campaign=_text(content, "campaign"),
        run=_text(content, "run"),
        lane=_text(content, "lane"),
        model=_text(content, "model"),
        upstream=_text(content, "upstream"),
        dialect=_text(content, "dialect"),
        stream=content.get("stream") is True,
        number=number,
        admitted_ms=cast(int, content["at_ms"]),
        waited_ms=cast(int, content.get("waited_ms", 0)),
        session=frozenset(value for header, value in session.items() if header not in SAYS_NOTHING and value),
        tools=bool(details.get("tool_count")),
        retry=session.get(RETRIES, "0") not in ("", "0"),
        conversation=sent or _text(details, "canonical_sha256"),
    )


def _close(call: LedgerCall, content: Content) -> None:
    kind = content["kind"]
    call.status = {"settle": "settled", "void": "voided", "expire": "expired", "adjust": "adjusted"}[cast(str, kind)]
    call.source = _text(content, "source") or call.source
    call.usage = Usage(**cast("dict[str, int]", _object(content, "usage")))
    if kind != "adjust":  # a correction says nothing of the end
        call.ended_ms = cast(int, content["at_ms"])
        call.outcome = _text(content, "outcome")
    if details := _object(content, "details"):
        call.http_status = cast("int | None", details.get("status"))
        call.model_reported = _text(details, "model_reported")
        call.response_id = _text(details, "response_id")
        delivered = _object(details, "delivered_bytes")
        call.empty = bool(delivered) and not any(delivered.get(name) for name in ("text", "tool_arguments")) and not details.get("tool_call_ids")
        call.item_ids, call.tool_call_ids = ids_in(details, "item_ids"), ids_in(details, "tool_call_ids")


def _refusal(number: int, content: Content) -> LedgerRefusal:
    at_ms = cast(int, content["at_ms"])
    return LedgerRefusal(
        call_id=_text(content, "call"),
        campaign=_text(content, "campaign"),
        run=_text(content, "run"),
        number=number,
        at_ms=cast(int, content.get("until_ms", at_ms)),
        code=_text(content, "code"),
        final=content.get("final") is True,
        model=_text(content, "model"),
        limit=_text(_object(content, "limit"), "name"),
        count=cast(int, content.get("count", 1)),
        since_ms=cast(int, content.get("since_ms", at_ms)),
    )


def _void_as_refusal(call: LedgerCall) -> LedgerRefusal:
    """Nothing of it was sent."""
    at_ms = call.until_ms
    return LedgerRefusal(
        call_id=call.call_id, campaign=call.campaign, run=call.run, number=call.number, at_ms=at_ms, code="not_sent", final=False, since_ms=call.admitted_ms
    )


def ids_in(details: Content, name: str) -> tuple[str, ...]:
    found = details.get(name, ())
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list | tuple) else ()


def _text(content: Content, name: str) -> str:
    found = content.get(name)
    return found if isinstance(found, str) else ""


def _object(content: Content, name: str) -> Content:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}
