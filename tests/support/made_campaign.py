"""A campaign made to numbers that are given: a real ledger, calls whose usage adds up to what is wanted, and the record that its driver would have kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from gateway.accounting.commands import (
    BeginClosing,
    CloseCampaign,
    Command,
    Declare,
    Fingerprint,
    OpenCampaign,
    OpenRun,
    Reserve,
    Results,
    Settle,
    WriteReceipt,
)
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.client.dispatch import DispatchWriter
from gateway.ledger.sqlite import SqliteStore


@dataclass(frozen=True, kw_only=True)
class Lane:
    calls: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class MadeRun:
    run: str
    task: str = ""
    label: str = ""
    repeat: int = 0
    pins: Mapping[str, str] = field(default_factory=dict)
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    results: Results | None = None
    begun_ms: int = 10_000
    gap_ms: int = 1_000
    """From one call's beginning to the next one's."""
    lasts_ms: int = 500
    waited_ms: int = 0


def shares(total: int, parts: int) -> Iterator[int]:
    """Whole numbers that add up to it, no two neighbours alike where that can be."""
    for left in range(parts, 0, -1):
        part = total if left == 1 else total // left + (1 if left % 2 and total > left else 0)
        total -= part
        yield part


def made(path: Path, campaign: str, runs: Sequence[MadeRun], *, policy_hash: str = "ab" * 32, close: bool = True, **opening: object) -> None:
    """Writes it into the ledger at `path`, which may hold others; `opening` goes into the campaign's own opening."""
    store = SqliteStore(path)
    store.migrate()
    store.load()
    for batch in batched(_commands(campaign, runs, policy_hash, close, opening)):
        for answer in store.post(batch):
            assert not isinstance(answer, Exception), answer
    store.close()


def batched(commands: Iterator[Command]) -> Iterator[list[Command]]:
    while batch := list(islice(commands, 400)):
        yield batch


def _commands(campaign: str, runs: Sequence[MadeRun], policy_hash: str, close: bool, opening: Mapping[str, object]) -> Iterator[Command]:
    plain = {"campaign": campaign, "at_ms": 1_000, "policy_name": "made", "policy": "{}", "policy_hash": policy_hash}
    yield OpenCampaign(**{**plain, **opening})  # type: ignore[arg-type]
    yield Fingerprint(campaign=campaign, upstream="u", at_ms=1_000, details={"slots": 2})
    end = 1_000
    for run in runs:
        details = {"repeat": run.repeat, "pins": [[name, digest] for name, digest in run.pins.items()]}
        said = {name: value for name, value in details.items() if value}
        yield OpenRun(campaign=campaign, run=run.run, at_ms=run.begun_ms, task=run.task, label=run.label, details=said)
        at_ms = run.begun_ms
        for command in _calls(campaign, run):
            at_ms = command.at_ms
            yield command
        if run.results is not None:
            yield Declare(campaign=campaign, run=run.run, at_ms=at_ms, results=run.results)
        if close:
            yield BeginClosing(campaign=campaign, run=run.run, at_ms=at_ms)
            yield WriteReceipt(campaign=campaign, run=run.run, at_ms=at_ms)
        end = max(end, at_ms)
    if close:
        yield CloseCampaign(campaign=campaign, at_ms=end)
        yield WriteReceipt(campaign=campaign, run="", at_ms=end)


def _calls(campaign: str, run: MadeRun) -> Iterator[Reserve | Settle]:
    at_ms = run.begun_ms
    for lane, of in run.lanes.items():
        numbers = zip(shares(of.input_tokens, of.calls), shares(of.output_tokens, of.calls), strict=True)
        for place, (prompt, output) in enumerate(numbers):
            call_id = f"call-{campaign}-{run.run}-{lane}-{place}"
            yield Reserve(
                call_id=call_id,
                at_ms=at_ms,
                campaign=campaign,
                run=run.run,
                lane=lane,
                key_id="key-1",
                model="m",
                upstream="u",
                dialect="openai.chat",
                stream=False,
                accounts=(),
                amounts=Amounts(requests=1, input_tokens=prompt, output_tokens=output, concurrent=1),
                prompt_source="counted",
                ceiling=output,
                ceiling_from="asked",
                waited_ms=run.waited_ms,
                details={"bytes_by_role": {"system": 100, "user": 100 * (place + 1)}, "tool_count": 1},
            )
            yield Settle(
                call_id=call_id,
                at_ms=at_ms + run.lasts_ms,
                outcome=Outcome.COMPLETED,
                source=Source.REPORTED,
                usage=Usage(input_tokens=prompt, output_tokens=output, cached_tokens=0, tool_calls=0),
                charge=Amounts(requests=1, input_tokens=prompt, output_tokens=output),
                details={"response_id": f"chatcmpl-{call_id}", "status": 200, "delivered_bytes": {"text": 4 * output, "reasoning": 0, "tool_arguments": 0}},
            )
            at_ms += run.gap_ms


def recorded(path: Path, campaign: str, runs: Sequence[MadeRun]) -> Path:
    """What a driver would have noted of the same calls, in the project's own form."""
    for run in runs:
        with DispatchWriter(path, "made", session=f"{campaign}-{run.run}") as writer:
            for command in _calls(campaign, run):
                if isinstance(command, Settle):
                    usage = {"input_tokens": command.usage.input_tokens, "output_tokens": command.usage.output_tokens}
                    writer.note(id=command.call_id, ended_ms=command.at_ms, model="m", usage=usage, response_id=f"chatcmpl-{command.call_id}")
    return path
