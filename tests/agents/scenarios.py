"""What happens to an agent: all goes well, its run's cap is reached, or a deadline cuts a call: amid text, reasoning or a tool call, or before any came."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.agents.setups.setup import COMMAND, SMALL, Setup, arguments_text

GAP_MS = 100
LONG_TOKENS = 4_000


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    limit: str = ""
    """`requests`, `wall` or none."""


OK = Scenario("ok")
CAP = Scenario("cap", "requests")
CUT_TEXT = Scenario("cut-text", "wall")
CUT_REASONING = Scenario("cut-reasoning", "wall")
CUT_TOOL_CALL = Scenario("cut-tool-call", "wall")
CUT_WHOLE = Scenario("cut-whole", "wall")
"""Of an answer that does not stream: nothing of it has come."""


def scenarios(setup: Setup) -> list[Scenario]:
    found = [OK, CAP, CUT_TEXT if setup.streams else CUT_WHOLE]
    if setup.reasons and setup.streams:
        found.append(CUT_REASONING)
    if setup.tools and setup.streams:
        found.append(CUT_TOOL_CALL)
    return [one for one in found if not setup.scenarios or one.name in setup.scenarios]


def policy(setup: Setup, scenario: Scenario, slower: int = 1) -> dict[str, Any]:
    """`slower`: how many times longer its deadline is."""
    model = {"default_output_tokens": 16_384, "context_tokens": 131_072}
    made: dict[str, Any] = {
        "apis": ["openai.chat", "openai.responses", "anthropic.messages", "anthropic.count_tokens", "openai.models"],
        "models": {"mock": model, SMALL: model},
        **setup.policy,
    }
    if scenario.limit == "requests":
        made["run"] = {"model": {"mock": {"requests": 1}}}
    if scenario.limit == "wall":
        made["run"] = {"wall_seconds": setup.wall_s * slower}
    return made


def playbook(setup: Setup, scenario: Scenario) -> dict[str, Any]:
    """Of the mock engine. Each answer reports numbers of its own, so that a wrong join shows."""
    shell = {"tool_calls": [{"name": setup.tool, "arguments": arguments_text(setup, COMMAND)}]}
    first = dict(setup.first or shell)
    long = json.dumps(setup.arguments("echo " + "far too long " * 600))
    cut: dict[str, Any] = {
        "ok": dict(setup.final),
        "cap": shell if setup.tools else dict(setup.final),
        "cut-whole": {"output_tokens": LONG_TOKENS, "gap_ms": GAP_MS},
        "cut-text": {"output_tokens": LONG_TOKENS, "gap_ms": GAP_MS},
        "cut-reasoning": {"output_tokens": LONG_TOKENS, "reasoning_tokens": LONG_TOKENS - 100, "gap_ms": GAP_MS},
        "cut-tool-call": {"tool_calls": [{"name": setup.tool, "arguments": long}], "argument_pieces": 600, "gap_ms": GAP_MS},
    }[scenario.name]
    answers = [first, cut] if setup.cut_call == 2 or scenario.limit != "wall" else [cut]
    told = [{"prompt_tokens": 1_000 + 10 * number, "cached": 100 + number, **answer} for number, answer in enumerate(answers, 1)]
    after = {"prompt_tokens": 1_500, **dict(setup.final)}
    return {"models": {"mock": told, SMALL: {"text": "A title", "prompt_tokens": 300}}, "default": after, "served": ["mock", SMALL]}
