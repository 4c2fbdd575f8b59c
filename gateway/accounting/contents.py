"""What a command says in the ledger: its content as canonical-JSON material, without the names and numbers that every entry bears.

Unknown = the key is absent; an empty string, a false flag and a zero that is the default are absent too.
"""

from __future__ import annotations

from typing import assert_never

from gateway.accounting.chain import check
from gateway.accounting.commands import (
    AcceptClock,
    AcceptRestore,
    Adjust,
    BeginClosing,
    CloseCampaign,
    Command,
    Declare,
    Details,
    Event,
    Expire,
    Fingerprint,
    Halt,
    IssueKey,
    OpenCampaign,
    OpenRun,
    RefusalSummary,
    Refuse,
    Reserve,
    Results,
    Resume,
    RevokeKey,
    Settle,
    Void,
    WriteReceipt,
)
from gateway.accounting.limit import Shortfall
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Usage

Body = dict[str, object]

KINDS: dict[type, str] = {
    Reserve: "reserve",
    Settle: "settle",
    Void: "void",
    Expire: "expire",
    Adjust: "adjust",
    Refuse: "refuse",
    RefusalSummary: "refusal_summary",
    OpenCampaign: "open_campaign",
    Halt: "halt",
    Resume: "resume",
    CloseCampaign: "close_campaign",
    OpenRun: "open_run",
    BeginClosing: "begin_closing",
    WriteReceipt: "receipt",
    Declare: "declare",
    IssueKey: "issue_key",
    RevokeKey: "revoke_key",
    AcceptClock: "clock_accepted",
    AcceptRestore: "restored",
    Fingerprint: "fingerprint",
    Event: "event",
}


def content_of(command: Command) -> Body:
    """Raises ValueError where the details of a command may not stand in an entry."""
    match command:
        case Reserve():
            return _reserve(command)
        case Settle():
            return _settle(command)
        case Void() | Halt() | Resume() | AcceptRestore():
            return _present(reason=command.reason)
        case Expire():
            return {"outcome": "lost", "source": "unknown", "usage": {}, "reason": command.reason}
        case Adjust():
            return {"source": "corrected", **_usage_charge(command.usage, command.charge), "reason": command.reason, "evidence": command.evidence}
        case Refuse():
            return _refuse(command)
        case RefusalSummary():
            return _summary(command)
        case OpenCampaign():
            return _open_campaign(command)
        case OpenRun():
            return _open_run(command)
        case BeginClosing() | CloseCampaign() | WriteReceipt():
            return {}
        case Declare():
            return {"results": results(command.results), **_present(reason=command.reason)}
        case IssueKey():
            return {"key": command.key_id, "lane": command.lane, "digest": command.digest}
        case RevokeKey():
            return {"key": command.key_id, **_present(reason=command.reason)}
        case AcceptClock():
            return {"previous_ms": command.previous_ms, **_present(reason=command.reason)}
        case Fingerprint():
            return {"upstream": command.upstream, **_details(command.details)}
        case Event():
            return {"name": command.name, **_details(command.details)}
        case _:
            assert_never(command)


def _reserve(command: Reserve) -> Body:
    amounts = command.amounts
    body: Body = {
        "lane": command.lane,
        "key": command.key_id,
        "model": command.model,
        "upstream": command.upstream,
        "dialect": command.dialect,
        "stream": command.stream,
        "prompt_source": command.prompt_source,
        "ceiling": command.ceiling,
        "ceiling_from": command.ceiling_from,
        "reserved": {
            "requests": amounts.requests,
            "input_tokens": amounts.input_tokens,
            "output_tokens": amounts.output_tokens,
            "concurrent": amounts.concurrent,
        },
    }
    if command.clamped:
        body["clamped"] = True
    if command.waited_ms:
        body["waited_ms"] = command.waited_ms
    if command.details:
        check(command.details)
        body["details"] = command.details
    return body


def _settle(command: Settle) -> Body:
    body = _usage_charge(command.usage, command.charge)
    body["outcome"] = command.outcome
    body["source"] = command.source
    if command.counted_by:
        body["counted_by"] = command.counted_by
    if command.flags:
        body["flags"] = command.flags
    if command.details:
        check(command.details)
        body["details"] = command.details
    return body


def charge_of(charge: Amounts) -> dict[str, int]:
    body = {"requests": charge.requests, "input_tokens": charge.input_tokens, "output_tokens": charge.output_tokens}
    return {**body, "tool_calls": charge.tool_calls} if charge.tool_calls else body


def _usage_charge(usage: Usage, charge: Amounts) -> Body:
    return {"usage": known_of(usage), "charge": charge_of(charge)}


def known_of(usage: Usage) -> dict[str, int]:
    """By name; what is unknown is left out."""
    known: dict[str, int] = {}
    if usage.input_tokens is not None:
        known["input_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        known["output_tokens"] = usage.output_tokens
    if usage.cached_tokens is not None:
        known["cached_tokens"] = usage.cached_tokens
    if usage.cache_write_tokens is not None:
        known["cache_write_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens is not None:
        known["reasoning_tokens"] = usage.reasoning_tokens
    if usage.tool_calls is not None:
        known["tool_calls"] = usage.tool_calls
    return known


def _refuse(command: Refuse) -> Body:
    body: Body = {"lane": command.lane, "model": command.model, "code": command.code, "final": command.final}
    if command.limit is not None:
        body["limit"] = _shortfall(command.limit)
    return body | _present(waited_ms=command.waited_ms, field=command.field_name)


def _shortfall(limit: Shortfall) -> Body:
    body: Body = {"name": limit.name, "ceiling": limit.ceiling, "settled": limit.settled, "reserved": limit.reserved, "asked": limit.asked}
    if limit.resets_at_ms is not None:
        body["resets_at_ms"] = limit.resets_at_ms
    return body


def _summary(command: RefusalSummary) -> Body:
    body: Body = {
        "code": command.code,
        "final": command.final,
        "count": command.count,
        "since_ms": command.since_ms,
        "until_ms": command.until_ms,
    }
    if command.limit_name:
        body["limit"] = {"name": command.limit_name}
    return body


def _open_campaign(command: OpenCampaign) -> Body:
    body: Body = {"policy_name": command.policy_name, "policy": command.policy, "policy_hash": command.policy_hash}
    if command.planned_runs is not None:
        body["planned_runs"] = command.planned_runs
    return body | _details(command.details)


def _open_run(command: OpenRun) -> Body:
    return _present(
        label=command.label,
        task=command.task,
        idempotency_key=command.idempotency_key,
        arguments_hash=command.arguments_hash,
        policy_hash=command.policy_hash,
        limits_hash=command.limits_hash,
    ) | _details(command.details)


def results(declared: Results) -> Body:
    body = _present(turn_end=declared.turn_end, judge=declared.judge)
    if declared.exit is not None:
        body["exit"] = declared.exit
    if declared.outcomes:
        body["outcomes"] = dict(declared.outcomes)
    check(body)
    return body


def _details(details: Details) -> Body:
    check(details)
    return {"details": details} if details else {}


def _present(**values: str | int) -> Body:
    return {name: value for name, value in values.items() if value}
