"""Each rule of the decision is held by a row of the table: with that rule one off, some row must come out otherwise."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

import pytest

from gateway.accounting import decision
from tests.unit.accounting.decision_rows import TABLE

NOW = "seen.limit.ceiling - seen.balance.settled - seen.balance.reserved - seen.aside"
MUTANTS = {
    "now forgets what is reserved": (NOW, NOW.replace(" - seen.balance.reserved", "")),
    "now forgets what is settled": (NOW, NOW.replace(" - seen.balance.settled", "")),
    "now forgets what is set aside": (NOW, NOW.replace(" - seen.aside", "")),
    "now gives one too many": (NOW, NOW + " + 1"),
    "now gives one too few": (NOW, NOW + " - 1"),
    "ever gives one too many": ("return ceiling - spent", "return ceiling - spent + 1"),
    "ever gives one too few": ("return ceiling - spent", "return ceiling - spent - 1"),
    "ever takes a request that was sent for one that may come back": ("spent += seen.balance.reserved", "spent += 0"),
    "ever forgets that a window opens": ("if seen.reopens:", "if False:"),
    "a bound that lowered want is sent": ("if not tight and (demand.exact or not demand.bound_lowered_want):", "if not tight:"),
    "what is spent is not looked at first": ("if over is not None:", "if False:"),
    "nothing is ever counted": ("if not demand.exact and demand.can_count:", "if False:"),
    "counted though no counter is at hand": ("if not demand.exact and demand.can_count:", "if not demand.exact:"),
    "least itself is refused": ("if reach < demand.least and", "if reach <= demand.least and"),
    "one less than least is sent": ("if reach < demand.least and", "if reach < demand.least - 1 and"),
    "the floor itself waits": ("if free >= floor:", "if free > floor:"),
    "one below the floor is sent": ("if free >= floor:", "if free >= floor - 1:"),
    "what is only held is named": ("reach_by if free >= reach else free_by", "free_by"),
    "exactly all is tight": ("if now(seen) < whole and whole:", "if now(seen) <= whole and whole:"),
    "one too few is not tight": ("if now(seen) < whole and whole:", "if now(seen) + 1 < whole and whole:"),
    "a limit of which nothing is needed is tight": ("if now(seen) < whole and whole:", "if now(seen) < whole or not whole:"),
    "one left counts as spent": ("if ever(seen) > 0 or", "if ever(seen) > 1 or"),
    "nothing left counts as one": ("if ever(seen) > 0 or", "if ever(seen) >= 0 or"),
    "the broadest spent limit is named": (
        "or narrowness(seen.limit.account) < narrowness(found.limit.account)",
        "or narrowness(seen.limit.account) > narrowness(found.limit.account)",
    ),
    "the broadest limit of several is named": ("narrowness(account) < narrowness(by.limit.account)", "narrowness(account) > narrowness(by.limit.account)"),
    "enough may be more than there ever is": ("return min(reach, max(demand.least, demand.enough))", "return max(demand.least, demand.enough)"),
    "enough may be less than least": ("return min(reach, max(demand.least, demand.enough))", "return min(reach, demand.enough)"),
    "one less than enough will do": ("return min(reach, max(demand.least, demand.enough))", "return min(reach, max(demand.least, demand.enough - 1))"),
    "at the end of the wait only a fair part": ("if by.other_flows and patience is not Patience.LEAST:", "if by.other_flows:"),
    "a fair part of nobody else's": ("if by.other_flows and patience is not Patience.LEAST:", "if False:"),
    "a fair part counts one flow too few": ("free // (1 + by.other_flows)", "free // by.other_flows"),
    "a fair part may be less than enough": ("share = max(demand.enough, free // (1 + by.other_flows))", "share = free // (1 + by.other_flows)"),
    "a fair part is no multiple": ("share - share % demand.multiple", "share"),
    "a fair part may be less than least": (
        "output = max(min(free, share - share % demand.multiple), demand.least)",
        "output = min(free, share - share % demand.multiple)",
    ),
    "just what is needed is too little": ("if given >= whole or whole == 0:", "if given > whole or whole == 0:"),
    "a total forgets the prompt": ("given -= demand.prompt_tokens", "given -= 0"),
    "a total that holds just the prompt stands in the way": ("if given < 0 and demand.prompt_tokens > 0:", "if given <= 0 and demand.prompt_tokens > 0:"),
    "a total one short of the prompt does not": ("if given < 0 and demand.prompt_tokens > 0:", "if given < -1 and demand.prompt_tokens > 0:"),
    "no multiple of choices": ("return max(given, 0) // demand.multiple * demand.multiple", "return max(given, 0)"),
    "a total needs no prompt": ("return prompt_tokens + output", "return output"),
    "an output needs the prompt": ("    if quantity is _OUTPUT:\n        return output", "    if quantity is _OUTPUT:\n        return prompt_tokens + output"),
    "tool calls are not needed": (" or quantity is _TOOL_CALLS:\n        return 1", ":\n        return 1\n    if quantity is _TOOL_CALLS:\n        return 0"),
    "a request is not needed": (
        "if quantity is _REQUESTS or quantity is _CONCURRENT",
        "if quantity is _REQUESTS:\n        return 0\n    if quantity is _CONCURRENT",
    ),
    "a place among the concurrent is not needed": (
        "if quantity is _REQUESTS or quantity is _CONCURRENT",
        "if quantity is _CONCURRENT:\n        return 0\n    if quantity is _REQUESTS",
    ),
}


def decide_with(old: str, new: str) -> Callable[..., decision.Decision]:
    """The module's functions, with one piece of them written otherwise, over the same classes."""
    source = inspect.getsource(decision)
    assert source.count(old) == 1, f"{source.count(old)} times in the source: {old}"
    tree = ast.parse(source.replace(old, new))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = dict(vars(decision))
    exec(compile(tree, "mutant", "exec"), names)
    return names["decide"]  # type: ignore[no-any-return]


def told(verdict: decision.Decision) -> tuple[object, ...]:
    match verdict:
        case decision.Send():
            return "send", verdict.output, verdict.clamped_by
        case decision.Count():
            return ("count",)
        case decision.Final():
            return "final", verdict.shortfall.name
        case decision.Wait():
            return "wait", verdict.shortfall.name, verdict.floor


def broken_rows(decide: Callable[..., decision.Decision]) -> list[str]:
    broken = []
    for says, view, demand, patience, verdict in TABLE:
        try:
            right = told(decide(view, demand, patience)) == verdict
        except (AssertionError, ValueError, ZeroDivisionError):
            right = False
        if not right:
            broken.append(says)
    return broken


def test_the_functions_as_they_are_break_no_row() -> None:
    assert broken_rows(decide_with("return ceiling - spent", "return ceiling - spent")) == []


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS.keys())
def test_a_rule_that_is_one_off_breaks_a_row_of_the_table(old: str, new: str) -> None:
    assert broken_rows(decide_with(old, new))
