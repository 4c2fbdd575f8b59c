"""A ledger made again from what a scripted server noted of its calls, as a gateway in its place would have written it: real commands, a real file."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.accounting.commands import BeginClosing, Command, OpenCampaign, OpenRun, Refuse, Reserve, Settle, WriteReceipt
from gateway.accounting.limit import Shortfall
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import NO_USAGE, Outcome, Source, Usage
from gateway.ledger.ledger import Ledger
from gateway.proxy.identify import SESSION_HEADERS

Line = Mapping[str, Any]

DIALECTS = {"chat": "openai.chat", "responses": "openai.responses", "messages": "anthropic.messages", "gemini": "gemini"}


AT_ONCE = 5_000
"""A ledger takes no more than 20,000 that wait."""


def server_log(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def commands_of(log: Sequence[Line], *, campaign: str = "c", run: str = "r", salt: str = "") -> Iterator[Command]:
    """Of one run, from its opening on. `salt` stands before each call id: servers that were started anew count alike."""
    calls = [line for line in log if line.get("gen")]
    yield OpenRun(campaign=campaign, run=run, at_ms=_ms(log[0]["t_start"]) - 1_000)
    for line in calls:
        yield from _call(line, campaign, run, salt)
    last = _ms(log[-1].get("t_end") or log[-1]["t_start"]) + 30_000
    yield BeginClosing(campaign=campaign, run=run, at_ms=last)
    yield WriteReceipt(campaign=campaign, run=run, at_ms=last)


def _call(line: Line, campaign: str, run: str, salt: str) -> Iterator[Command]:
    answer, call_id = line["resp"], salt + line["resp"]["request_id"]
    begun, ended = _ms(line["t_start"]), _ms(line.get("t_end") or line["t_start"])
    if answer["status"] in (400, 402, 404, 429):
        passing = "exhausted" in json.dumps(answer.get("body"))  # with Retry-After: the samples' one passing refusal
        code, limit = ("busy", None) if passing else ("run_budget_reached", Shortfall(name="run.requests", ceiling=1, settled=1, reserved=0, asked=1))
        yield Refuse(call_id=call_id, at_ms=begun, campaign=campaign, run=run, lane="foreground", model=_model(line), code=code, final=not passing, limit=limit)
        return
    yield reserve_of(line, call_id, campaign, run, begun)
    usage = usage_of(answer.get("usage") or {})
    outcome, source = Outcome.COMPLETED, Source.REPORTED
    if answer["status"] >= 500:
        outcome, source, usage = Outcome.ENGINE_REFUSED, Source.NONE, NO_USAGE
    elif answer.get("action") == "sse_error":
        outcome, source, usage = Outcome.ENGINE_ERROR, Source.COUNTED, Usage(input_tokens=usage.input_tokens, output_tokens=7)
    yield settle_of(answer, call_id, ended, outcome, source, usage)


def reserve_of(line: Line, call_id: str, campaign: str, run: str, at_ms: int) -> Reserve:
    body = line["body"]
    tools = len(body.get("tools") or ()) or body.get("n_tools", 0)
    shape = json.dumps([body.get("messages"), body.get("input"), body.get("contents"), line.get("body_bytes", line["seq"])]).encode()
    headers = {name.lower(): value for name, value in (pair for pair in line["headers"] if isinstance(pair, list))}
    details: dict[str, object] = {
        "fields": {"messages": {"bytes": len(shape), "sha256": hashlib.sha256(shape).hexdigest()}},
        **({"tool_count": tools} if tools else {}),
        **({"session": session} if (session := {name: headers[name] for name in SESSION_HEADERS if name in headers}) else {}),
    }
    return Reserve(
        call_id=call_id,
        at_ms=at_ms,
        campaign=campaign,
        run=run,
        lane="foreground",
        key_id="key-1",
        model=_model(line),
        upstream="u",
        dialect=DIALECTS[line["kind"]],
        stream=body.get("stream") is True,
        accounts=(),
        amounts=Amounts(requests=1, input_tokens=2_000, output_tokens=4_096, concurrent=1),
        prompt_source="bound",
        ceiling=4_096,
        ceiling_from="asked",
        details=details,
    )


def settle_of(answer: Line, call_id: str, at_ms: int, outcome: Outcome, source: Source, usage: Usage) -> Settle:
    said = {"response_id": answer.get("id"), "model_reported": answer.get("model")}
    parts = {"item_ids": answer.get("item_id"), "tool_call_ids": answer.get("call_id")}
    details: dict[str, object] = {"status": answer["status"]}
    details |= {name: value for name, value in said.items() if value} | {name: [value] for name, value in parts.items() if value}
    charge = Amounts(requests=1, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0)
    return Settle(call_id=call_id, at_ms=at_ms, outcome=outcome, source=source, usage=usage, charge=charge, details=details)


def usage_of(reported: Line) -> Usage:
    """What a gateway makes of each format's report."""
    if "promptTokenCount" in reported:
        output = reported["candidatesTokenCount"] + reported.get("thoughtsTokenCount", 0)
        return Usage(
            input_tokens=reported["promptTokenCount"],
            output_tokens=output,
            cached_tokens=reported.get("cachedContentTokenCount"),
            reasoning_tokens=reported.get("thoughtsTokenCount"),
        )
    if "cache_read_input_tokens" in reported:
        read, written = reported["cache_read_input_tokens"], reported["cache_creation_input_tokens"]
        return Usage(
            input_tokens=reported["input_tokens"] + read + written, output_tokens=reported["output_tokens"], cached_tokens=read, cache_write_tokens=written
        )
    chat = "prompt_tokens" in reported
    prompt, completion = ("prompt_tokens", "completion_tokens") if chat else ("input_tokens", "output_tokens")
    return Usage(
        input_tokens=reported.get(prompt),
        output_tokens=reported.get(completion),
        cached_tokens=reported.get(f"{prompt}_details", {}).get("cached_tokens"),
        reasoning_tokens=reported.get(f"{completion}_details", {}).get("reasoning_tokens"),
    )


def _model(line: Line) -> str:
    return line["body"].get("model") or line["target"].rpartition("/")[2].partition(":")[0]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def open_campaign(campaign: str, at_ms: int) -> OpenCampaign:
    return OpenCampaign(campaign=campaign, at_ms=at_ms, policy_name="p", policy="{}", policy_hash="ab" * 32)


def write_ledger(path: Path, commands: Sequence[Command]) -> Path:
    """Through the ledger itself, in batches as a gateway would."""

    async def posted() -> None:
        ledger = Ledger.open(path)
        try:
            for first in range(0, len(commands), AT_ONCE):
                await asyncio.gather(*(ledger.post(command) for command in commands[first : first + AT_ONCE]))
        finally:
            await ledger.close()

    asyncio.run(posted())
    return path


def ledger_of(log: Path, path: Path) -> Path:
    """One campaign `c` with one run `r`."""
    lines = server_log(log)
    return write_ledger(path, [open_campaign("c", _ms(lines[0]["t_start"]) - 2_000), *commands_of(lines)])
