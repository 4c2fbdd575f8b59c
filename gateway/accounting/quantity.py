"""What can be limited, and the one arithmetic that turns an amount of work into a number of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

from gateway.frozen import frozen


class Quantity(StrEnum):
    """Quantities that accounts keep. A new one is a member here and a branch of `measure`; mypy names what else it touches."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOTAL_TOKENS = "total_tokens"
    TOOL_CALLS = "tool_calls"
    CONCURRENT = "concurrent"
    RUNS = "runs"


CLAMPABLE = frozenset({Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS})
"""Quantities that a smaller output helps."""


@frozen
class Amounts:
    """Work, as reserved or as charged. Always known, always whole numbers, never negative."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    concurrent: int = 0
    runs: int = 0


NOTHING = Amounts()

# Bound once: looking up an enum's member costs more than the comparison.
_REQUESTS: Final = Quantity.REQUESTS
_INPUT: Final = Quantity.INPUT_TOKENS
_OUTPUT: Final = Quantity.OUTPUT_TOKENS
_TOTAL: Final = Quantity.TOTAL_TOKENS
_TOOL_CALLS: Final = Quantity.TOOL_CALLS
_CONCURRENT: Final = Quantity.CONCURRENT
_RUNS: Final = Quantity.RUNS


def measures(amounts: Amounts) -> dict[Quantity, int]:
    """`measure` of each."""
    return {
        _REQUESTS: amounts.requests,
        _INPUT: amounts.input_tokens,
        _OUTPUT: amounts.output_tokens,
        _TOTAL: amounts.input_tokens + amounts.output_tokens,
        _TOOL_CALLS: amounts.tool_calls,
        _CONCURRENT: amounts.concurrent,
        _RUNS: amounts.runs,
    }


def measure(quantity: Quantity, amounts: Amounts) -> int:
    """How much of `quantity` these amounts are: applied to the estimate when reserving and to the charge when settling."""
    if quantity is _REQUESTS:
        return amounts.requests
    if quantity is _INPUT:
        return amounts.input_tokens
    if quantity is _OUTPUT:
        return amounts.output_tokens
    if quantity is _TOTAL:
        return amounts.input_tokens + amounts.output_tokens
    if quantity is _TOOL_CALLS:
        return amounts.tool_calls
    if quantity is _CONCURRENT:
        return amounts.concurrent
    if quantity is _RUNS:
        return amounts.runs
    assert_never(quantity)
