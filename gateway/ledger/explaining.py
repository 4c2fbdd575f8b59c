"""Why a call went as it did: refused, clamped, made to wait, cut. From the entries that name it alone; what they do not say is not guessed. Pure.

The rule: a limit is told with the numbers that it had at that moment, as they were written then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from gateway.accounting.chain import decode
from gateway.accounting.entries import LedgerEntry

Row = dict[str, object]
Content = Mapping[str, object]

CHARGES = ("requests", "input_tokens", "output_tokens", "tool_calls")
CEILINGS = {
    "asked": "the body asks for it",
    "default": "the model's default_output_tokens",
    "context": "what the model's context leaves after the prompt",
    "none": "nothing bounds it",
}
ENDS = {
    "completed": "the engine ended its answer",
    "length": "it reached its ceiling",
    "cap_cut": "cut: the engine ran past the ceiling that was sent",
    "client_cancelled": "the agent left before the end of its answer",
    "deadline_cut": "cut: the time was over",
    "closed_cut": "cut: its run or campaign was closed, or its key revoked",
    "shutdown_cut": "cut: the gateway stopped",
    "engine_refused": "the engine refused it before working",
    "engine_error": "the engine told an error",
    "engine_died": "the engine's answer broke off",
    "engine_closed": "a kept connection to the engine was dead",
    "engine_timeout": "the engine did not answer in time",
    "not_delivered": "its settlement could not be written at first, so the answer was broken off",
    "lost": "the process ended while it ran; the whole reservation is charged until more is known",
}
CODES = {
    "run_budget_reached": "a limit has too little left for it",
    "prompt_above_cap": "its prompt is above what one call may have",
    "context_overflow": "its prompt fills the context",
    "run_closed": "its run or campaign was closed, or its key revoked",
    "window_over": "the campaign's time was over",
    "preflight_required": "its run had passed no preflight, and the policy requires one",
    "busy": "others held what it needed until its wait was over",
    "campaign_halted": "its campaign was halted until its wait was over",
    "engine_unavailable": "no engine for its model could take it, or count its prompt",
    "overloaded": "too many waited already",
    "shutting_down": "the gateway was stopping",
}


def explain(call_id: str, entries: Sequence[LedgerEntry]) -> Row:
    """`entries`: those that name the call, in order; at least one."""
    contents = [decode(entry.body) for entry in entries]
    first = contents[0]
    found: Row = {"call": call_id, **{name: first[name] for name in ("campaign", "run", "lane", "model", "at_ms") if first.get(name)}}
    if first["kind"] == "refuse":
        found |= {"status": "refused", **_refused(first)}
    else:
        found |= _sent(contents)
    found["entries"] = [_shown(content) for content in contents]
    return found


def _refused(refusal: Content) -> Row:
    code = cast(str, refusal["code"])
    why = CODES.get(code, f"the gateway answered {code}")
    final = "final: the agent should stop" if refusal["final"] else "passing: it may try again"
    told = [f"refused as {code}: {why} ({final})"]
    found: Row = {"code": code, "final": refusal["final"]}
    if field := refusal.get("field"):
        told.append(f"the body's field {field} made it so")
    limit = _limit(refusal.get("limit"))
    if limit:
        found["limit"] = limit
        told.append(f"in the way: {numbers(limit)}")
    if waited := refusal.get("waited_ms"):
        told.append(f"it waited {waited} ms before that")
    return {**found, "why": told}


def _sent(contents: Sequence[Content]) -> Row:
    reserve = next((content for content in contents if content["kind"] == "reserve"), None)
    told: list[str] = []
    found: Row = {"status": "reserved"}
    if reserve is not None:
        told += _reserved(reserve)
        decided = _decision(reserve)
        found |= {name: limit for name in ("clamped_by", "waited_on") if (limit := _limit(decided.get(name)))}
        if later := _waited_on(decided)[1:]:
            found["then_waited_on"] = later
    for content in contents:
        match content["kind"]:
            case "settle":
                found |= {"status": "settled", "outcome": content["outcome"], "source": content["source"]}
                told += _settled(content)
                if cut_by := _limit(_details(content).get("cut_by")):
                    found["cut_by"] = cut_by
            case "void":
                found["status"] = "void"
                told.append(f"void: {content.get('reason', 'nothing was sent')}; all was given back")
            case "expire":
                found |= {"status": "lost", "outcome": "lost", "source": "unknown"}
                told.append(ENDS["lost"])
            case "adjust":
                found |= {"status": "adjusted", "source": "corrected"}
                told.append(f"corrected: {content.get('reason', '')} ({content.get('evidence', 'no evidence named')}); charged {_charge(content)}")
            case "event":
                told.append(_event(content))
    return {**found, "why": told}


def _reserved(reserve: Content) -> Iterable[str]:
    held = cast("dict[str, int]", reserve["reserved"])
    source = cast(str, reserve["ceiling_from"])
    decided = _decision(reserve)
    yield f"reserved {held['input_tokens']} input tokens ({reserve['prompt_source']}) and {held['output_tokens']} output tokens"
    if waited := reserve.get("waited_ms"):
        on = _waited_on(decided)
        if len(on) > 1:
            parts = [f"{one.get('ms', 'some')} ms for {numbers(one)}" for one in on]
            yield f"waited {waited} ms: {', then '.join(parts)}"
        else:
            yield f"waited {waited} ms for {numbers(on[0]) if on else 'a slot of its engine, its turn, a count, or the end of a halt'}"
        if before := _queue(decided).get("position"):
            yield f"when it came, {before} calls of its run and lane were before it"
    if decided.get("away"):
        yield "the engine that its run used last was full: it went to another"
    if by := _limit(decided.get("clamped_by")):
        yield f"clamped to {reserve['ceiling']} output tokens of the {decided.get('wanted', 'more')} that it wanted, by {numbers(by)}"
    else:
        yield f"its ceiling was {reserve['ceiling']} output tokens: {CEILINGS.get(source, source)}"
    if stripped := cast("Sequence[str]", _details(reserve).get("stripped", ())):
        yield f"dropped before it was sent, as guard.strip of the policy says: {', '.join(stripped)}"


def _settled(settle: Content) -> Iterable[str]:
    outcome = cast(str, settle["outcome"])
    details = _details(settle)
    phase = f", in the phase {details['phase']}" if details.get("phase") else ""
    yield f"{outcome}: {ENDS.get(outcome, outcome)}{phase}"
    if by := _limit(details.get("cut_by")):
        yield f"cut by {numbers(by)}"
    usage = cast("dict[str, int]", settle["usage"])
    used = ", ".join(f"{usage.get(name, 'unknown')} {name.replace('_', ' ')}" for name in ("input_tokens", "output_tokens"))
    yield f"used {used} (source {settle['source']}); charged {_charge(settle)}"
    if flags := cast("Sequence[str]", settle.get("flags", ())):
        yield f"flagged {', '.join(flags)}"


def _event(event: Content) -> str:
    details = _details(event)
    said = ", ".join(f"{name} {value}" for name, value in details.items() if isinstance(value, int | str))
    return f"on record: {event['name']}{f' ({said})' if said else ''}"


def _charge(content: Content) -> str:
    charge = cast("dict[str, int]", content.get("charge", {}))
    return ", ".join(f"{charge[name]} {name.replace('_', ' ')}" for name in CHARGES if name in charge) or "nothing"


def numbers(limit: Content) -> str:
    """A limit in one line: `run.requests = 10, settled 9, reserved 1, asked 1`."""
    rest = ", ".join(f"{name} {limit[name]}" for name in ("settled", "reserved", "asked") if name in limit)
    return f"{limit['name']} = {limit.get('ceiling', 'unknown')}{f', {rest}' if rest else ''}"


def _waited_on(decided: Content) -> list[Row]:
    """Every limit that was in its way while it waited, in the order in which they came to be."""
    later = decided.get("then_waited_on")
    return [limit for value in (decided.get("waited_on"), *(later if isinstance(later, Sequence) else ())) if (limit := _limit(value))]


def _queue(decided: Content) -> Content:
    queue = decided.get("queue")
    return queue if isinstance(queue, Mapping) else {}


def _limit(value: object) -> Row:
    return dict(value) if isinstance(value, Mapping) and "name" in value else {}


def _details(content: Content) -> Content:
    details = content.get("details")
    return details if isinstance(details, Mapping) else {}


def _decision(reserve: Content) -> Content:
    decided = _details(reserve).get("decision")
    return decided if isinstance(decided, Mapping) else {}


def _shown(content: Content) -> Row:
    """An entry without what ties it to its chain."""
    return {name: value for name, value in content.items() if name not in ("chain", "sequence", "campaign", "run", "call", "about_call")}
